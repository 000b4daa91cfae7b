"""X-batch: the critical learning rate against the batch size (X-10)."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network
from deeplin.papers.figures import Answers, Table, define_study
from deeplin.papers.setting import DATA_SEEDS, OnDataSets, Setting
from deeplin.papers.x_rates import LIGHT, gaps, measured_rate, other_minimizers, plot_other_data
from deeplin.plot_style import INK, series
from deeplin.problems import Problem
from deeplin.sweep import coordinate_words, run_key
from deeplin.theory import minimal_sharpness, minimal_stochastic_sharpness, stochastic_sharpness
from deeplin.training.critical_rate import perturbed

CLOSE = 1e-6
"""Size of the initial deviation from the minimizer, small enough for the linear theory."""
DATA_SETS = DATA_SEEDS
"""Seeds of data sets; these have fewer samples and dimensions than the authors'."""
SEARCHED = (0.05, 1.0)
BURN_IN = 12
"""Number of initial steps whose growth is discarded."""
SINGLE = 300
"""Number of steps of the single runs, which are without selection."""


@dataclass(frozen=True)
class BatchSizes(OnDataSets):
    """Batch sizes, noiseless data sets, and how much is simulated."""

    sizes: tuple[int, ...]
    networks: int
    """Number of networks simulated at each rate."""
    steps: int
    """Number of steps, with a selection after each."""
    minimizers: int
    """Random minimizers that are compared with the flattest one."""
    depth: int = 3
    samples: int = 20
    dimension: int = 4


def _data(config: BatchSizes, data_seed: int) -> Problem:
    n, d = config.samples, config.dimension
    return Setting(samples=n, dimension=d, noise=0.0, data_seed=data_seed).data.problem


def run_cell(config: BatchSizes, data_seed: int, batch_size: int) -> list[dict[str, float]]:
    """Return the certified rate, the two simulated ones, and the best rate of random minimizers."""
    problem = _data(config, data_seed)
    full = minimal_sharpness(problem, config.depth)
    exact = minimal_stochastic_sharpness(problem, config.depth, batch_size)
    ensemble = Ensemble(problem, exact.minimizer, data_seed, batch_size, config)
    spreads = np.linspace(0.02, 1.0, config.minimizers)
    row = {
        "exact": 2 / exact.exact,
        "highest": 2 / exact.lower,
        "full": full.critical_learning_rate(),
        "mean_square": measured_rate(lambda rates: ensemble.growth(rates) <= 0, SEARCHED),
        "median": measured_rate(lambda rates: ensemble.median_growth(rates) <= 0, SEARCHED),
        "others": max(
            stochastic_sharpness(problem, other, batch_size).critical_learning_rate
            for other in other_minimizers(full.minimizer, config.seed, spreads)
        ),
    }
    return [row]


