"""Deep linear networks as an exact instrument."""

from importlib.metadata import version

from deeplin import problems, theory
from deeplin.checks import InputError
from deeplin.dynamics import gradient_descent, simulate_wide
from deeplin.networks import Network, initialize
from deeplin.problems import Problem
from deeplin.problems.population import population_risk
from deeplin.sharpness import sharpness
from deeplin.theory import certify

__version__ = version("deeplin")

__all__ = [
    "InputError",
    "Network",
    "Problem",
    "__version__",
    "certify",
    "gradient_descent",
    "initialize",
    "population_risk",
    "problems",
    "sharpness",
    "simulate_wide",
    "theory",
]
