"""The setting of the FM figures: data sets, networks, and the authors' own starts.

The authors' code fixes every draw by JAX's key 0 in the older, non-partitionable form of the
generator; the places are those of `next` in the order in which it draws (see `marion_chizat_key`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from deeplin.errors import InputError
from deeplin.networks import Network, initialize
from deeplin.networks.initialize import start_by_name
from deeplin.problems.synthetic import (
    AUTHORS_DATA,
    Synthetic,
    flat_minima,
    marion_chizat,
    marion_chizat_key,
)
from deeplin.sweep import coordinate_words, run_key, run_keys
from deeplin.theory import minimal_sharpness
from deeplin.theory.minimizers import MinimalSharpness

_drawn, _authors = cache(flat_minima), cache(marion_chizat)
AUTHORS = -1
"""Seed that stands for the authors' own data set."""
DATA_SEEDS = tuple(range(10, 20))
"""Seeds of other data sets of the same kind, for FM-2-thresholds and Talk-log."""
ALL_DATA, FEW_DATA = (AUTHORS, *DATA_SEEDS), (AUTHORS, *DATA_SEEDS[:2])
"""The authors' data set and others: those of the full protocol, those of the quick preset."""
FLOOR = 1e-15
"""Squared distances below this are rounding."""
SAME = 0.97
"""Ratio of the lower bound to S_min from which both are drawn as one line."""
LEARNED = 0.01
"""A network with ‖w − w*‖² below this (the zero map has 1) has learned."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base class of the config of every study."""

    seed: int = 0
    unused: ClassVar[tuple[str, ...]] = ()
    """Fields of the setting that the study does not use."""


@dataclass(frozen=True, kw_only=True)
class OnDataSets(Config):
    """A config that is run on several data sets, of which the first is drawn in full."""

    data_seeds: tuple[int, ...] = (AUTHORS,)

    def split(self, table: Any) -> tuple[Any, Any]:
        """Return the rows of the first data set, and those of the others."""
        first = table["data_seed"] == self.data_seeds[0]
        return table[first], table[~first]


@dataclass(frozen=True)
class Setting:
    """Data and networks of an experiment (FM, Appendix C)."""

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
        """Return the fixed unit read-out of a residual network: the authors' own at seed 0."""
        if self.initialization == "gaussian":
            return None
        if seed == 0 and self.dimension == 5:
            return readout("FM-4")
        return np.asarray(initialize.unit_readout(run_key(seed, part="readout"), self.dimension))

    def networks(self, seed: int, runs: Iterable[Mapping[str, Any]], scales: Any) -> Network:
        """Return one network for each run, drawn from the run's own coordinates."""
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
    """Return the seed of a data set, from its coordinates."""
    high, low = coordinate_words(seed, **coordinates)
    return (high << 32) | low


@dataclass(frozen=True)
class InSetting(OnDataSets):
    """A config with one setting on several data sets."""

    setting: Setting
    """The setting; its own data set is not used."""
    unused: ClassVar[tuple[str, ...]] = ("data_seed",)

    def at(self, data_seed: int | None = None, **changes: Any) -> Setting:
        """Return the setting on this data set, or the first one, with some changes."""
        chosen = self.data_seeds[0] if data_seed is None else data_seed
        return replace(self.setting, data_seed=chosen, **changes)


class Protocol(NamedTuple):
    """A sweep as the authors ran it; these numbers determine how keys are split."""

    place: int
    """Place of its key in the chain."""
    depth: int
    width: int
    scales: tuple[float, ...]
    rates: tuple[tuple[float, int, int], ...]
    """Learning rate, steps and repetitions."""
    readout: int | None = None
    """Place of the key of the read-out; None for Gaussian networks, which have no read-out."""
    activation: str = "linear"


def _grid(low: float, high: float, count: int) -> tuple[float, ...]:
    return tuple(np.linspace(low, high, count).tolist())


