"""Deep linear networks as an exact instrument."""

from importlib.metadata import version

from deeplin.checks import InputError
from deeplin.networks import Network, initialize
from deeplin.problems import Problem

__version__ = version("deeplin")

__all__ = ["InputError", "Network", "Problem", "__version__", "initialize"]
