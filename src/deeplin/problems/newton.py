"""Minimizers of a convex loss of linear predictions: Newton's method, and whether there are any.

Separable classes have none (X-16). Above `LARGEST_HESSIAN` coordinates L-BFGS takes its place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from deeplin.problems.factorizations import is_tall, solver, thin_svd
from deeplin.problems.losses import ConvexLoss, Logistic, Softmax

NEWTON_STEPS = 500
STEP_TOLERANCE = 1e-8
"""Change of the predictions, relative to 1 + their size, after which one more step is taken; that
step squares the error."""
SUSPICIOUS_SIZE = 25.0
"""Size of the predictions above which the data may have no minimizer."""
LARGEST_HESSIAN = 1000
"""Most coordinates for which Newton's method is used; above it, a quasi-Newton method."""
QUASI_NEWTON_STEPS = 1000
GRADIENT_TOLERANCE = 1e-8
"""Largest entry of the gradient, relative to that at zero, at which the latter has settled."""
LARGEST_PROGRAM = 10**6
"""Most entries of the linear program that decides whether classes can be separated."""
SEPARATING_MARGIN = 40.0
"""Least margin of the predictions that are kept for separated classes, of loss e⁻⁴⁰."""
MARGIN_TOLERANCE = 1e-7
"""Margins, relative to the size of their rows, that count as zero."""


class Fit(NamedTuple):
    """Result of Newton's method."""

    coordinates: Float[np.ndarray, "r k"]
    predictions: Float[np.ndarray, "n q"]
    settled: bool
    """Whether the steps became small, so that a minimizer was found."""
    separable: bool = False
    """Whether there is a direction in which the risk decreases forever."""


