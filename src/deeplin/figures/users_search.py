"""The measured half of the users' figures: up to which rate descent settles beside a minimiser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from deeplin.figures.claims import Claim
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.training.critical_rate import SECTIONS, largest_settling, perturbed

RESOLUTION = 0.005
"""Relative width of the interval in which a measured rate is known."""


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


def copies_beside(network: Network, key: Array, size: float, count: int = SECTIONS) -> Network:
    """The same slightly moved network `count` times, so that only the rates differ."""
    moved = perturbed(network, key[None], size)
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, count, axis=0), moved)


def gaps(problem: Problem, networks: Network) -> np.ndarray:
    """R − R_min of each network of a batch."""
    eigenvalues, vectors, coordinates = problem.spectrum
    products = np.asarray(networks.product).reshape(-1, problem.dimension, problem.outputs)
    return np.einsum("d,bdq->b", eigenvalues, (vectors.T @ products - coordinates) ** 2)


def penalty(network: Network) -> np.ndarray:
    """Σ_k‖W_k‖_F² of each network of a batch."""
    squares = [np.sum(np.asarray(weight) ** 2, axis=(-2, -1)) for weight in network.weights]
    return np.sum(squares, axis=0)


def agreement(sentence: str, measured: Mapping[str, float], name: str = "rate") -> Claim:
    """That measured over exact rates are 1, to what a search and finitely many steps can tell."""
    reason = "The search stops at 0.5%, and finitely many steps cost as much again."
    return Claim(sentence, measured, lower=0.98, upper=1.01, name=name, reason=reason)


def ratios(table: Any, names: Mapping[str, str], above: str, below: str) -> dict[str, float]:
    """above/below of every row, under a name made of its columns: `{"depth": "L = {}"}`."""
    rows = table[[*names]].to_dict("records")
    labels = [", ".join(text.format(row[name]) for name, text in names.items()) for row in rows]
    return dict(zip(labels, (table[above] / table[below]).to_numpy(), strict=True))
