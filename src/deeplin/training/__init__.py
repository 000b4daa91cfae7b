"""Learning-rate advice, simulated trials, training, predictions and diagnosis of data sets."""

from deeplin.training._train import descend, train
from deeplin.training.diagnosis import Diagnosis, diagnose
from deeplin.training.learning_rate import (
    Advice,
    TrainingSpec,
    advise,
)
from deeplin.training.measured_rate import empirical_critical_rate
from deeplin.training.separation import separated_classes
from deeplin.training.trials import advise_start, starting_network

__all__ = [
    "Advice",
    "Diagnosis",
    "TrainingSpec",
    "advise",
    "advise_start",
    "descend",
    "diagnose",
    "empirical_critical_rate",
    "separated_classes",
    "starting_network",
    "train",
]
