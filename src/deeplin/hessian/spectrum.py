"""The largest eigenvalues of the Hessian with their vectors, and the blocks of its layers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PyTree
from scipy.sparse.linalg import LinearOperator

from deeplin.errors import InputError, whole_number
from deeplin.hessian import lanczos
from deeplin.hessian._sharpness import resolved_tolerance
from deeplin.hessian.exact import ROUNDING, Tangent, gauss_newton
from deeplin.hessian.operators import (
    Hessian,
    ReducedHessian,
    as_start,
    eigen,
    extent,
    full_hessian,
    has_reduced_hessian,
    hessian_of,
    is_linear,
    subject,
)
from deeplin.networks import Network
from deeplin.networks.network import Layout, Loss, as_seen, explain_loss_errors
from deeplin.networks.products import singular_values
from deeplin.problems import Problem

DENSE_SPECTRUM_LIMIT = 400
"""Size up to which `hessian_spectrum` forms the matrix and computes all of its eigenvalues."""
PIECE_SIZE = 64
"""Number of networks whose matrices are in memory at the same time."""


@dataclass(frozen=True)
class HessianSpectrum:
    """The largest eigenvalues of Hessians, with leading axes for the batch and records, if any."""

    values: Float[np.ndarray, "*batch count"]
    """Eigenvalues, largest first."""
    errors: Float[np.ndarray, "*batch count"]
    """Each value is within this distance of the true one, rounding included."""
    vectors: Float[np.ndarray, "*batch count N"] = field(repr=False)
    """Unit eigenvectors over the flattened parameters; NaN for a zero eigenvalue without one."""
    trace: float | Float[np.ndarray, "*batch"] | None = field(repr=False)
    """The sum of all eigenvalues; None if the matrix is too large."""
    layers: Float[np.ndarray, "*batch L"] | None = field(repr=False)
    """The largest eigenvalue of each layer's diagonal block of the Hessian; None likewise."""
    method: str
    """`exact` (X-1, at minimizers), `dense` or `lanczos`."""

    def member(self, index: Any) -> HessianSpectrum:
        """Return the spectrum of one network of the batch, or of some."""
        names = ("values", "errors", "vectors", "trace", "layers")
        arrays = {name: getattr(self, name) for name in names}
        chosen = {n: None if a is None else np.asarray(a[index]) for n, a in arrays.items()}
        return replace(self, **chosen)


def hessian_spectrum(
    problem: Problem | Loss | LinearOperator,
    network: PyTree = None,
    *,
    count: int = 5,
    tolerance: float | None = None,
    start: Any = None,
) -> HessianSpectrum:
    """Return the `count` largest eigenvalues of the Hessian of the risk, with error bounds.

    At minimizers of a linear network all nonzero eigenvalues are those of the small matrix of X-1,
    2 Σ_k (B_kᵀB_k) ⊗ (V_kᵀV_k), and exact (`method` says so). Elsewhere the matrix is formed, for
    linear networks with one output in the coordinates of its range; beyond 400 dimensions
    Lanczos finds one eigenvalue after another, each certified.

    Args:
        problem: A `Problem`, or any differentiable loss: a function from a pytree to a scalar; for
            a PyTorch module a `TorchLoss`; or a symmetric SciPy `LinearOperator`, passed alone.
        network: A `Network` or a batch of them, or for a user-defined loss any pytree, or a PyTorch
            module.
        count: Number of eigenvalues, largest first.
        tolerance: Requested error relative to the norm of the Hessian.
        start: A guess of the first eigenvector (flattened parameters), or one for each network of
            a batch, used by `lanczos`: a good one, such as `vectors[0]` a few steps before, saves
            products.

    Returns:
        `HessianSpectrum`: values, errors and vectors, the trace, and the largest eigenvalue of each
        layer's block.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    h = dl.hessian_spectrum(problem, net, count=3)
    h.values, h.errors, h.vectors.shape, h.trace, h.layers
    ```
    """
    with explain_loss_errors(problem, network):
        trees = subject(problem, network)
        result = spectra(problem, trees, count=count, tolerance=tolerance, start=start)
    batched = isinstance(network, Network) and network.batch is not None
    return result if batched else result.member(0)


