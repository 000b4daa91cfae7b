"""X-batch: the critical learning rate against the batch size (X-10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network
from deeplin.papers.figures import Figure, Study, Table, grid_experiment, our_panel
from deeplin.papers.question import Question, extent, number
from deeplin.papers.setting import DATA_SEEDS, Setting
from deeplin.papers.style import INK, legend_below, look, plain_numbers
from deeplin.papers.x_search import LIGHT, gaps, measured_rate, other_minimizers
from deeplin.problems import Problem
from deeplin.sweep import coordinate_words, run_key
from deeplin.theory import minimal_sharpness, minimal_stochastic_sharpness, stochastic_sharpness
from deeplin.training.critical_rate import perturbed

CLOSE = 1e-6
"""Size of the first deviation from the minimizer: small enough for the linear theory."""
DATA_SETS = DATA_SEEDS
"""Of fewer samples and dimensions than the authors', so none is theirs."""
SEARCHED = (0.05, 1.0)
HEATING = 12
"""Steps in which the cloud forgets its start."""
SINGLE = 300
"""Steps of the single runs, which are not selected."""


@dataclass(frozen=True)
class BatchSizes:
    """Batch sizes, noiseless data sets, and how much is simulated."""

    sizes: tuple[int, ...]
    networks: int
    """Simulated at each rate."""
    steps: int
    """With a selection after each."""
    minimizers: int
    """Random minimizers that are compared with the flattest one."""
    depth: int = 3
    samples: int = 20
    dimension: int = 4
    data_seeds: tuple[int, ...] = DATA_SETS
    """The first is drawn in full."""
    seed: int = 0


def _data(config: BatchSizes, data_seed: int) -> Problem:
    n, d = config.samples, config.dimension
    return Setting(samples=n, dimension=d, noise=0.0, data_seed=data_seed).data.problem


def run_cell(config: BatchSizes, data_seed: int, batch_size: int) -> list[dict[str, float]]:
    """The certified rate, the two simulated ones, and the best rate of random minimizers."""
    problem = _data(config, data_seed)
    full = minimal_sharpness(problem, config.depth)
    exact = minimal_stochastic_sharpness(problem, config.depth, batch_size)
    cloud = Cloud(problem, exact.minimizer, data_seed, batch_size, config)
    spreads = np.linspace(0.02, 1.0, config.minimizers)
    row = {
        "exact": 2 / exact.exact,
        "highest": 2 / exact.lower,
        "full": full.critical_learning_rate(),
        "mean_square": measured_rate(lambda rates: cloud.growth(rates) <= 0, SEARCHED),
        "median": measured_rate(lambda rates: cloud.median_growth(rates) <= 0, SEARCHED),
        "others": max(
            stochastic_sharpness(problem, other, batch_size).critical_learning_rate
            for other in other_minimizers(full.minimizer, config.seed, spreads)
        ),
    }
    return [row]


