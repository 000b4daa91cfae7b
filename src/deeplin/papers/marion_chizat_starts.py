"""The initial weights and read-outs of the FM authors' own runs, drawn again from their keys.

Their code fixes every draw by JAX's key 0 in the older, non-partitionable form of the generator.
The places are those of `next` in the order in which it draws (see `marion_chizat_key`).
"""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from deeplin.networks import Network
from deeplin.problems.synthetic import marion_chizat_key


class Protocol(NamedTuple):
    """A sweep as the authors ran it: the keys are split by these numbers."""

    place: int
    """Of its key in the chain."""
    depth: int
    width: int
    scales: tuple[float, ...]
    rates: tuple[tuple[float, int, int], ...]
    """Learning rate, steps and repetitions."""
    readout: int | None = None
    """Place of the key of the read-out; None for Gaussian networks, which have none."""
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
SWEEPS = {
    "FM-1": Protocol(2, 10, 5, _grid(0.25, 0.6, 10), GAUSSIAN_RATES),
    "FM-4": Protocol(6, 10, 5, _grid(0.0, 1.7, 10), RESIDUAL_RATES, readout=5),
    "FM-6": Protocol(
        22,
        5,
        20,
        _grid(0.1, 0.36, 9),
        ((0.001, 40_000, 100), (0.004, 10_000, 20), (0.01, 4_000, 20)),
    ),
    "FM-7": Protocol(
        2,
        10,
        5,
        _grid(0.428, 0.7, 8),
        ((0.005, 160_000, 20), (0.02, 40_000, 20), (0.07, 16_000, 20)),
        activation="gelu",
    ),
} | {
    f"FM-2-{depth}": Protocol(10 + 3 * k, depth, 5, (0.25,), FM_2_RATES, readout=9 + 3 * k)
    for k, depth in enumerate(DEPTHS)
}
TRAININGS = {"FM-1": (3, 0.35, 450), "FM-4": (7, 0.5, 400)}
"""Place of the key, scale and steps of the single runs of panels c and d."""


def sweep_starts(name: str, learning_rate: float, repetitions: int) -> Network:
    """The authors' starts of a sweep at one rate: a batch over scales, then first repetitions."""
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
    """The authors' start of panels c and d (FM-1 or FM-4)."""
    place, scale, steps = TRAININGS[name]
    with jax.threefry_partitionable(False):
        key = jax.random.split(marion_chizat_key(place), steps + 1)[-1]
    batch = _networks(name, key[None], np.array([scale]))
    return Network([weight[0] for weight in batch.weights], batch.readout)


@cache
def readout(name: str) -> np.ndarray | None:
    """The authors' fixed read-out p: normal, normalised in float32; None for Gaussian networks."""
    protocol = SWEEPS[name]
    if protocol.readout is None:
        return None
    with jax.threefry_partitionable(False):
        key = marion_chizat_key(protocol.readout)
        p = jax.random.normal(key, (protocol.width,), jnp.float32)
    return np.asarray(p / jnp.linalg.norm(p), np.float64)


def _networks(name: str, keys: Array, scales: np.ndarray) -> Network:
    """One network for each key and scale, drawn in float32 and kept in float64."""
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
    return Network(weights, readout(name), protocol.activation)
