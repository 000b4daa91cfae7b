"""Sweeps: a frozen config defines units of work, whose results form one tidy table."""

from deeplin.compatibility import moved
from deeplin.execution import prompt_interrupt
from deeplin.sweep.executors import Cluster, Executor, ExecutorError, InProcess, Processes
from deeplin.sweep.experiment import (
    Experiment,
    Unit,
    coordinate_words,
    find_experiment,
    from_json,
    read_sweep,
    run_key,
    run_keys,
    to_json,
)  # fmt: skip
from deeplin.sweep.functions import grid
from deeplin.sweep.progress import Board, Progress, show_progress
from deeplin.sweep.store import (
    Outcome,
    Shard,
    Status,
    Store,
    StoreError,
    UnitsFailed,
    read_table,
    run,
    status,
)  # fmt: skip

__all__ = [
    "Board", "Cluster", "Executor", "ExecutorError", "Experiment", "InProcess", "Outcome",
    "Processes", "Progress", "Shard", "Status", "Store", "StoreError", "Unit", "UnitsFailed",
    "coordinate_words", "find_experiment", "from_json", "grid", "prompt_interrupt", "read_sweep",
    "read_table", "run", "run_key", "run_keys", "show_progress", "status", "to_json",
]  # fmt: skip

__getattr__ = moved(__name__)
