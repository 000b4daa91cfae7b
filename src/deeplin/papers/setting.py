"""The setting shared by the FM suite: its data set, networks and reference values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from deeplin.errors import InputError
from deeplin.networks import Network, initialize
from deeplin.networks.initialize import start_by_name
from deeplin.papers.marion_chizat_starts import readout
from deeplin.problems.synthetic import AUTHORS_DATA, Synthetic, flat_minima, marion_chizat
from deeplin.sweep import coordinate_words, run_key, run_keys
from deeplin.theory import MinimalSharpness, minimal_sharpness

_drawn, _authors = cache(flat_minima), cache(marion_chizat)
AUTHORS = -1
"""Stands for the seed of the authors' own data set."""
DATA_SEEDS = tuple(range(10, 20))
"""Other data sets of the same recipe, for the robustness panels."""


def data_name(seed: int) -> str:
    """What a data set is called in a picture or an answer."""
    return "the authors'" if seed == AUTHORS else str(seed)


@dataclass(frozen=True)
class Setting:
    """Which data, and which networks on them (FM, Appendix C)."""

    initialization: Literal["gaussian", "residual"] = "gaussian"
    activation: Literal["linear", "gelu"] = "linear"
    samples: int = 50
    dimension: int = 5
    depth: int = 10
    noise: float = 1.0
    data_seed: int = AUTHORS

    @property
    def data(self) -> Synthetic:
        """The data set with its test set; drawn once for each process."""
        if self.data_seed == AUTHORS:
            shape = (self.samples, self.dimension, self.noise)
            names = [name for name, row in AUTHORS_DATA.items() if row[1:] == shape]
            if not names:
                raise InputError(f"the FM authors have no data of shape {shape}; pass a data_seed.")
            return _authors(names[0])  # pyright: ignore[reportArgumentType]
        size = {"samples": self.samples, "dimension": self.dimension}
        return _drawn(self.data_seed, **size, noise=self.noise)

    def readout(self, seed: int) -> np.ndarray | None:
        """The fixed unit read-out of a residual network: the authors' own at seed 0."""
        if self.initialization == "gaussian":
            return None
        if seed == 0 and self.dimension == 5:
            return readout("FM-4")
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
        """8LΛ‖w*‖^{2−2/L}: where flow from a small initialization can end (FM-C2)."""
        problem = self.data.problem
        factor = problem.optimum_norm ** (2 - 2 / self.depth)
        return 8 * self.depth * problem.largest_eigenvalue * factor


def data_seed(seed: int, **coordinates: Any) -> int:
    """The seed of a data set, from its coordinates."""
    high, low = coordinate_words(seed, **coordinates)
    return (high << 32) | low
