"""The sharpness and other eigenvalues of the Hessian by several methods, with their vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, PyTree, Shaped

from deeplin.errors import InputError, positive_number, validated, whole_number
from deeplin.hessian import lanczos
from deeplin.hessian.exact import ROUNDING, Tangent, exact, gauss_newton, may_be_exact
from deeplin.hessian.operators import (
    AutodiffHessian,
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
from deeplin.networks import Loss, Network, explain_loss_errors, gap_and_gradient, host_arrays
from deeplin.networks.products import singular_values
from deeplin.problems import Problem

DENSE_LIMIT = 100
"""Number of parameters up to which `sharpness` uses the dense matrix."""
DENSE_SPECTRUM_LIMIT = 400
"""Size up to which `hessian_spectrum` forms the matrix and computes all of its eigenvalues."""
PIECE_SIZE = 64
"""Number of networks whose matrices are in memory at the same time."""


@dataclass(frozen=True)
class Sharpness:
    """An extreme eigenvalue of the Hessian (FM-sharp) with a bound of its error.

    For a batch of networks `value`, `error`, `converged` and `products` are arrays with one entry
    for each network, and `vector` has one row for each.
    """

    value: float | Float[np.ndarray, " batch"]
    """The eigenvalue: algebraically the largest, or the smallest on request."""
    error: float | Float[np.ndarray, " batch"]
    """The true eigenvalue is within this distance of `value`, rounding included."""
    method: str | Shaped[np.ndarray, " batch"]
    """`exact`, `lanczos`, `dense` or `power`; an array if the networks of a batch differ."""
    converged: bool | Bool[np.ndarray, " batch"]
    """Whether `error` is within the tolerance."""
    vector: np.ndarray | None = field(default=None, repr=False)
    """A unit eigenvector over the flattened parameters, where the method finds one."""
    products: int | Integer[np.ndarray, " batch"] = 0
    """Hessian-vector products used."""


@validated
def sharpness(
    problem: Problem | Loss,
    network: PyTree,
    *,
    method: str = "auto",
    which: str = "largest",
    tolerance: float | None = None,
    start: PyTree = None,
    key: Array | None = None,
    steps: int = 20,
    max_products: int = 500,
) -> Sharpness:
    """Return the largest (or smallest) eigenvalue of the Hessian of the risk (FM-sharp).

    S(W) = λ_max(∇²R(W)), together with a bound of the error.

    Arguments:
        problem: a `Problem`, or any differentiable loss: a function from a pytree to a scalar; for
            a PyTorch module a `TorchLoss`.
        network: a `Network` (its weights are the parameters, the read-out is fixed; a batch gives
            arrays), or for a user-defined loss any pytree of parameters, or a PyTorch module.
        method: `exact` (X-1: a small matrix, for linear networks at minimizers; the error says how
            far from one it is), `lanczos` (anywhere, certified), `dense` (automatic
            differentiation, small networks), `power` (the papers' iteration of `steps` products,
            for comparison: largest modulus), or `auto`: exact where its error allows, otherwise
            dense or Lanczos by size.
        which: `largest` or `smallest`, algebraically.
        tolerance: requested error relative to the norm of the Hessian; by default two thirds of the
            digits of the precision.
        start: a guess of the eigenvector (flattened parameters), used by `lanczos` and `power`.
        key: random key of the start vector.
        max_products: maximum number of products in Lanczos (`converged` is then False).

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    s = dl.sharpness(problem, net)
    s.value, s.error, s.method
    ```

    References: FM eq. (7); X-1.
    """
    if method not in METHODS:
        raise InputError(f"method is {method!r}; pass one of {', '.join(METHODS)}.")
    with explain_loss_errors(problem, network):
        check_subject(problem, network)
        trees = as_batch(network)
        shape, dtype = extent(trees)
        if which not in ("largest", "smallest"):
            raise InputError(f"which is {which!r}; pass 'largest' or 'smallest'.")
        request = _Request(
            problem,
            trees,
            shape,
            dtype,
            which,
            _tolerance(tolerance, dtype),
            _start(start, shape, dtype),
            0 if key is None else int(jax.random.bits(key, dtype=jnp.uint32)),
            whole_number("steps", steps),
            whole_number("max_products", max_products),
        )
        result = METHODS[method](request)
    if isinstance(network, Network) and network.batch is not None:
        return result
    vector = None if result.vector is None else result.vector[0]
    single = (result.value, result.error, result.converged, result.products)
    value, error, converged, count = (np.broadcast_to(item, 1)[0].item() for item in single)
    return Sharpness(value, error, result.method, converged, vector, count)


def _tolerance(given: float | None, dtype: np.dtype) -> float:
    """Return the requested error; by default two thirds of the digits of the precision."""
    default = float(np.finfo(dtype).eps) ** (2 / 3)
    return positive_number("tolerance", default if given is None else given)


@dataclass(frozen=True)
class _Request:
    """One call of `sharpness` on a batch of parameters."""

    problem: Any
    trees: PyTree
    shape: tuple[int, int]
    """Networks in the batch, parameters of each."""
    dtype: np.dtype
    which: str
    tolerance: float
    start: np.ndarray | None
    seed: int
    steps: int
    max_products: int

    @property
    def sign(self) -> int:
        """−1 where the smallest eigenvalue of H is found as the largest of −H."""
        return 1 if self.which == "largest" else -1

    def part(self, members: np.ndarray) -> _Request:
        """Return the same request for some networks of the batch."""
        trees = jax.tree.map(lambda leaf: leaf[members], self.trees)
        start = None if self.start is None else self.start[members]
        return replace(self, trees=trees, start=start, shape=(len(members), self.shape[1]))


def _exact(request: _Request) -> Sharpness:
    if not is_linear(request.problem, request.trees):
        raise InputError(
            "method 'exact' is for linear networks on a Problem with squared loss (X-1); pass "
            "method='lanczos'."
        )
    value, error = exact(request.problem, request.trees, request.which)
    error = np.where(np.isnan(error), np.inf, error)
    return Sharpness(value, error, "exact", error <= request.tolerance * np.abs(value))


def _lanczos(request: _Request) -> Sharpness:
    hessian = hessian_of(request.problem, request.trees)
    everyone = np.arange(request.shape[0])
    guess = None if request.start is None else hessian.project(everyone, request.start)
    found = _by_products(replace(request, start=guess), hessian)
    assert found.vector is not None
    vector = hessian.expand(everyone, found.vector)
    nothing = np.flatnonzero(np.linalg.norm(vector, axis=1) < 0.5)
    if len(nothing):  # eigenvalue zero, found in redundant coordinates
        part = request.part(nothing)
        vector[nothing] = _by_products(part, AutodiffHessian(part.problem, part.trees)).vector
    return replace(found, vector=vector / np.linalg.norm(vector, axis=1, keepdims=True))


def _by_products(request: _Request, hessian: Hessian) -> Sharpness:
    found = lanczos.largest(
        lambda members, vectors: request.sign * hessian(members, vectors),
        hessian.shape,
        hessian.dtype,
        seed=request.seed,
        guess=request.start,
        tolerance=request.tolerance,
        max_products=request.max_products,
    )
    converged = found.error <= request.tolerance * found.scale
    value = request.sign * found.value
    return Sharpness(value, found.error, "lanczos", converged, found.vector, found.products)


def _dense(request: _Request) -> Sharpness:
    values, vectors, error = eigen(full_hessian(request.problem, request.trees).matrices())
    index = -1 if request.which == "largest" else 0
    converged = error <= request.tolerance * np.abs(values).max(axis=1)
    count = request.shape[1]
    return Sharpness(values[:, index], error, "dense", converged, vectors[:, :, index], count)


def _power(request: _Request) -> Sharpness:
    if request.which == "smallest":
        raise InputError(
            "method 'power' finds the eigenvalue of largest modulus; pass method='lanczos' for "
            "the smallest."
        )
    start = request.start
    if start is None:
        draw = np.random.default_rng(request.seed).standard_normal(request.shape[1])
        start = np.broadcast_to(draw.astype(request.dtype), request.shape)
    hessian = full_hessian(request.problem, request.trees)
    everyone = np.arange(request.shape[0])
    image = vector = start
    for _ in range(request.steps):
        length = np.linalg.norm(image, axis=1, keepdims=True)
        vector = image / np.maximum(length, np.finfo(request.dtype).tiny)
        image = hessian(everyone, vector)
    value = np.sum(vector * image, axis=1)
    residual = np.linalg.norm(image - value[:, None] * vector, axis=1)
    converged = residual <= request.tolerance * np.abs(value)
    return Sharpness(value, residual, "power", converged, vector, request.steps)


def _auto(request: _Request) -> Sharpness:
    """Return exact values where their error allows, the others dense or by Lanczos."""
    general = _dense if request.shape[1] <= DENSE_LIMIT else _lanczos
    problem, trees = request.problem, request.trees
    if not is_linear(problem, trees) or not may_be_exact(problem, trees, request.tolerance):
        return general(request)
    result = _exact(request)
    members = np.flatnonzero(~np.asarray(result.converged))
    if len(members) == 0:
        return result
    if len(members) == request.shape[0]:
        return general(request)
    padded = members
    if general is _dense or not has_reduced_hessian(request.problem, request.trees):
        # Round up to a power of two, to compile few shapes.
        padded = np.resize(members, 1 << (len(members) - 1).bit_length())
    other = general(request.part(padded))
    columns = {
        name: np.array(np.broadcast_to(getattr(result, name), request.shape[0]))
        for name in ("value", "error", "method", "converged", "products")
    }
    columns["method"] = columns["method"].astype("<U8")
    for name, column in columns.items():
        column[members] = np.broadcast_to(getattr(other, name), len(padded))[: len(members)]
    return Sharpness(**columns)


def _start(start: PyTree, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray | None:
    if start is None:
        return None
    vectors = np.asarray(start, dtype).reshape(-1, np.shape(start)[-1] if np.ndim(start) else 1)
    if vectors.shape[1] != shape[1] or len(vectors) not in (1, shape[0]):
        raise InputError(
            f"start has shape {np.shape(start)}; pass a vector of the {shape[1]} flattened "
            f"parameters, or one for each of the {shape[0]} network(s)."
        )
    return np.broadcast_to(vectors, shape)


METHODS = {"auto": _auto, "exact": _exact, "lanczos": _lanczos, "dense": _dense, "power": _power}


# --- several eigenvalues -------------------------------------------------------------------------


@dataclass(frozen=True)
class HessianSpectrum:
    """The largest eigenvalues of Hessians, with leading axes for the batch and records, if any."""

    values: Float[np.ndarray, "*batch count"]
    """Eigenvalues, largest first."""
    errors: Float[np.ndarray, "*batch count"]
    """Each value is within this distance of the true one, rounding included."""
    vectors: Float[np.ndarray, "*batch count N"] = field(repr=False)
    """Unit eigenvectors over the flattened parameters; NaN for a zero eigenvalue without one."""
    alignment: Float[np.ndarray, "*batch count"] = field(repr=False)
    """⟨∇R, v⟩²/‖∇R‖² for each vector: how much of the gradient points along it."""
    trace: float | Float[np.ndarray, "*batch"] | None = field(repr=False)
    """The sum of all eigenvalues; None if the matrix is too large."""
    layers: Float[np.ndarray, "*batch L"] | None = field(repr=False)
    """The largest eigenvalue of each layer's diagonal block of the Hessian; None likewise."""
    method: str
    """`exact` (X-1, at minimizers), `dense` or `lanczos`."""

    def reshaped(self, *axes: int) -> HessianSpectrum:
        """Return the same spectrum with other leading axes."""
        return self._each(lambda array: array.reshape(*axes, *array.shape[1:]))

    def member(self, index: Any) -> HessianSpectrum:
        """Return the spectrum of one network of the batch, or of some."""
        return self._each(lambda array: np.asarray(array[index]))

    def _each(self, function: Callable[[np.ndarray], np.ndarray]) -> HessianSpectrum:
        names = ("values", "errors", "vectors", "alignment", "trace", "layers")
        arrays = {name: getattr(self, name) for name in names}
        return replace(self, **{n: a if a is None else function(a) for n, a in arrays.items()})


@validated
def hessian_spectrum(
    problem: Problem | Loss,
    network: PyTree,
    *,
    count: int = 5,
    tolerance: float | None = None,
) -> HessianSpectrum:
    """Return the `count` largest eigenvalues of the Hessian of the risk, with error bounds.

    At minimizers of a linear network all nonzero eigenvalues are those of the small matrix of X-1,
    2 Σ_k (B_kᵀB_k) ⊗ (V_kᵀV_k), and exact (`method` says so). Elsewhere the matrix is formed, for
    linear networks with one output in the coordinates of its range; beyond 400 dimensions
    Lanczos finds one eigenvalue after another, each certified.

    Arguments:
        problem: a `Problem`, or any differentiable loss: a function from a pytree to a scalar; for
            a PyTorch module a `TorchLoss`.
        network: a `Network` or a batch of them, or for a user-defined loss any pytree, or a PyTorch
            module.
        count: number of eigenvalues, largest first.
        tolerance: requested error relative to the norm of the Hessian.

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
    """Return `hessian_spectrum` of trees whose arrays have a leading batch axis."""
    (batch, size), dtype = extent(trees)
    count = whole_number("count", count)
    if count > size:
        raise InputError(
            f"count is {count}; the Hessian has {size} eigenvalues, pass at most that."
        )
    tolerance = _tolerance(tolerance, dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        found = _at_minimizers(problem, trees, count, tolerance)
        if found is None:
            found = _in_pieces(problem, trees, batch, count, tolerance)
    values, errors, vectors, method = found
    with np.errstate(invalid="ignore", over="ignore"):  # a diverging run may overflow
        slope = _gradients(problem, trees)
        aligned = (vectors @ slope[:, :, None])[..., 0] ** 2 / np.sum(slope**2, axis=1)[:, None]
        trace, layers = blocks(problem, trees)
    return HessianSpectrum(values, errors, vectors, aligned, trace, layers, method)


def _at_minimizers(problem, trees, count: int, tolerance: float):
    """Return X-1 with vectors √(2/μ) V_k Yᵀ B_kᵀ, or None if a network is not at a minimizer."""
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
    """Return the spectra by the matrix or by Lanczos, for some networks at a time."""
    pieces = []
    for first in range(0, batch, PIECE_SIZE):
        part = jax.tree.map(
            lambda a, f=first: a[f : f + PIECE_SIZE] if eqx.is_array(a) else a, trees
        )
        pieces.append(
            _of_matrix(problem, part, count) or _deflated(problem, part, count, tolerance)
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


def _deflated(problem, trees, count: int, tolerance: float):
    """Return the largest eigenvalues one by one, deflating to H − Σ (θ_i + s) v_i v_iᵀ.

    The shift s is the norm of the Hessian, which moves the eigenvalues found below all others.
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


# --- what goes with them ---------------------------------------------------------------------


def _gradients(problem, trees) -> Float[np.ndarray, "batch N"]:
    """Return ∇R as a flat vector, for each tree."""
    if not is_linear(problem, trees):
        return full_hessian(problem, trees).gradients()
    _, layers = gap_and_gradient(problem, jax.tree.map(np.asarray, trees))
    return np.concatenate([layer.reshape(len(layer), -1) for layer in layers], axis=1)


def blocks(problem: Problem | Loss, trees: PyTree) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the trace, and the largest eigenvalue of each layer's block; None where too expensive.

    Within a layer the risk of a linear network is quadratic: H_kk = 2 (V_kV_kᵀ) ⊗ (B_kB_kᵀ).
    """
    if is_linear(problem, trees):
        tangent = Tangent.of(problem, *host_arrays(trees))
        squares, tops = [], []
        for pair in zip(tangent.backward[1:], tangent.forward, strict=True):
            left, right = (singular_values(matrix) ** 2 for matrix in pair)
            squares.append(2 * left.sum(-1) * right.sum(-1))
            tops.append(2 * left[..., 0] * right[..., 0])
        return np.sum(squares, axis=0), np.stack(tops, axis=-1)
    if extent(trees)[0][1] > DENSE_SPECTRUM_LIMIT:
        return None, None
    hessian = full_hessian(problem, trees)
    matrices, cuts = hessian.matrices(), np.cumsum([0, *hessian.sizes])
    blocks = [matrices[:, a:b, a:b] for a, b in pairwise(cuts)]
    tops = [np.linalg.eigvalsh(block)[:, -1] for block in blocks]
    return np.trace(matrices, axis1=1, axis2=2), np.stack(tops, axis=-1)
