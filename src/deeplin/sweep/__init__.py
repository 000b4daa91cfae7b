"""Sweeps: a function over a grid of arguments, or an experiment whose units form one table."""

from deeplin.sweep._grid import grid
from deeplin.sweep.experiment import Experiment, Outcome, Unit, UnitsFailed, run
from deeplin.sweep.keys import coordinate_words, run_key, run_keys
from deeplin.sweep.progress import Board, Progress, show_progress

__all__ = [
    "Board", "Experiment", "Outcome", "Progress", "Unit", "UnitsFailed",
    "coordinate_words", "grid", "run", "run_key", "run_keys", "show_progress",
]  # fmt: skip
