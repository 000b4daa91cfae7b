"""Problems: data sets given by rows or moments, and the papers' synthetic data sets."""

from deeplin.problems import synthetic
from deeplin.problems.moments import Moments
from deeplin.problems.population import Factored, Population, population_risk
from deeplin.problems.problem import Problem, Spectrum

__all__ = [
    "Factored",
    "Moments",
    "Population",
    "Problem",
    "Spectrum",
    "population_risk",
    "synthetic",
]
