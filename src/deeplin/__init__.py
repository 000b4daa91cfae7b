"""Deep linear networks as an exact instrument."""

from deeplin.checks import InputError
from deeplin.networks import Network, initialize
from deeplin.problems import Problem

__all__ = ["InputError", "Network", "Problem", "initialize"]