@dataclass(frozen=True)
class Cloud:
    """Networks beside one minimizer, trained on batches by the library's own descent.

    The second moment of the error is carried by rare excursions, which a plain average over runs
    misses: where one sample is far larger than the others they are the runs that meet it again and
    again. So after every step the networks are drawn again in proportion to their squared error
    (the gap) and brought back to the first distance: the product of the mean growths is then that
    of the second moment.
    """

    problem: Problem
    minimizer: Network
    data_seed: int
    size: int
    config: BatchSizes

    @property
    def runs(self) -> int:
        """Networks at each rate; with the full batch nothing is drawn, and one says it all."""
        return 1 if self.size == self.config.samples else self.config.networks

    @property
    def _first_gap(self) -> float:
        return CLOSE**2 * self.problem.zero_gap

    def growth(self, rates: np.ndarray) -> np.ndarray:
        """Growth of the logarithm of the mean square for each step, at each rate."""
        words = coordinate_words(self.config.seed, **self._coordinates("draw"))
        runs, rng = self.runs, np.random.default_rng(words)
        networks = self._start(len(rates))
        total = np.zeros(len(rates))
        for step in range(self.config.steps):
            networks = self._train(networks, np.repeat(rates, runs), 1, step)
            grown = gaps(self.problem, networks).reshape(-1, runs)
            total += np.log(np.mean(grown, axis=1) / self._first_gap) * (step >= HEATING)
            places = (rng.random() + np.arange(runs)) / runs
            chosen = np.concatenate([k * runs + _selected(p, places) for k, p in enumerate(grown)])
            networks = self._brought_back(networks, chosen, grown.ravel()[chosen])
        return total / (self.config.steps - HEATING)

    def median_growth(self, rates: np.ndarray) -> np.ndarray:
        """The same for the median run, without selection: what one sees of a single run."""
        runs, networks = self.runs, self._start(len(rates))
        start = gaps(self.problem, networks)
        end = gaps(self.problem, self._train(networks, np.repeat(rates, runs), SINGLE, "single"))
        return np.median(np.log(end / start).reshape(-1, runs), axis=1) / SINGLE

    def _start(self, rates: int) -> Network:
        return perturbed(self.minimizer, self._keys("start", rates * self.runs), CLOSE)

    def _train(self, networks: Network, rates: np.ndarray, steps: int, part: int | str) -> Network:
        keys = self._keys(part, len(rates))
        return gradient_descent(
            self.problem, networks, rates, steps, batch_size=self.size, key=keys
        ).network

    def _brought_back(self, networks: Network, chosen: np.ndarray, squares: np.ndarray) -> Network:
        """The chosen networks with their deviations scaled to the first size."""
        shrink = np.sqrt(self._first_gap / squares)[:, None, None]
        pairs = zip(self.minimizer.weights, networks.weights, strict=True)
        return Network([w + shrink * (np.asarray(v)[chosen] - w) for w, v in pairs])

    def _keys(self, part: int | str, networks: int) -> Array:
        """The same for every rate, so that the growth is compared on the same batches."""
        key = run_key(self.config.seed, **self._coordinates(part))
        return jnp.tile(jax.random.split(key, self.runs), networks // self.runs)

    def _coordinates(self, part: int | str) -> dict[str, int | str]:
        return {"data_seed": self.data_seed, "batch_size": self.size, "part": part}


def _selected(weights: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Systematic resampling: indices in proportion to these weights."""
    return np.minimum(np.searchsorted(np.cumsum(weights / weights.sum()), places), len(weights) - 1)


def questions(config: BatchSizes, table: Table) -> list[Question]:
    """X-10 against simulation, its certificate, and what single runs do."""
    some = table[table["batch_size"] < config.samples]
    full = table[table["batch_size"] == config.samples]
    return [
        Question(
            "mean square",
            "Is the mean square stable exactly up to 2/S_min(B) (X-10)?",
            f"The simulated threshold is {extent(table['mean_square'] / table['exact'])} of it "
            f"({config.networks} networks are a sample of a heavy-tailed law). S_min(B) is known "
            f"within {number((table['highest'] / table['exact'] - 1).max())}, and at B = n it is "
            f"X-2 within {number((full['exact'] / full['full'] - 1).abs().max())}; the best of "
            f"{config.minimizers} random minimizers bears "
            f"{extent(table['others'] / table['highest'])} of the rate.",
        ),
        Question(
            "single runs",
            "Do single runs settle above it?",
            f"Yes: the median run settles up to {extent(some['median'] / some['exact'])} of it, "
            "since rare excursions carry the mean.",
        ),
    ]


def plot(config: BatchSizes, table: Table, ax: Axes) -> None:
    """The exact curve with the simulated thresholds, in units of the full-batch rate."""
    table = table.sort_values("batch_size")
    relative = table[["exact", "mean_square", "median", "others"]].div(table["full"], axis=0)
    relative["batch_size"] = table["batch_size"]
    for data_seed, rows in relative.groupby(table["data_seed"]):
        shown = data_seed == config.data_seeds[0]
        _plot_one(ax, rows, {} if shown else LIGHT, labelled=shown)
    ax.plot([], [], color=INK, label=f"{len(config.data_seeds) - 1} other data sets", **LIGHT)
    ax.set_xscale("log")
    ax.set(xlabel="Batch size B", ylabel=r"Critical rate relative to $2/S_{\min}$", ylim=(0, None))
    plain_numbers(ax.xaxis)
    legend_below(ax)


def _plot_one(ax: Axes, rows: Table, style: dict[str, Any], labelled: bool) -> None:
    """One data set; only a labelled one has the best random minimizer, too."""
    curves = (
        ("exact", r"exact, $2/S_{\min}(B)$", {"color": INK, "zorder": 1}),
        ("mean_square", "simulated: mean square", look(0, linestyle="")),
        ("median", "simulated: median run", look(1, linestyle="")),
        ("others", "best random minimizer", look(2, linestyle=":")),
    )
    for column, label, own in curves if labelled else curves[:3]:
        ax.plot(
            rows["batch_size"], rows[column], label=label if labelled else None, **(own | style)
        )


AXES = {"data_seed": "data_seeds", "batch_size": "sizes"}
BATCH_SIZES = grid_experiment("batch-sizes", BatchSizes, run_cell, AXES)
X_BATCH = Figure(
    "X-batch",
    "The critical learning rate against the batch size",
    (
        our_panel(
            "X-batch",
            "Critical learning rate of mini-batch descent against the batch size, n = 20: exact "
            "(X-10), by simulation of the mean square and of the median run, and the best of "
            "random minimizers, on ten data sets (quick: three); one is drawn in full, the "
            "others lightly.",
            Study(
                "x-batch",
                BATCH_SIZES,
                paper=BatchSizes((1, 2, 4, 7, 12, 20), 200, 72, 100),
                quick=BatchSizes((1, 4, 20), 100, 44, 30, data_seeds=DATA_SETS[:3]),
            ),
            plot,
            questions,
            size=(5.2, 4.0),
        ),
    ),
    printed="Not in the papers, which train on the full batch.",
    as_run="Noiseless data sets of the recipe of FM-1 (n = 20, d = 4), depth 3. Networks start "
    "within 1e-6 of the minimizer that attains S_min(B) and are trained on batches drawn afresh at "
    "every step; after each they are drawn again in proportion to their squared error and brought "
    "back to the first distance. A search in the rate finds where the mean square stops shrinking.",
)
