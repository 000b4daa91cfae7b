"""The largest eigenvalues of the Hessian with their vectors, its layers' blocks, its gradient."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PyTree

from deeplin.errors import InputError, positive_number, validated, whole_number
from deeplin.hessian import lanczos
from deeplin.hessian.exact import ROUNDING, Tangent, gauss_newton
from deeplin.hessian.operators import (
    Hessian,
    ReducedHessian,
    as_batch,
    check_subject,
    eigen,
    extent,
    full_hessian,
    has_reduced_hessian,
    hessian_of,
    is_linear,
)
from deeplin.hessian.result import HessianSpectrum
from deeplin.networks import Loss, Network, explain_loss_errors, gap_and_gradient, host_arrays
from deeplin.problems import Problem

DENSE = 400
"""Up to this size the matrix is formed and all of its eigenvalues are found at once."""
PIECE = 64
"""Networks whose matrices are in memory at the same time."""


@validated
def hessian_spectrum(
    problem: Problem | Loss,
    network: PyTree,
    *,
    count: int = 5,
    tolerance: float | None = None,
) -> HessianSpectrum:
    """The `count` largest eigenvalues of the Hessian of the risk, with vectors and error bounds.

    At minimisers of a linear network all nonzero eigenvalues are those of the small matrix of X-1,
    2 Σ_k (B_kᵀB_k) ⊗ (V_kᵀV_k), and exact (`method` says so). Elsewhere the matrix is formed, for
    linear networks with one output in the coordinates of its range; beyond 400 dimensions
    Lanczos finds one eigenvalue after another, each certified.

    Arguments:
        problem: a `Problem`, or any differentiable loss: a function from a pytree to a scalar; for
            a PyTorch module a `TorchLoss`.
        network: a `Network` or a batch of them, or for a loss of your own any pytree, or a PyTorch
            module.
        count: how many eigenvalues, largest first.
        tolerance: error wanted, relative to the norm of the Hessian.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    h = dl.hessian_spectrum(problem, net, count=3)
    h.values, h.errors, h.vectors.shape, h.trace, h.layers
    ```
    """
    check_subject(problem, network)
    with explain_loss_errors(problem, network):
        result = spectra(problem, as_batch(network), count=count, tolerance=tolerance)
    batched = isinstance(network, Network) and network.batch is not None
    return result if batched else result.member(0)


def spectra(
    problem: Problem | Loss, trees: PyTree, *, count: int, tolerance: float | None = None
) -> HessianSpectrum:
    """`hessian_spectrum` of trees whose arrays have a leading batch axis."""
    (batch, size), dtype = extent(trees)
    count = whole_number("count", count)
    if count > size:
        raise InputError(
            f"count is {count}; the Hessian has {size} eigenvalues, pass at most that."
        )
    default = float(np.finfo(dtype).eps) ** (2 / 3)
    tolerance = positive_number("tolerance", default if tolerance is None else tolerance)
    with np.errstate(invalid="ignore", over="ignore"):
        found = _at_minimizers(problem, trees, count, tolerance)
        if found is None:
            found = _in_pieces(problem, trees, batch, count, tolerance)
    values, errors, vectors, method = found
    with np.errstate(invalid="ignore", over="ignore"):  # a diverging run may get there
        slope = _gradients(problem, trees)
        aligned = (vectors @ slope[:, :, None])[..., 0] ** 2 / np.sum(slope**2, axis=1)[:, None]
        trace, layers = blocks(problem, trees)
    return HessianSpectrum(values, errors, vectors, aligned, trace, layers, method)


# --- eigenvalues -----------------------------------------------------------------------------


def _at_minimizers(problem, trees, count: int, tolerance: float):
    """X-1 with its vectors √(2/μ) V_k Yᵀ B_kᵀ, unless some network is too far from a minimiser."""
    if not is_linear(problem, trees):
        return None
    rank, outputs = problem.spectrum.coordinates.shape
    if count > rank * outputs:
        return None
    tangent = Tangent.of(problem, *host_arrays(trees))
    matrices, error = gauss_newton(tangent)
    if not np.all(np.isfinite(error)):
        return None
    values, small = np.linalg.eigh(matrices)
    error = error + matrices.shape[1] * ROUNDING * values[:, -1]
    if np.any(error > tolerance * values[:, -1]):
        return None
    values, small = values[:, : -count - 1 : -1], small[:, :, : -count - 1 : -1]
    images = small.mT.reshape(len(values), count, rank, outputs)
    pairs = zip(tangent.backward[1:], tangent.forward, strict=True)
    layers = [v[:, None] @ images.mT @ b[:, None].mT for v, b in pairs]
    vectors = np.concatenate([layer.reshape(len(values), count, -1) for layer in layers], axis=2)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    return values, np.repeat(error[:, None], count, axis=1), vectors, "exact"


def _in_pieces(problem, trees, batch: int, count: int, tolerance: float):
    """By the matrix or by Lanczos, some networks at a time."""
    pieces = []
    for first in range(0, batch, PIECE):
        part = jax.tree.map(lambda a, f=first: a[f : f + PIECE] if eqx.is_array(a) else a, trees)
        pieces.append(
            _of_matrix(problem, part, count) or _deflated(problem, part, count, tolerance)
        )
    columns = zip(*(piece[:3] for piece in pieces), strict=True)
    return (*(np.concatenate(column) for column in columns), pieces[0][3])


def _of_matrix(problem, trees, count: int):
    """All eigenvalues of the matrix in its coordinates, or None where it is too large."""
    (batch, size), dtype = extent(trees)
    hessian = None
    if has_reduced_hessian(problem, trees):
        hessian = ReducedHessian(problem, trees)
        n = hessian.shape[1]
        if n > DENSE:
            return None
        rows = hessian(np.repeat(np.arange(batch), n), np.tile(np.eye(n, dtype=dtype), (batch, 1)))
        matrices = rows.reshape(batch, n, n)
    elif size <= DENSE:
        matrices = full_hessian(problem, trees).matrices()
    else:
        return None
    values, vectors, error = eigen(matrices)
    vectors = vectors.mT
    missing = min(size - matrices.shape[1], count)
    if missing > 0:  # eigenvalues zero that the coordinates do not have
        values = np.pad(values, ((0, 0), (0, missing)))
        order = np.argsort(values, axis=1)
        values = np.take_along_axis(values, order, axis=1)
        vectors = np.pad(vectors, ((0, 0), (0, missing), (0, 0)), constant_values=np.nan)
        vectors = np.take_along_axis(vectors, order[:, :, None], axis=1)
    values, vectors = values[:, : -count - 1 : -1], vectors[:, : -count - 1 : -1]
    errors = np.repeat(error[:, None], count, axis=1)
    return values, errors, _expanded(hessian, vectors), "dense"


def _deflated(problem, trees, count: int, tolerance: float):
    """The largest eigenvalue, then that of H − Σ (θ_i + s) v_i v_iᵀ, which has the next one first.

    The shift s is the norm of the Hessian, so that what was found is out of the way.
    """
    hessian = hessian_of(problem, trees)
    if count > hessian.shape[1]:
        hessian = full_hessian(problem, trees)
    batch, size = hessian.shape
    known = np.zeros((batch, 0, size), hessian.dtype)
    values, errors = np.zeros((2, batch, 0), hessian.dtype)
    shift = np.zeros((batch, 1))
    for index in range(count):
        weights = values + shift

        def multiply(members, vectors, known=known, weights=weights):
            inner = (known[members] @ vectors[:, :, None])[:, :, 0] * weights[members]
            return hessian(members, vectors) - (inner[:, None] @ known[members])[:, 0]

        found = lanczos.largest(
            multiply, (batch, size), hessian.dtype, seed=index, tolerance=tolerance,
            max_products=min(size, 500),
        )  # fmt: skip
        shift = np.maximum(shift, found.scale[:, None])
        known = np.concatenate([known, found.vector[:, None]], axis=1)
        values = np.concatenate([values, found.value[:, None]], axis=1)
        # Each vector removed before was off by its own error, which moves the others by as much.
        own = found.error[:, None] + np.sum(errors, axis=1, keepdims=True)
        errors = np.concatenate([errors, own], axis=1)
    return values, errors, _expanded(hessian, known), "lanczos"


def _expanded(hessian: Hessian | None, coordinates: np.ndarray) -> np.ndarray:
    """Unit vectors of parameters; NaN for one of eigenvalue zero that stands for no direction."""
    if hessian is None:
        return coordinates
    batch, count, size = coordinates.shape
    members = np.repeat(np.arange(batch), count)
    vectors = hessian.expand(members, coordinates.reshape(-1, size)).reshape(batch, count, -1)
    lengths = np.linalg.norm(vectors, axis=2, keepdims=True)
    return np.where(lengths > 0.5, vectors / np.where(lengths > 0, lengths, 1), np.nan)


# --- what goes with them ---------------------------------------------------------------------


def _gradients(problem, trees) -> Float[np.ndarray, "batch N"]:
    """∇R as a flat vector, for each tree."""
    if not is_linear(problem, trees):
        return full_hessian(problem, trees).gradients()
    _, layers = gap_and_gradient(problem, jax.tree.map(np.asarray, trees))
    return np.concatenate([layer.reshape(len(layer), -1) for layer in layers], axis=1)


def blocks(problem: Problem | Loss, trees: PyTree) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Trace, and the largest eigenvalue of each layer's own block; None beyond reach.

    Within a layer the risk of a linear network is quadratic: H_kk = 2 (V_kV_kᵀ) ⊗ (B_kB_kᵀ).
    """
    if is_linear(problem, trees):
        tangent = Tangent.of(problem, *host_arrays(trees))
        pairs = list(zip(tangent.backward[1:], tangent.forward, strict=True))
        squares, tops = (
            [2 * np.prod([_norm(m, order) ** 2 for m in pair], axis=0) for pair in pairs]
            for order in ("fro", 2)
        )
        return np.sum(squares, axis=0), np.stack(tops, axis=-1)
    if extent(trees)[0][1] > DENSE:
        return None, None
    hessian = full_hessian(problem, trees)
    matrices, cuts = hessian.matrices(), np.cumsum([0, *hessian.sizes])
    blocks = [matrices[:, a:b, a:b] for a, b in pairwise(cuts)]
    tops = [np.linalg.eigvalsh(block)[:, -1] for block in blocks]
    return np.trace(matrices, axis1=1, axis2=2), np.stack(tops, axis=-1)


def _norm(matrices: np.ndarray, order: Any) -> np.ndarray:
    """A norm of each matrix; NaN where it is not finite, which LAPACK would refuse."""
    finite = np.asarray(np.isfinite(matrices).all(axis=(-2, -1)))
    filled = np.where(finite[..., None, None], matrices, 0)
    return np.where(finite, np.linalg.norm(filled, order, axis=(-2, -1)), np.nan)
