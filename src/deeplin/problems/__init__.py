"""Problems: data sets given by rows or moments, and the papers' synthetic data sets."""

from deeplin.problems import synthetic
from deeplin.problems.population import Factored, Population, population_risk
from deeplin.problems.problem import Problem, Spectrum, require_problem

__all__ = [
    "Factored",
    "Population",
    "Problem",
    "Spectrum",
    "population_risk",
    "require_problem",
    "synthetic",
]
