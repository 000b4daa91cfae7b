"""What uses the theory to train: a recipe, a prediction, a measured critical rate, a diagnosis."""

from deeplin.training.critical_rate import CriticalRate, empirical_critical_rate
from deeplin.training.diagnosis import Diagnosis, diagnose
from deeplin.training.prediction import Prediction, Verdict, judge, predict
from deeplin.training.recipe import (
    automatic_learning_rate,
    default_width,
    descend,
    starting_network,
)

__all__ = [
    "CriticalRate",
    "Diagnosis",
    "Prediction",
    "Verdict",
    "automatic_learning_rate",
    "default_width",
    "descend",
    "diagnose",
    "empirical_critical_rate",
    "judge",
    "predict",
    "starting_network",
]