@dataclass(frozen=True)
class Ensemble:
    """Networks near one minimizer, trained on batches by the library's descent.

    The second moment of the error is dominated by rare excursions, which a plain average over runs
    misses: if one sample is far larger than the others, these are the runs that draw it repeatedly.
    So after every step the networks are resampled in proportion to their squared error (the gap)
    and rescaled to the initial distance: the product of the mean growths is then that of the second
    moment.
    """

    problem: Problem
    minimizer: Network
    data_seed: int
    size: int
    config: BatchSizes

    @property
    def runs(self) -> int:
        """Number of networks at each rate; one for the full batch, where nothing is random."""
        return 1 if self.size == self.config.samples else self.config.networks

    @property
    def _first_gap(self) -> float:
        return CLOSE**2 * self.problem.zero_gap

    def growth(self, rates: np.ndarray) -> np.ndarray:
        """Return the growth of the logarithm of the mean square for each step, at each rate."""
        words = coordinate_words(self.config.seed, **self._coordinates("draw"))
        runs, rng = self.runs, np.random.default_rng(words)
        networks = self._start(len(rates))
        total = np.zeros(len(rates))
        for step in range(self.config.steps):
            networks = self._train(networks, np.repeat(rates, runs), 1, step)
            grown = gaps(self.problem, networks).reshape(-1, runs)
            total += np.log(np.mean(grown, axis=1) / self._first_gap) * (step >= BURN_IN)
            places = (rng.random() + np.arange(runs)) / runs
            chosen = np.concatenate([k * runs + _selected(p, places) for k, p in enumerate(grown)])
            networks = self._rescaled(networks, chosen, grown.ravel()[chosen])
        return total / (self.config.steps - BURN_IN)

    def median_growth(self, rates: np.ndarray) -> np.ndarray:
        """Return the growth of the median run, without selection.

        This is what one observes in a single run.
        """
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

    def _rescaled(self, networks: Network, chosen: np.ndarray, squares: np.ndarray) -> Network:
        """Return the chosen networks with their deviations scaled to the first size."""
        shrink = np.sqrt(self._first_gap / squares)[:, None, None]
        pairs = zip(self.minimizer.weights, networks.weights, strict=True)
        return Network([w + shrink * (np.asarray(v)[chosen] - w) for w, v in pairs])

    def _keys(self, part: int | str, networks: int) -> Array:
        """Return keys that are the same for every rate, to compare rates on the same batches."""
        key = run_key(self.config.seed, **self._coordinates(part))
        return jnp.tile(jax.random.split(key, self.runs), networks // self.runs)

    def _coordinates(self, part: int | str) -> dict[str, int | str]:
        return {"data_seed": self.data_seed, "batch_size": self.size, "part": part}


def _selected(weights: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return indices in proportion to these weights, by systematic resampling."""
    return np.minimum(np.searchsorted(np.cumsum(weights / weights.sum()), places), len(weights) - 1)


def answers(config: BatchSizes, table: Table) -> Answers:
    """Answer how X-10 compares with simulation and its certificate, and what single runs do."""
    full = table[table["batch_size"] == config.samples]
    some = table[table["batch_size"] < config.samples]
    return {
        "mean square": {
            "simulated": table["mean_square"] / table["exact"],
            "known": (table["highest"] / table["exact"] - 1).max(),
            "full": (full["exact"] / full["full"] - 1).abs().max(),
            "others": table["others"] / table["highest"],
        },
        "single runs": {"median": some["median"] / some["exact"]},
    }


def plot(config: BatchSizes, table: Table, ax: Axes) -> None:
    """Plot the exact curve with the simulated thresholds, in units of the full-batch rate.

    Only the first data set has labels and the best random minimizer.
    """
    styles = {
        "exact": {"color": INK, "zorder": 1, "label": r"exact, $2/S_{\min}(B)$"},
        "mean_square": series(0, linestyle="", label="simulated: mean square"),
        "median": series(1, linestyle="", label="simulated: median run"),
        "others": series(2, linestyle=":", label="best random minimizer"),
    }
    for data_seed, rows in table.sort_values("batch_size").groupby("data_seed"):
        first = data_seed == config.data_seeds[0]
        relative = rows.set_index("batch_size")[[*styles]].div(rows["full"].to_numpy(), axis=0)
        for column in [*styles] if first else [*styles][:3]:
            light = {} if first else LIGHT | {"label": None}
            ax.plot(relative[column], **styles[column] | light)
    plot_other_data(ax, config)
    ax.set_ylim(bottom=0)


STUDY = define_study(
    "x-batch",
    run_cell,
    {"data_seed": "data_seeds", "batch_size": "sizes"},
    paper=BatchSizes((1, 2, 4, 7, 12, 20), 200, 72, 100, data_seeds=DATA_SETS),
    quick={
        "sizes": (1, 4, 20), "networks": 100, "steps": 44, "minimizers": 30,
        "data_seeds": DATA_SETS[:3],
    },
)  # fmt: skip
