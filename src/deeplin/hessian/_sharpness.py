"""The sharpness: the largest or smallest eigenvalue of the Hessian, by several methods."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Integer, PyTree, Shaped
from scipy.sparse.linalg import LinearOperator

from deeplin.errors import InputError, positive_number, whole_number
from deeplin.hessian import lanczos
from deeplin.hessian.exact import exact, may_be_exact
from deeplin.hessian.operators import (
    AutodiffHessian,
    Hessian,
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
from deeplin.networks.network import Loss, explain_loss_errors
from deeplin.problems import Problem

DENSE_LIMIT = 100
"""Number of parameters up to which `sharpness` uses the dense matrix."""


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
    """`exact`, `lanczos` or `dense`; an array if the networks of a batch differ."""
    converged: bool | Bool[np.ndarray, " batch"]
    """Whether `error` is within the tolerance."""
    vector: np.ndarray | None = field(default=None, repr=False)
    """A unit eigenvector over the flattened parameters, where the method finds one."""
    products: int | Integer[np.ndarray, " batch"] = 0
    """Hessian-vector products used."""


def sharpness(
    problem: Problem | Loss | LinearOperator,
    network: PyTree = None,
    *,
    method: str = "auto",
    which: str = "largest",
    tolerance: float | None = None,
    start: PyTree = None,
    max_products: int = 500,
    failure_probability: float = lanczos.FAILURE_PROBABILITY,
) -> Sharpness:
    """Return the largest (or smallest) eigenvalue of the Hessian of the risk (FM-sharp).

    S(W) = λ_max(∇²R(W)), together with a bound of the error.

    Args:
        problem: A `Problem`, or any differentiable loss: a function from a pytree to a scalar; for
            a PyTorch module a `TorchLoss`. Or a symmetric `scipy.sparse.linalg.LinearOperator`
            (curvlinops' operators are converted), passed alone.
        network: A `Network` (weights and biases are the parameters, the read-out is fixed; a batch
            gives arrays), or for a user-defined loss any pytree of parameters, or a PyTorch module.
        method: `exact` (X-1: a small matrix, for linear networks at minimizers; the error says how
            far from one it is), `lanczos` (anywhere, certified), `dense` (automatic
            differentiation, small networks), or `auto`: exact where its error allows, otherwise
            dense or Lanczos by size.
        which: `largest` or `smallest`, algebraically.
        tolerance: Requested error relative to the norm of the Hessian; by default two thirds of the
            digits of the precision.
        start: A guess of the eigenvector (flattened parameters), used by `lanczos`: a good one,
            such as the vector some steps of training earlier, saves products.
        max_products: Maximum number of products in Lanczos (`converged` is then False).
        failure_probability: Probability with which the error of `lanczos` may fail to be a bound,
            because a random vector misses an eigenvector; a larger one needs fewer products.

    Returns:
        `Sharpness`: the value with a bound of its error, the method, whether the error is within
        the tolerance, an eigenvector and the number of products.

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
        trees = subject(problem, network)
        shape, dtype = extent(trees)
        if which not in ("largest", "smallest"):
            raise InputError(f"which is {which!r}; pass 'largest' or 'smallest'.")
        request = _Request(
            problem,
            trees,
            shape,
            dtype,
            which,
            resolved_tolerance(tolerance, dtype),
            as_start(start, shape, dtype),
            whole_number("max_products", max_products),
            _probability(failure_probability),
        )
        result = METHODS[method](request)
    if isinstance(network, Network) and network.batch is not None:
        return result
    vector = None if result.vector is None else result.vector[0]
    single = (result.value, result.error, result.converged, result.products)
    value, error, converged, count = (np.broadcast_to(item, 1)[0].item() for item in single)
    return Sharpness(value, error, result.method, converged, vector, count)


def resolved_tolerance(given: float | None, dtype: np.dtype) -> float:
    """Return the requested error; by default two thirds of the digits of the precision."""
    default = float(np.finfo(dtype).eps) ** (2 / 3)
    return positive_number("tolerance", default if given is None else given)


def _probability(given: float) -> float:
    """Return the probability of failure, above 0 and below 1."""
    if positive_number("failure_probability", given) >= 1:
        raise InputError(f"failure_probability is {given:g}; pass a number below 1.")
    return float(given)


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
    max_products: int
    failure: float

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
        guess=request.start,
        tolerance=request.tolerance,
        max_products=request.max_products,
        failure=request.failure,
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


METHODS = {"auto": _auto, "exact": _exact, "lanczos": _lanczos, "dense": _dense}
