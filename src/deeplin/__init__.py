"""Deep linear networks as an exact instrument."""

from importlib.metadata import version
from typing import TYPE_CHECKING

from deeplin import problems, theory
from deeplin.checks import InputError
from deeplin.dynamics import Gap, gradient_descent, gradient_flow, reduce, simulate_wide
from deeplin.networks import Network, initialize
from deeplin.problems import Population, Problem
from deeplin.problems.population import population_risk
from deeplin.problems.reading import read_problem
from deeplin.sharpness import sharpness, sharpness_along
from deeplin.theory import certify

if TYPE_CHECKING:
    from deeplin.estimator import DeepLinearRegressor

__version__ = version("deeplin")

__all__ = [
    "DeepLinearRegressor",
    "Gap",
    "InputError",
    "Network",
    "Population",
    "Problem",
    "__version__",
    "certify",
    "gradient_descent",
    "gradient_flow",
    "initialize",
    "population_risk",
    "problems",
    "read_problem",
    "reduce",
    "sharpness",
    "sharpness_along",
    "simulate_wide",
    "theory",
]


def __getattr__(name: str):
    """Import scikit-learn only for those who use the estimator: it takes a second."""
    if name == "DeepLinearRegressor":
        from deeplin.estimator import DeepLinearRegressor

        return DeepLinearRegressor
    raise AttributeError(f"module 'deeplin' has no attribute {name!r}")