class Coordinates(NamedTuple):
    """Coordinates Θ = B U Eᵀ: a basis B of the row space of X, and a basis E of the outputs.

    Minimizers of this form have the least norm: other components change no prediction.
    """

    rows: Float[np.ndarray, "n r"]
    """X B."""
    basis: Float[np.ndarray, "d r"] | None
    """B; None for the identity."""
    outputs: Float[np.ndarray, "q k"]

    @classmethod
    def of(cls, inputs: np.ndarray, loss: ConvexLoss, q: int) -> Coordinates:
        """Return the inputs themselves if tall and of full rank, else √n U of X = U S Vᵀ."""
        outputs = _zero_sum(q) if isinstance(loss, Softmax) else np.eye(q)
        n, d = inputs.shape
        if is_tall(inputs):
            some = inputs[
                :: max(1, n // max(n // 16, 4 * d))
            ]  # if these rows have full rank, so have all
            if solver(some.T @ some / len(some)) is not None:
                return cls(inputs, None, outputs)
        _, singular, right = thin_svd(inputs, inputs[:, :0])
        keep = singular > np.finfo(np.float64).eps * max(inputs.shape) * singular[0]
        basis = right[keep].T * (np.sqrt(n) / singular[keep])
        return cls(inputs @ basis, basis, outputs)

    def theta(self, u: np.ndarray) -> np.ndarray:
        """Return Θ, (d, q)."""
        inner = u @ self.outputs.T
        return inner if self.basis is None else self.basis @ inner

    def predictions(self, u: np.ndarray) -> np.ndarray:
        """Return XΘ, (n, q)."""
        return self.rows @ u @ self.outputs.T

    def penalty(self) -> np.ndarray:
        """Return the matrix G with ‖Θ‖² = Tr(UᵀGU)."""
        size = self.rows.shape[1]
        return np.eye(size) if self.basis is None else self.basis.T @ self.basis


def fit(
    loss: ConvexLoss,
    coordinates: Coordinates,
    targets: np.ndarray,
    *,
    ridge: float = 0.0,
    start: np.ndarray | None = None,
) -> Fit:
    """Minimize (1/n)Σφ(Θᵀx_i, y_i) + ridge·‖Θ‖² by Newton's method with backtracking.

    `start` holds initial coordinates U, such as those of a nearby minimizer.
    """
    u = _starting_point(loss, coordinates, targets) if start is None else start
    method = _newton if u.size <= LARGEST_HESSIAN else _quasi_newton
    if start is None:
        for preliminary in loss.preliminary_losses(coordinates.predictions(u), targets):
            u = method(preliminary, coordinates, targets, ridge, u).coordinates
    return method(loss, coordinates, targets, ridge, u)


def _quasi_newton(
    loss: ConvexLoss, coordinates: Coordinates, targets: np.ndarray, ridge: float, u: np.ndarray
) -> Fit:
    """Minimize as `fit` does, by L-BFGS, without a Hessian."""
    rows, outputs = coordinates.rows, coordinates.outputs
    metric = coordinates.penalty() if ridge else None

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        at = flat.reshape(u.shape)
        z = coordinates.predictions(at)
        value = float(loss.value(z, targets).mean())
        gradient = rows.T @ (loss.slope(z, targets) @ outputs) / len(rows)
        if metric is not None:
            value += ridge * float(np.sum(at * (metric @ at)))
            gradient = gradient + 2 * ridge * metric @ at
        return value, gradient.ravel()

    def stop_if_separated(flat: np.ndarray) -> None:
        if not ridge and _separates(loss, coordinates, targets, flat.reshape(u.shape)):
            raise StopIteration

    size = np.abs(objective(np.zeros(u.size))[1]).max()
    options = {
        "maxiter": QUASI_NEWTON_STEPS,
        "maxfun": 2 * QUASI_NEWTON_STEPS,
        "gtol": GRADIENT_TOLERANCE * size,
        "ftol": 0.0,
    }
    found = minimize(
        objective, u.ravel(), method="L-BFGS-B", jac=True, options=options,
        callback=stop_if_separated,
    ).x.reshape(u.shape)  # fmt: skip
    if not ridge and _separates(loss, coordinates, targets, found):
        return _separated(loss, coordinates, targets, found)
    settled = np.abs(objective(found.ravel())[1]).max() <= GRADIENT_TOLERANCE * size
    return Fit(found, coordinates.predictions(found), bool(settled))


def _newton(
    loss: ConvexLoss, coordinates: Coordinates, targets: np.ndarray, ridge: float, u: np.ndarray
) -> Fit:
    rows, outputs = coordinates.rows, coordinates.outputs
    n, k = len(rows), outputs.shape[1]
    metric = coordinates.penalty() if ridge else None
    z = coordinates.predictions(u)
    separable, checked = None, False
    for _ in range(NEWTON_STEPS):
        gradient = rows.T @ (loss.slope(z, targets) @ outputs) / n
        if metric is not None:
            gradient = gradient + 2 * ridge * metric @ u
        hessian = assembled(rows, outputs.T @ loss.blocks(z, targets) @ outputs)
        if metric is not None:
            hessian = hessian + 2 * ridge * np.kron(np.eye(k), metric)
        if not np.any(gradient):
            return _least_norm(loss, coordinates, targets, Fit(u, z, True), hessian)
        step = -_solved(hessian, gradient.T.reshape(-1)).reshape(k, -1).T
        change, descent = coordinates.predictions(step), float(np.sum(gradient * step))
        scale, size = 1 + float(np.abs(z).max()), float(np.abs(change).max())
        if not np.isfinite(size):
            break
        quadratic = 0.0 if metric is None else ridge * float(np.sum(step * (metric @ step)))
        excess = partial(_excess, loss, targets, z, change, quadratic)
        length = _backtracked(excess, descent)
        u, z = u + length * step, z + length * change
        if length == 1.0 and size <= STEP_TOLERANCE * scale:
            return _least_norm(loss, coordinates, targets, Fit(u, z, True), hessian)
        if not ridge and scale > SUSPICIOUS_SIZE and _separates(loss, coordinates, targets, u):
            return _separated(loss, coordinates, targets, u)
        if not ridge and not checked and scale > SUSPICIOUS_SIZE:
            separable, checked = is_separable(loss, coordinates, targets, u), True
        if checked and separable is not False and -descent < 1e-17:
            return Fit(u, z, False, True)
    return Fit(u, z, False, bool(separable))


def _least_norm(
    loss: ConvexLoss,
    coordinates: Coordinates,
    targets: np.ndarray,
    found: Fit,
    hessian: np.ndarray,
) -> Fit:
    """Return the minimizer of least norm among those that differ along the kernel of H.

    Losses with linear parts can have several minimizers. If the one of least norm is at the end of
    a linear part, where φ'' is undefined, the minimizer found is returned.
    """
    values, vectors = np.linalg.eigh(hessian)
    kernel = vectors[:, values <= 1e-12 * max(values[-1], np.finfo(float).tiny)]
    if kernel.shape[1] == 0:
        return found
    moves = [column.reshape(-1, len(coordinates.rows.T)).T for column in kernel.T]
    directions = np.array([coordinates.theta(move).ravel() for move in moves]).T
    share = np.linalg.lstsq(directions, coordinates.theta(found.coordinates).ravel())[0]
    u = found.coordinates - sum(c * move for c, move in zip(share, moves, strict=True))
    z = coordinates.predictions(u)
    slope = coordinates.rows.T @ loss.slope(z, targets) / len(z)
    size = np.abs(coordinates.rows).mean() * np.abs(loss.slope(z, targets)).mean()
    return Fit(u, z, True) if np.all(np.abs(slope) <= 1e-10 * size) else found


def assembled(rows: np.ndarray, blocks: np.ndarray) -> Float[np.ndarray, "kr kr"]:
    """Return (1/n)Σ_i B_i ⊗ x_ix_iᵀ for blocks B_i (n, k, k), class-major."""
    (n, r), k = rows.shape, blocks.shape[-1]
    matrix = np.empty((k, r, k, r))
    for a, b in zip(*np.triu_indices(k), strict=True):
        matrix[a, :, b] = rows.T @ (blocks[:, a, b, None] * rows) / n
        matrix[b, :, a] = matrix[a, :, b].T
    return matrix.reshape(k * r, k * r)


def _starting_point(loss: ConvexLoss, coordinates: Coordinates, targets: np.ndarray) -> np.ndarray:
    """Return the least-squares fit to the loss's first guess of the predictions."""
    guess = loss.first_guess(targets) @ coordinates.outputs
    size = coordinates.rows.shape[1], coordinates.outputs.shape[1]
    return np.linalg.lstsq(coordinates.rows, guess)[0] if np.any(guess) else np.zeros(size)


def _solved(hessian: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return H⁻¹g; where H is singular, (H + τI)⁻¹g with τ of the size of g.

    This is the method of Levenberg and Marquardt.
    """
    scales = np.sqrt(np.maximum(np.diag(hessian), np.finfo(float).tiny))
    if (solve := solver(hessian / np.outer(scales, scales))) is not None:
        return solve(gradient / scales) / scales
    size, steepness = float(np.trace(hessian)) / len(hessian), float(np.linalg.norm(gradient))
    damping = max(min(steepness, 1e-3 * size), 1e-14 * size) if size > 0 else steepness
    return np.linalg.solve(hessian + damping * np.eye(len(hessian)), gradient)


def _excess(
    loss: ConvexLoss,
    y: np.ndarray,
    z: np.ndarray,
    change: np.ndarray,
    quadratic: float,
    length: float,
) -> float:
    rounding = 4 * np.finfo(float).eps * abs(float(loss.value(z, y).mean()))
    return float(loss.excess(z, z + length * change, y).mean()) + length**2 * quadratic - rounding


def _backtracked(excess: Callable[[float], float], descent: float) -> float:
    """Return the first of 1, ½, ¼, … that meets the Armijo condition with factor ¾.

    The excess over the tangent is accurate for small steps, where a difference of risks is
    dominated by rounding.
    """
    length = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        while length > 1e-12 and not excess(length) <= -0.75 * length * descent:
            length /= 2
    return length


def _separates(
    loss: ConvexLoss, coordinates: Coordinates, targets: np.ndarray, u: np.ndarray
) -> bool:
    """Return whether the predictions of u have the right class for every sample."""
    z = coordinates.predictions(u)
    return isinstance(loss, Softmax | Logistic) and bool(_smallest_margin(loss, targets, z) > 0)


def _smallest_margin(loss: ConvexLoss, targets: np.ndarray, z: np.ndarray) -> float:
    if not isinstance(loss, Softmax):
        return float((targets * z).min())
    right = z[targets == 1]
    return float((right - np.where(targets == 1, -np.inf, z).max(axis=1)).min())


def _separated(
    loss: ConvexLoss, coordinates: Coordinates, targets: np.ndarray, u: np.ndarray
) -> Fit:
    """Return a fit that separates the classes, scaled so that its risk is near the infimum 0."""
    z = coordinates.predictions(u)
    factor = max(1.0, SEPARATING_MARGIN / _smallest_margin(loss, targets, z))
    return Fit(factor * u, factor * z, False, True)


def is_separable(
    loss: ConvexLoss, coordinates: Coordinates, targets: np.ndarray, u: np.ndarray
) -> bool | None:
    """Return whether a direction increases no sample's loss and decreases one (X-16).

    The risk then has no minimizer. A linear program decides (None: it is too large): the largest
    sum of margins over directions in the unit cube along which no margin is negative. Margins are
    s·v_i for a change v of the predictions, and v_i of the right class minus that of each other
    class for softmax. If the direction u has positive margins only, no linear program is needed.
    """
    if len(targets) * targets.shape[1] * u.size > LARGEST_PROGRAM:
        return None
    from scipy.optimize import linprog  # takes half a second, and most data do not need it

    found = _margins(loss, coordinates, targets)
    if found is None:
        return False
    margins, fixed = found
    margins = margins[np.any(margins, axis=1)]
    if len(fixed) == 0 and len(margins) and np.all(margins @ u.T.reshape(-1) > 0):
        return True
    if len(margins) == 0:
        return False
    margins = margins / np.linalg.norm(margins, axis=1, keepdims=True)
    equal = {"A_eq": fixed, "b_eq": np.zeros(len(fixed))} if len(fixed) else {}
    answer = linprog(
        -margins.sum(axis=0), A_ub=-margins, b_ub=np.zeros(len(margins)), bounds=(-1, 1), **equal
    )
    if answer.status != 0:
        return False
    values = margins @ answer.x
    return bool(values.max() > 10 * MARGIN_TOLERANCE and values.min() >= -MARGIN_TOLERANCE)


def _margins(
    loss: ConvexLoss, coordinates: Coordinates, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return rows whose products with a direction must be nonnegative, and rows where zero."""
    rows, outputs = coordinates.rows, coordinates.outputs
    if isinstance(loss, Softmax):
        sample, other = np.nonzero(targets == 0)
        apart = outputs[targets.argmax(axis=1)[sample]] - outputs[other]
        return (apart[:, :, None] * rows[sample][:, None, :]).reshape(len(sample), -1), rows[:0]
    found = loss.decreasing(targets)
    if found is None:
        return None
    signs, bounded = found
    return (signs[:, None] * rows)[signs != 0], rows[bounded]


def _zero_sum(q: int) -> Float[np.ndarray, "q k"]:
    """Return an orthonormal basis of the vectors whose entries sum to zero."""
    return np.linalg.qr(np.eye(q)[:, 1:] - 1 / q)[0]
