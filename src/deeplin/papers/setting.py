"""The setting shared by the FM suite: its data set, networks and reference values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from deeplin.networks import Network, initialize
from deeplin.networks.initialize import start_by_name
from deeplin.problems.synthetic import Synthetic, flat_minima
from deeplin.sweep import coordinate_words, run_key, run_keys
from deeplin.theory import MinimalSharpness, minimal_sharpness

_drawn = cache(flat_minima)
DATA_SEED = 9
"""One data set for the whole FM suite. The authors' is not published; this one, like theirs, has
its critical learning rate between the printed rates 0.1 and 0.2."""
DATA_SEEDS = tuple(range(10, 20))
"""Data sets of the same recipe, none of them the one of the figures."""


@dataclass(frozen=True)
class Setting:
    """Which data, and which networks on them (FM, Appendix C)."""

    initialization: Literal["gaussian", "residual"] = "gaussian"
    activation: Literal["linear", "gelu"] = "linear"
    samples: int = 50
    dimension: int = 5
    depth: int = 10
    noise: float = 1.0
    data_seed: int = DATA_SEED

    @property
    def data(self) -> Synthetic:
        """The data set with its test set; drawn once for each process."""
        size = {"samples": self.samples, "dimension": self.dimension}
        return _drawn(self.data_seed, **size, noise=self.noise)

    def readout(self, seed: int) -> np.ndarray | None:
        """The fixed read-out of a residual network: a random unit vector, one for each seed."""
        if self.initialization == "gaussian":
            return None
        return np.asarray(initialize.unit_readout(run_key(seed, part="readout"), self.dimension))

    def networks(self, seed: int, runs: Iterable[Mapping[str, Any]], scales: Any) -> Network:
        """One network for each run, drawn from the run's own coordinates."""
        return start_by_name(
            self.initialization,
            self.data.problem,
            run_keys(seed, runs),
            depth=self.depth,
            width=self.dimension,
            scale=scales,
            readout=self.readout(seed),
            activation=self.activation,
        )

    @property
    def flattest(self) -> MinimalSharpness:
        """The minimal sharpness of this data and depth (X-2); read-outs have unit norm."""
        return minimal_sharpness(self.data.problem, self.depth)

    @property
    def upper_bound(self) -> float:
        """8LΛ‖w*‖^{2−2/L}: where flow from a small initialisation can end (FM-C2)."""
        problem = self.data.problem
        factor = problem.optimum_norm ** (2 - 2 / self.depth)
        return 8 * self.depth * problem.largest_eigenvalue * factor


def data_seed(seed: int, **coordinates: Any) -> int:
    """The seed of a data set, from its coordinates."""
    high, low = coordinate_words(seed, **coordinates)
    return (high << 32) | low
