"""Training without knowing the theory: advice, trials, a recipe, a prediction, a diagnosis."""

from deeplin.compatibility import moved
from deeplin.training.advice import Advice, advise
from deeplin.training.critical_rate import CriticalRate, empirical_critical_rate
from deeplin.training.diagnosis import Diagnosis, diagnose
from deeplin.training.prediction import Prediction, Verdict, judge, predict
from deeplin.training.recipe import default_width, descend, starting_network, train
from deeplin.training.spec import TrainingSpec
from deeplin.training.trials import Trials, try_starts

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
