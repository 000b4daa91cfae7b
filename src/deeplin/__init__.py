"""Deep linear networks as an exact instrument.

Nothing is imported before it is used: JAX alone takes a second, which neither a wrong file name nor
`deeplin --help` should wait for.
"""

# ruff: noqa: F401 (the imports are for type checkers, which see no lazy names)

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from deeplin.checks import InputError

if TYPE_CHECKING:
    from deeplin import networks, problems, sweep, theory, training
    from deeplin.dynamics import (
        Gap,
        central_flow,
        gradient_descent,
        gradient_flow,
        reduce,
        simulate_wide,
    )
    from deeplin.dynamics.saved import load_run, save_run
    from deeplin.estimator import DeepLinearRegressor
    from deeplin.networks import Network, initialize
    from deeplin.networks.bridges import from_arrays, from_torch
    from deeplin.problems import Population, Problem, population_risk
    from deeplin.problems.reading import read_problem
    from deeplin.sharpness import hessian_spectrum, sharpness, sharpness_along
    from deeplin.theory import certify
    from deeplin.training import diagnose, train

    __version__: str

_ROOMS = ("networks", "problems", "sweep", "theory", "training")
_HOMES = {
    name: f"deeplin.{room}"
    for room, names in {
        "dynamics": "Gap central_flow gradient_descent gradient_flow reduce simulate_wide",
        "dynamics.saved": "load_run save_run",
        "estimator": "DeepLinearRegressor",
        "networks": "Network initialize",
        "networks.bridges": "from_arrays from_torch",
        "problems": "Population Problem population_risk",
        "problems.reading": "read_problem",
        "sharpness": "hessian_spectrum sharpness_along",
        "theory": "certify",
        "training": "diagnose train",
    }.items()
    for name in names.split()
}
"""Where each public name lives; imported when it is first asked for."""

__all__ = ["InputError", "__version__", "sharpness", *_ROOMS, *_HOMES]  # pyright: ignore


def __getattr__(name: str):
    """Import what is asked for, and keep it."""
    if name == "__version__":
        from importlib.metadata import version

        found = version("deeplin")
    elif name in _ROOMS:
        found = import_module(f"deeplin.{name}")
    elif name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'deeplin' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """`deeplin.sharpness` is the function, though the room of that name is imported as well."""

    @property
    def sharpness(self):
        """The sharpness of a network or any loss: see `deeplin.sharpness.sharpness`."""
        return import_module("deeplin.sharpness").sharpness

    @sharpness.setter
    def sharpness(self, room: ModuleType) -> None:
        """Importing the room would put it in place of the function: let it stay in sys.modules."""


sys.modules[__name__].__class__ = _Package
