"""The measured half of the users' figures: up to which rate descent settles beside a minimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from deeplin.dynamics import gradient_descent
from deeplin.networks import Network
from deeplin.papers.setting import AUTHORS, DATA_SEEDS
from deeplin.problems import Problem
from deeplin.sweep import coordinate_words
from deeplin.training.critical_rate import SECTIONS, largest_settling, perturbed

DATA_SETS = (AUTHORS, *DATA_SEEDS[:9])
"""The FM authors' own, which is drawn in full, and nine others of its recipe, drawn lightly."""
LIGHT = {"alpha": 0.25, "linewidth": 0.8, "markersize": 2.5, "zorder": 0}
CLOSE = 1e-4
"""Size of the deviation from the minimizer: its square is far above rounding in the objective."""
RESOLUTION = 0.005
"""Relative width of the interval in which a measured rate is known."""


def gaps(problem: Problem, networks: Network) -> np.ndarray:
    """R − R_min of each network of a batch."""
    products = np.asarray(networks.product).reshape(-1, problem.dimension, problem.outputs)
    return problem.gap(products)


def measured_rate(
    settles: Callable[[np.ndarray], np.ndarray], searched: tuple[float, float]
) -> float:
    """The largest rate in the interval `searched` that settles; NaN if none does.

    `settles` takes SECTIONS rates and says of each whether it does. The interval is one for the
    whole figure, so that the search knows nothing of the theory it is compared with.
    """
    ends = [searched[0]], [searched[1]]
    low, high, found = largest_settling(lambda r: settles(r[0])[None], *ends, RESOLUTION)
    return float(np.sqrt(low * high)[0]) if found[0] else float("nan")


def rate_beside(
    problem: Problem,
    network: Network,
    key: Array,
    searched: tuple[float, float],
    steps: int,
    *,
    height: Callable[[Problem, Network], np.ndarray] = gaps,
    layers: Any = None,
    **options: Any,
) -> float:
    """The largest rate at which descent from beside a network ends lower than it began.

    `height` is the gap, or what else is to become smaller. With `layers` each layer takes this
    multiple of the rate; `options` are those of descent.
    """
    moved = perturbed(network, key[None], CLOSE)
    # the same slightly moved network for every rate tried at once: only the rates differ
    near = jax.tree.map(lambda leaf: jnp.repeat(leaf, SECTIONS, axis=0), moved)
    before = height(problem, near)

    def settles(rates: np.ndarray) -> np.ndarray:
        chosen = rates if layers is None else tuple(rates * share for share in layers)
        run = gradient_descent(problem, near, chosen, steps, **options)
        return height(problem, run.network) <= before

    return measured_rate(settles, searched)


def other_minimizers(network: Network, seed: int, spreads: Any) -> list[Network]:
    """W_{k+1}G^{-1}, GW_k with G = I + spread·N/√m for each spread: the same product."""
    rng = np.random.default_rng(coordinate_words(seed, part="minimizers"))
    found = []
    for spread in spreads:
        weights = [np.asarray(weight) for weight in network.weights]
        for k in range(len(weights) - 1):
            m = len(weights[k])
            G = np.eye(m) + spread * rng.normal(size=(m, m)) / np.sqrt(m)
            weights[k], weights[k + 1] = G @ weights[k], weights[k + 1] @ np.linalg.inv(G)
        found.append(Network(weights))
    return found
