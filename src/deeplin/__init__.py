"""Deep linear networks as an exact instrument.

Public names are imported when they are first used: JAX alone takes a second, which neither a wrong
file name nor `deeplin --help` should wait for.
"""

# ruff: noqa: F401 (the imports are for type checkers, which see no lazy names)

from importlib import import_module
from typing import TYPE_CHECKING

from deeplin.errors import InputError

if TYPE_CHECKING:
    from deeplin import networks, papers, plot, problems, sweep, theory, training
    from deeplin.certificates.certificate import certify
    from deeplin.dynamics import (
        Gap,
        central_flow,
        gradient_descent,
        gradient_flow,
        reduce,
        simulate_wide,
    )
    from deeplin.dynamics.saved import load_run, save_run
    from deeplin.hessian import (
        TorchLoss,
        hessian_spectrum,
        hessian_trace,
        sharpness,
        sharpness_along,
        spectral_density,
        unflatten,
    )
    from deeplin.networks import Network, initialize
    from deeplin.networks.torch import from_arrays, from_torch
    from deeplin.problems import Population, Problem, population_risk
    from deeplin.sklearn import DeepLinearClassifier, DeepLinearRegressor
    from deeplin.tables.reading import read_problem
    from deeplin.theory import double_descent
    from deeplin.training import diagnose, train

    __version__: str

_SUBPACKAGES = ("networks", "papers", "plot", "problems", "sweep", "theory", "training")
_MODULES = {
    name: f"deeplin.{module}"
    for module, names in {
        "certificates.certificate": "certify",
        "dynamics": "Gap central_flow gradient_descent gradient_flow reduce simulate_wide",
        "dynamics.saved": "load_run save_run",
        "hessian": "TorchLoss hessian_spectrum hessian_trace sharpness sharpness_along "
        "spectral_density unflatten",
        "networks": "Network initialize",
        "networks.torch": "from_arrays from_torch",
        "problems": "Population Problem population_risk",
        "sklearn": "DeepLinearClassifier DeepLinearRegressor",
        "tables.reading": "read_problem",
        "theory": "double_descent",
        "training": "diagnose train",
    }.items()
    for name in names.split()
}
"""The module that defines each public name."""

__all__ = ["InputError", "__version__", *_SUBPACKAGES, *_MODULES]  # pyright: ignore


def __getattr__(name: str):
    """Import a public name on first use, and keep it."""
    if name == "__version__":
        from importlib.metadata import version

        found = version("deeplin")
    elif name in _SUBPACKAGES:
        found = import_module(f"deeplin.{name}")
    elif name in _MODULES:
        found = getattr(import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module 'deeplin' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
