"""Learning-rate advice, simulated trials, training, predictions and diagnosis of data sets."""

from deeplin.compatibility import moved
from deeplin.training.advice import Advice, TrainingSpec, Trials, advise, try_starts
from deeplin.training.critical_rate import CriticalRate, empirical_critical_rate
from deeplin.training.diagnosis import Diagnosis, diagnose
from deeplin.training.recipe import (
    Prediction,
    Verdict,
    default_width,
    descend,
    judge,
    predict,
    starting_network,
    train,
)

__getattr__ = moved(__name__)

__all__ = [
    "Advice",
    "CriticalRate",
    "Diagnosis",
    "Prediction",
    "TrainingSpec",
    "Trials",
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
    "try_starts",
]