RATES = (0.005, 0.02, 0.07, 0.1, 0.2)
DEPTHS = (5, 10, 20, 40)
"""Depths of FM-2."""
FM_2_RATES = tuple((rate, 1_000, 50) for rate in np.logspace(-2, -0.3, 25).tolist())
GAUSSIAN_RATES = tuple(
    zip(RATES, (40_000, 10_000, 4_000, 4_000, 2_000), (20, 20, 20, 20, 80), strict=True)
)
RESIDUAL_RATES = tuple((rate, 4_000, 20) for rate in RATES)
UNDERDETERMINED_RATES = ((0.001, 40_000, 100), (0.004, 10_000, 20), (0.01, 4_000, 20))
GELU_RATES = ((0.005, 160_000, 20), (0.02, 40_000, 20), (0.07, 16_000, 20))
SWEEPS = {
    "FM-1": Protocol(2, 10, 5, _grid(0.25, 0.6, 10), GAUSSIAN_RATES),
    "FM-4": Protocol(6, 10, 5, _grid(0.0, 1.7, 10), RESIDUAL_RATES, readout=5),
    "FM-6": Protocol(22, 5, 20, _grid(0.1, 0.36, 9), UNDERDETERMINED_RATES),
    "FM-7": Protocol(2, 10, 5, _grid(0.428, 0.7, 8), GELU_RATES, activation="gelu"),
} | {
    f"FM-2-{depth}": Protocol(10 + 3 * k, depth, 5, (0.25,), FM_2_RATES, readout=9 + 3 * k)
    for k, depth in enumerate(DEPTHS)
}


class Training(NamedTuple):
    """Place of the key, scale and steps of the single run of panels c and d."""

    place: int
    scale: float
    steps: int


TRAININGS = {"FM-1": Training(3, 0.35, 450), "FM-4": Training(7, 0.5, 400)}


def sweep_starts(name: str, learning_rate: float, repetitions: int) -> Network:
    """Return the authors' starts of a sweep at one rate, as a batch of scales by repetitions."""
    protocol = SWEEPS[name]
    rates = [rate for rate, *_ in protocol.rates]
    index = rates.index(learning_rate)
    _, steps, all_repetitions = protocol.rates[index]
    with jax.threefry_partitionable(False):
        key = jax.random.split(marion_chizat_key(protocol.place), len(rates))[index]
        keys = jax.random.split(key, all_repetitions)[:repetitions]
        split = partial(jax.random.split, num=len(protocol.scales))
        keys = jnp.swapaxes(jax.vmap(split)(keys), 0, 1)  # scales first
        keys = jax.lax.map(lambda key: jax.random.split(key, steps + 2)[-1], keys.reshape(-1, 2))
    return _networks(name, keys, np.repeat(protocol.scales, repetitions))


def training_start(name: str) -> Network:
    """Return the authors' start of panels c and d (FM-1 or FM-4)."""
    place, scale, steps = TRAININGS[name]
    with jax.threefry_partitionable(False):
        key = jax.random.split(marion_chizat_key(place), steps + 1)[-1]
    batch = _networks(name, key[None], np.array([scale]))
    return Network([weight[0] for weight in batch.weights], readout=batch.readout)


@cache
def readout(name: str) -> np.ndarray | None:
    """Return the authors' fixed read-out p, normalized in float32; None for Gaussian networks."""
    protocol = SWEEPS[name]
    if protocol.readout is None:
        return None
    with jax.threefry_partitionable(False):
        key = marion_chizat_key(protocol.readout)
        p = jax.random.normal(key, (protocol.width,), jnp.float32)
    return np.asarray(p / jnp.linalg.norm(p), np.float64)


def _networks(name: str, keys: Array, scales: np.ndarray) -> Network:
    """Return one network for each key and scale, drawn in float32 and kept in float64."""
    protocol = SWEEPS[name]
    d, depth, residual = protocol.width, protocol.depth, protocol.readout is not None

    normal = partial(jax.random.normal, dtype=jnp.float32)
    sizes = jnp.asarray(scales, jnp.float32)[:, None, None]
    with jax.threefry_partitionable(False):
        keys = jax.vmap(partial(jax.random.split, num=depth))(keys)  # networks, layers
        square = jax.vmap(jax.vmap(lambda key: normal(key, (d, d))))(keys)
        last = jax.vmap(lambda key: normal(key, (1, d)))(keys[:, -1])
    layers = [square[:, k] for k in range(depth)]
    if residual:
        sizes = sizes / jnp.sqrt(jnp.float32(depth * d))
        drawn = [jnp.eye(d, dtype=jnp.float32) + sizes * layer for layer in layers]
    else:
        drawn = [sizes * layer for layer in [*layers[:-1], last]]
    weights = [np.asarray(layer, np.float64) for layer in drawn]
    return Network(weights, None, readout(name), protocol.activation)
