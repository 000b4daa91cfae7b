"""What uses the theory to train: advice, a recipe, a prediction, a measured rate, a diagnosis."""

from deeplin.training.advice import Advice, Optimizer, advise
from deeplin.training.critical_rate import CriticalRate, empirical_critical_rate
from deeplin.training.diagnosis import Diagnosis, diagnose
from deeplin.training.prediction import Prediction, Verdict, judge, predict
from deeplin.training.recipe import default_width, descend, starting_network, train

__all__ = [
    "Advice",
    "CriticalRate",
    "Diagnosis",
    "Optimizer",
    "Prediction",
    "Verdict",
    "advise",
    "default_width",
    "descend",
    "diagnose",
    "empirical_critical_rate",
    "judge",
    "predict",
    "starting_network",
    "train",
]
