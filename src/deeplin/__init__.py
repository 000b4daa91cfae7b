"""Deep linear networks as an exact instrument."""

from importlib.metadata import version

from deeplin import problems, theory
from deeplin.checks import InputError
from deeplin.dynamics import gradient_descent
from deeplin.networks import Network, initialize
from deeplin.problems import Problem

__version__ = version("deeplin")

__all__ = [
    "InputError",
    "Network",
    "Problem",
    "__version__",
    "gradient_descent",
    "initialize",
    "problems",
    "theory",
]
