"""Learning-rate advice, simulated trials, training, predictions and diagnosis of data sets."""

from deeplin.training._train import (
    Prediction,
    Verdict,
    descend,
    judge,
    predict,
    train,
)
from deeplin.training.diagnosis import Diagnosis, diagnose
from deeplin.training.learning_rate import (
    Advice,
    TrainingSpec,
    Trials,
    advise,
    separated_classes,
)
from deeplin.training.measured_rate import CriticalRate, empirical_critical_rate
from deeplin.training.trials import advise_start, starting_network, try_starts

__all__ = [
    "Advice",
    "CriticalRate",
    "Diagnosis",
    "Prediction",
    "TrainingSpec",
    "Trials",
    "Verdict",
    "advise",
    "advise_start",
    "descend",
    "diagnose",
    "empirical_critical_rate",
    "judge",
    "predict",
    "separated_classes",
    "starting_network",
    "train",
    "try_starts",
]
