"""Problems: the data seen through its moments."""

from deeplin.problems.moments import Moments
from deeplin.problems.problem import Problem, Quadratic, Spectrum

__all__ = ["Moments", "Problem", "Quadratic", "Spectrum"]