def spectra(
    problem: Problem | Loss,
    trees: PyTree,
    *,
    count: int,
    tolerance: float | None = None,
    start: Any = None,
) -> HessianSpectrum:
    """Return `hessian_spectrum` of trees whose arrays have a leading batch axis."""
    (batch, size), dtype = extent(trees)
    guess = as_start(start, (batch, size), dtype)
    count = whole_number("count", count)
    if count > size:
        raise InputError(
            f"count is {count}; the Hessian has {size} eigenvalues, pass at most that."
        )
    tolerance = resolved_tolerance(tolerance, dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        found = _at_minimizers(problem, trees, count, tolerance)
        if found is None:
            found = _in_pieces(problem, trees, guess, count, tolerance)
    values, errors, vectors, method = found
    with np.errstate(invalid="ignore", over="ignore"):  # a diverging run may overflow
        trace, layers = blocks(problem, trees)
    return HessianSpectrum(values, errors, vectors, trace, layers, method)


def _at_minimizers(problem, trees, count: int, tolerance: float):
    """Return X-1 with vectors √(2/μ) V_k Yᵀ B_kᵀ, or None if a network is not at a minimizer."""
    if not is_linear(problem, trees):
        return None
    rank, outputs = as_seen(problem, trees).spectrum.coordinates.shape
    if count > rank * outputs:
        return None
    tangent = Tangent.of(problem, trees)
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
    vectors = tangent.flat([v[:, None] @ images.mT @ b[:, None].mT for v, b in pairs])
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    return values, np.repeat(error[:, None], count, axis=1), vectors, "exact"


def _in_pieces(problem, trees, guess: np.ndarray | None, count: int, tolerance: float):
    """Return the spectra by the matrix or by Lanczos, for some networks at a time."""
    pieces = []
    for first in range(0, extent(trees)[0][0], PIECE_SIZE):
        members = slice(first, first + PIECE_SIZE)
        part = jax.tree.map(lambda a, m=members: a[m] if eqx.is_array(a) else a, trees)
        near = None if guess is None else guess[members]
        pieces.append(
            _of_matrix(problem, part, count) or _deflated(problem, part, near, count, tolerance)
        )
    columns = zip(*(piece[:3] for piece in pieces), strict=True)
    return (*(np.concatenate(column) for column in columns), pieces[0][3])


def _of_matrix(problem, trees, count: int):
    """Return all eigenvalues of the matrix in its coordinates, or None where it is too large."""
    (batch, size), dtype = extent(trees)
    hessian = None
    if has_reduced_hessian(problem, trees):
        hessian = ReducedHessian(problem, trees)
        n = hessian.shape[1]
        if n > DENSE_SPECTRUM_LIMIT:
            return None
        rows = hessian(np.repeat(np.arange(batch), n), np.tile(np.eye(n, dtype=dtype), (batch, 1)))
        matrices = rows.reshape(batch, n, n)
    elif size <= DENSE_SPECTRUM_LIMIT:
        matrices = full_hessian(problem, trees).matrices()
    else:
        return None
    values, vectors, error = eigen(matrices)
    vectors = vectors.mT
    missing = min(size - matrices.shape[1], count)
    if missing > 0:  # zero eigenvalues outside the coordinates
        values = np.pad(values, ((0, 0), (0, missing)))
        order = np.argsort(values, axis=1)
        values = np.take_along_axis(values, order, axis=1)
        vectors = np.pad(vectors, ((0, 0), (0, missing), (0, 0)), constant_values=np.nan)
        vectors = np.take_along_axis(vectors, order[:, :, None], axis=1)
    values, vectors = values[:, : -count - 1 : -1], vectors[:, : -count - 1 : -1]
    errors = np.repeat(error[:, None], count, axis=1)
    return values, errors, _expanded(hessian, vectors), "dense"


def _deflated(problem, trees, guess: np.ndarray | None, count: int, tolerance: float):
    """Return the largest eigenvalues one by one, deflating to H − Σ (θ_i + s) v_i v_iᵀ.

    The shift s is the norm of the Hessian, which moves the eigenvalues found below all others.
    """
    hessian = hessian_of(problem, trees)
    if count > hessian.shape[1]:
        hessian = full_hessian(problem, trees)
    batch, size = hessian.shape
    if guess is not None:
        guess = hessian.project(np.arange(batch), guess)
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
            guess=guess if index == 0 else None, max_products=min(size, 500),
        )  # fmt: skip
        shift = np.maximum(shift, found.scale[:, None])
        known = np.concatenate([known, found.vector[:, None]], axis=1)
        values = np.concatenate([values, found.value[:, None]], axis=1)
        # The error of each deflated vector moves the other eigenvalues by as much.
        own = found.error[:, None] + np.sum(errors, axis=1, keepdims=True)
        errors = np.concatenate([errors, own], axis=1)
    return values, errors, _expanded(hessian, known), "lanczos"


def _expanded(hessian: Hessian | None, coordinates: np.ndarray) -> np.ndarray:
    """Return unit vectors of parameters; NaN for a zero eigenvalue without a direction."""
    if hessian is None:
        return coordinates
    batch, count, size = coordinates.shape
    members = np.repeat(np.arange(batch), count)
    vectors = hessian.expand(members, coordinates.reshape(-1, size)).reshape(batch, count, -1)
    lengths = np.linalg.norm(vectors, axis=2, keepdims=True)
    return np.where(lengths > 0.5, vectors / np.where(lengths > 0, lengths, 1), np.nan)


def blocks(problem: Problem | Loss, trees: PyTree) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the trace, and the largest eigenvalue of each layer's block; None where too expensive.

    Within a layer the risk of a linear network is quadratic: H_kk = 2 (V_kV_kᵀ) ⊗ (B_kB_kᵀ).
    """
    if is_linear(problem, trees):
        tangent = Tangent.of(problem, trees)
        squares, tops = [], []
        for pair in zip(tangent.backward[1:], tangent.forward, strict=True):
            left, right = (singular_values(matrix) ** 2 for matrix in pair)
            squares.append(2 * left.sum(-1) * right.sum(-1))
            tops.append(2 * left[..., 0] * right[..., 0])
        return np.sum(squares, axis=0), np.stack(tops, axis=-1)
    if extent(trees)[0][1] > DENSE_SPECTRUM_LIMIT:
        return None, None
    hessian = full_hessian(problem, trees)
    matrices, sizes = hessian.matrices(), hessian.sizes
    layers = Layout.of(trees).layers if isinstance(trees, Network) else range(len(sizes))
    owner = np.repeat(layers, sizes)  # of each parameter
    blocks = [matrices[:, owner == k][:, :, owner == k] for k in np.unique(owner)]
    tops = [np.linalg.eigvalsh(block)[:, -1] for block in blocks]
    return np.trace(matrices, axis1=1, axis2=2), np.stack(tops, axis=-1)
