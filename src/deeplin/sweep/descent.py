"""The built-in experiment: gradient descent over scales × learning rates × depths × repetitions."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from deeplin.dynamics import gradient_descent
from deeplin.errors import InputError, positive_number, whole_number
from deeplin.hessian import sharpness
from deeplin.networks import distance_to_optimum, initialize
from deeplin.networks.initialize import start_by_name
from deeplin.problems import Problem, synthetic
from deeplin.sweep.experiment import Experiment, Unit, run_key, run_keys
from deeplin.tables.reading import read_problem
from deeplin.tables.table import open_table


@dataclass(frozen=True)
class SyntheticData:
    """The data set of FM: Gaussian inputs, noisy linear targets, optimum of norm 1."""

    samples: int = 50
    dimension: int = 5
    noise: float = 1.0
    condition_number: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class TableData:
    """A user's table: CSV, Parquet, Arrow, `.npy` or `.npz`; `target` is its column y."""

    path: str
    target: str
    ignore: tuple[str, ...] = ()
    standardize: bool = False
    intercept: bool = False


@dataclass(frozen=True)
class DescentSweep:
    """Config of a sweep. The initial weights depend on seed, depth, scale and repetition only.

    ```python
    from deeplin.sweep.descent import DescentSweep
    config = DescentSweep(scales=(0.25, 0.4), learning_rates=(0.02, 0.1), repetitions=20)
    ```
    """

    scales: tuple[float, ...]
    learning_rates: tuple[float, ...]
    depths: tuple[int, ...] = (10,)
    repetitions: int = 20
    steps: int = 4000
    data: TableData | SyntheticData = field(default_factory=SyntheticData)
    network: Literal["gaussian", "residual"] = "gaussian"
    activation: Literal["linear", "gelu", "gelu_exact", "relu", "tanh"] = "linear"
    width: int | None = None
    """Width of the hidden layers; by default the number of inputs, as always for residual
    networks."""
    momentum: float = 0.0
    gap: float | None = None
    """Gap R − R_min at which a run stops; None takes all steps."""
    seed: int = 0
    runs_per_unit: int = 256
    """Maximum number of runs in one batch, which are lost by an interruption."""

    def __post_init__(self):
        for name in ("scales", "learning_rates", "depths"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise InputError(f"{name} are {values}; pass at least one, each once.")
        for rate in self.learning_rates:
            positive_number("each learning rate", rate)
        for scale in self.scales:
            positive_number("each scale", scale, zero_allowed=self.network == "residual")
        counts = (*self.depths, self.repetitions, self.steps, self.runs_per_unit)
        for number in counts:
            whole_number("each depth, and repetitions, steps and runs_per_unit,", number)
        if self.network == "residual" and (self.width is not None or self.activation != "linear"):
            raise InputError("a residual network is linear and as wide as its inputs; see FM-4.")


def units(config: DescentSweep) -> list[Unit]:
    """Return one unit for each depth, learning rate and batch of (scale, repetition)."""
    runs = [list(run) for run in product(config.scales, range(config.repetitions))]
    size = config.runs_per_unit
    batches = [runs[first : first + size] for first in range(0, len(runs), size)]
    data = _fingerprint(config.data)
    return [
        Unit(
            {"depth": depth, "learning_rate": rate, "runs": batch, "data": data},
            runs=len(batch),
            steps=len(batch) * config.steps,
            bucket=f"depth {depth}, {len(batch)} runs",
        )
        for depth, rate, batch in product(config.depths, config.learning_rates, batches)
    ]


def run_unit(config: DescentSweep, unit: Unit) -> pd.DataFrame:
    """Train the batch and measure where it ends; the sharpness of the start is there too."""
    depth, rate = unit.coordinates["depth"], unit.coordinates["learning_rate"]
    scales, repetitions = zip(*unit.coordinates["runs"], strict=True)
    problem = load(config.data, unit.coordinates["data"])
    readout = None
    if config.network == "residual":
        readout = initialize.unit_readout(run_key(config.seed, part="readout"), problem.dimension)
    own = [{"depth": depth, "scale": s, "repetition": r} for s, r in unit.coordinates["runs"]]
    nets = start_by_name(
        config.network,
        problem,
        run_keys(config.seed, own),  # each network from the key of its own coordinates
        depth=depth,
        width=config.width or problem.dimension,
        scale=np.asarray(scales),
        readout=readout,
        activation=config.activation,
    )
    run = gradient_descent(
        problem, nets, rate, config.steps, momentum=config.momentum, gap=config.gap
    )
    before, after = sharpness(problem, run.initial), sharpness(problem, run.network)
    return pd.DataFrame(
        {
            "depth": depth,
            "learning_rate": rate,
            "scale": scales,
            "repetition": repetitions,
            "status": run.status,
            "steps": np.asarray(run.steps, dtype=np.int64),
            "risk": np.asarray(run.evidence["risk"], dtype=np.float64),
            "distance": distance_to_optimum(problem, run.network),
            "initial_sharpness": np.asarray(before.value, dtype=np.float64),
            "sharpness": np.asarray(after.value, dtype=np.float64),
            "sharpness_error": np.asarray(after.error, dtype=np.float64),
        }
    )


DESCENT = Experiment(
    "descent",
    DescentSweep,
    units,
    run_unit,
    grid=("scales", "learning_rates", "depths", "repetitions", "runs_per_unit"),
)


@lru_cache(maxsize=4)
def load(data: SyntheticData | TableData, fingerprint: str) -> Problem:
    """Return the problem to train on, which must be the one the unit was made for."""
    if _fingerprint(data) != fingerprint:
        raise InputError(f"{data} is not the table with which this sweep began; start a new sweep.")
    options = asdict(data)
    if isinstance(data, TableData):
        return read_problem(options.pop("path"), **options).problem
    return synthetic.flat_minima(**options).problem


def _fingerprint(data: SyntheticData | TableData) -> str:
    """Return a hash of the content of a table, so that results of an older one are not reused."""
    if isinstance(data, SyntheticData):
        return ""
    content = hashlib.blake2b(digest_size=12)
    for path in sorted({piece.path for piece in open_table(data.path).pieces}):
        with Path(path).open("rb") as file:
            content.update(hashlib.file_digest(file, "blake2b").digest())
    return content.hexdigest()
