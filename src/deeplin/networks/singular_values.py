"""Extreme singular values of stacks of matrices, by LAPACK on all cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from deeplin.parallel import map_in_threads, thread_count

STACK = 2000
"""Matrices that are worth a thread of their own."""


class Extremes(NamedTuple):
    """Largest and smallest singular value, and the vectors u, v of the largest."""

    largest: np.ndarray
    smallest: np.ndarray
    left: np.ndarray
    right: np.ndarray


def extreme_singular(matrices: np.ndarray) -> Extremes:
    """Return the extremes of a stack of matrices (…, m, n); the smallest is over min(m, n) values.

    Values of a matrix that is not finite are NaN.
    """
    u, s, v = _by_parts(lambda part: np.linalg.svd(part, full_matrices=False), matrices)
    return Extremes(s[..., 0], s[..., -1], u[..., :, 0], v[..., 0, :])


def extreme_values(matrices: np.ndarray) -> np.ndarray:
    """Return the largest and smallest singular value of each matrix of a stack, as (…, 2)."""
    return _by_parts(lambda part: (_extremes_by_gram(part),), matrices)[0]


def _extremes_by_gram(matrices: np.ndarray) -> np.ndarray:
    """As roots of eigenvalues of WᵀW, which take half the time of singular values.

    The square costs the digits of a small σ_min: those matrices are decomposed themselves.
    """
    size = np.max(np.abs(matrices), axis=(1, 2), keepdims=True)
    scaled = matrices / np.where(size > 0, size, 1)  # squares of large entries would overflow
    wide = matrices.shape[2] > matrices.shape[1]
    squares = np.linalg.eigvalsh(scaled @ scaled.mT if wide else scaled.mT @ scaled)[:, [-1, 0]]
    values, poor = np.sqrt(np.maximum(squares, 0)), squares[:, 1] < 1e-3 * squares[:, 0]
    values[poor] = np.linalg.svd(scaled[poor], compute_uv=False)[:, [0, -1]]
    return values * size[:, 0]


def extremes_of_layers(layers: Sequence[np.ndarray]) -> list[Extremes]:
    """Return the extremes of each layer of a batch (…, d_k, d_{k−1})."""
    found = _by_shape(layers, extreme_singular)
    return [Extremes(*(part[place] for part in together)) for together, place in found]


def values_of_layers(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Return the largest and smallest singular value of each of L layers, as (…, L, 2)."""
    found = _by_shape(layers, extreme_values)
    return np.stack([together[place] for together, place in found], axis=-2)


def _by_shape(layers: Sequence[np.ndarray], function: Callable) -> list[tuple[Any, int]]:
    """Return for each layer the result for all layers of its shape, and its place therein."""
    found: dict[int, tuple[Any, int]] = {}
    for shape in {layer.shape for layer in layers}:
        members = [k for k, layer in enumerate(layers) if layer.shape == shape]
        together = function(np.stack([layers[k] for k in members]))
        found |= {k: (together, place) for place, k in enumerate(members)}
    return [found[k] for k in range(len(layers))]


def _by_parts(function: Callable, matrices: np.ndarray) -> list[np.ndarray]:
    """Apply a decomposition to a stack, split over threads; NaN where a matrix is not finite."""
    *stack, m, n = matrices.shape
    flat = np.asarray(matrices, np.float64).reshape(-1, m, n)
    finite = np.logical_and.reduce(np.isfinite(flat), axis=(1, 2))
    if not finite.all():  # LAPACK would refuse the whole stack
        flat = np.where(finite[:, None, None], flat, 0)
    count = min(thread_count(), max(1, len(flat) // STACK))
    parts = map_in_threads(function, np.array_split(flat, count))
    found = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if not finite.all():
        for column in found:
            column[~finite] = np.nan
    return [column.reshape(*stack, *column.shape[1:]) for column in found]
