"""Problems with a convex loss other than the squared one: logistic, Poisson, Huber, softmax …

Their minimizers are found by Newton's method, if there are any (X-14, X-16).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from deeplin.errors import InputError, whole_number
from deeplin.problems.linear_maps import as_columns, as_map
from deeplin.problems.losses import ConvexLoss, Logistic, Softmax
from deeplin.problems.moments import is_tall, numerical_rank, solver, thin_svd
from deeplin.problems.problem import Problem, Spectrum
from deeplin.problems.reduced_rank import BestOfRank, Factors

NEWTON_STEPS = 500
STEP_TOLERANCE = 1e-8
"""Change of the predictions, relative to 1 + their size, after which one more step is taken; that
step squares the error."""
SUSPICIOUS_SIZE = 25.0
"""Size of the predictions above which the data may have no minimizer."""
REUSE_FACTOR = 0.3
"""Largest ratio of consecutive steps at which the Hessian of many rows is reused."""
SUBSAMPLING = 16
"""One in this many rows is used to find a starting point, if there are many rows."""
FEW_BLOCKS = 4
"""Number of classes from which the Hessian is assembled by a single product of matrices."""
PRODUCTS_IN_MEMORY = 2**22
"""Most products of two inputs that are kept at once for the Hessian."""
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


class GeneralizedLinear(eqx.Module):
    """R(Θ) = (1/n)Σφ(Θᵀx_i, y_i) of any convex loss φ (X-14, X-17), from the rows.

    R − R_min is computed accurately as the mean excess of φ over its tangents at the predictions of
    a minimizer. For data without a minimizer the infimum is subtracted.
    """

    inputs: Float[Array | np.ndarray, "n d"]
    targets: Float[Array | np.ndarray, "n q"]
    predictions: Float[Array | np.ndarray, "n q"] | None
    """Predictions of a minimizer, if there is one."""
    minimal_risk: Float[Array | np.ndarray, ""]
    """The infimum of R."""
    loss: ConvexLoss = eqx.field(static=True)

    def value_and_gradient(self, theta: Any) -> tuple[Any, Any]:
        """Return R(Θ) − `minimal_risk` and ∇R(Θ) of Θ (…, d, q)."""
        z, n = self.inputs @ theta, self.inputs.shape[0]
        gradient = self.inputs.T @ self.loss.slope(z, self.targets) / n
        if self.predictions is None:
            return self.loss.value(z, self.targets).mean(axis=-1) - self.minimal_risk, gradient
        return self.loss.excess(self.predictions, z, self.targets).mean(axis=-1), gradient

    def curvature_product(self, theta: Any, direction: Any) -> Any:
        """Return ∇²R(Θ)[D] = (1/n)Xᵀ φ''(XΘ)[XD]."""
        second = self.loss.second_product(
            self.inputs @ theta, self.targets, self.inputs @ direction
        )
        return self.inputs.T @ second / self.inputs.shape[0]


@dataclass(frozen=True, eq=False, repr=False)
class GeneralizedLinearProblem(Problem):
    """R(Θ) = (1/n)Σφ(Θᵀx_i, y_i), φ convex; built by `Problem.from_data(X, y, loss=...)`.

    H and H^{1/2}w are the same at all minimizers of a loss of one output (X-14), so that H/2 takes
    the place of Σ̂ in what is known about least squares.
    """

    @cached_property
    def coordinates(self) -> Coordinates:
        """Bases of the inputs and outputs that change predictions."""
        return Coordinates.of(self._rows[0], self.convex_loss, self.outputs)

    @property
    def has_minimizer(self) -> bool:
        """Whether the risk attains its infimum: not for classes that a hyperplane separates."""
        return self._fit.settled

    @property
    def last_iterate(self) -> np.ndarray:
        """Last iterate of Newton's method, in the shape of the optimum, if there is one."""
        return as_map(self.coordinates.theta(self._fit.coordinates))

    @cached_property
    def optimum_columns(self) -> np.ndarray:
        """Θ*: the minimizer of least norm, (d, q); raises where there is none (X-16)."""
        if self._fit.settled:
            return self.coordinates.theta(self._fit.coordinates)
        if not self._fit.separable:
            raise InputError(
                "Newton's method found no minimizer of this loss: it may have none on these data, "
                "or its derivatives may be wrong. Scale the inputs, or pass another loss."
            )
        if self.classes is None:
            raise InputError(
                "the risk has no minimizer: in some direction the predictions of samples with "
                "count 0 decrease forever while no other changes. Remove the inputs that only "
                "samples with count 0 have, or add weight decay."
            )
        raise InputError(
            "the risk has no minimizer: the classes are linearly separable, so it keeps "
            "decreasing as the weights grow, and the sharpness tends to 0 with it (X-16). Add "
            "weight decay (theory.decayed_minimum), or samples or fewer inputs so that the "
            "classes overlap."
        )

    @cached_property
    def minimal_risk(self) -> float:
        """R_min, the infimum where it is not attained."""
        return float(self.convex_loss.value(self._fit.predictions, self._rows[1]).mean())

    @cached_property
    def risk_of_columns(self) -> GeneralizedLinear:
        """The risk about its optimum with NumPy arrays, in double precision."""
        predictions = self._fit.predictions if self._fit.settled else None
        return GeneralizedLinear(
            *self._rows, predictions, np.asarray(self.minimal_risk), self.convex_loss
        )

    def gap(self, theta: np.ndarray) -> np.ndarray:
        """Return R − R_min of linear maps, (…, q, d) or (…, d)."""
        columns = as_columns(np.asarray(theta), self.outputs)
        return self.risk_of_columns.value_and_gradient(columns)[0]

    def value_and_gradient(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return R and ∇R of linear maps, (…, q, d) or (…, d); the gradient has their shape."""
        columns = as_columns(np.asarray(theta), self.outputs)
        gap, gradient = self.risk_of_columns.value_and_gradient(columns)
        return self.minimal_risk + gap, as_map(gradient)

    def slope_bound(self, theta: np.ndarray) -> np.ndarray:
        """Return ‖X‖_F‖φ'‖_F/n ≥ ‖∇R‖ of maps (…, q, d) or (…, d), at least that of Θ = 0."""
        X, y = self._rows
        z = X @ as_columns(theta, self.outputs)
        at = (self.convex_loss.slope(at, y) for at in (z, np.zeros_like(y)))
        sizes = (np.linalg.norm(slope, axis=(-2, -1)) for slope in at)
        return np.linalg.norm(X) * np.maximum(*sizes) / self.samples

    @cached_property
    def curvature(self) -> np.ndarray:
        """H at Θ*: (d, d), or (q·d, q·d) class-major for softmax."""
        return self.curvature_at(self.optimum)

    def curvature_at(self, theta: np.ndarray) -> np.ndarray:
        """Return H(Θ) = ∇²R at a linear map, (q, d) or (d,), in the layout of `curvature`."""
        X, y = self._rows
        return assembled(X, self.convex_loss.blocks(X @ as_columns(theta, self.outputs), y))

    @cached_property
    def spectrum(self) -> Spectrum:
        """The nonzero eigenvalues of H/2, largest first, with eigenvectors and w* in that basis."""
        self.require_single_target("the spectrum of H/2 as a matrix of the inputs")
        rows, optimum = self.curvature_rows("the spectrum of H"), self.optimum_columns
        _, singular, right = thin_svd(rows, rows[:, :0])
        keep = singular > np.finfo(np.float64).eps * max(rows.shape) * singular[0]
        vectors = right[keep].T
        return Spectrum(singular[keep] ** 2 / len(rows), vectors, vectors.T @ optimum)

    def curvature_rows(self, quantity: str) -> np.ndarray:
        """Return (φ_i''/2)^{1/2}x_i at the optimum, for one output."""
        self.require_single_target(quantity)
        X, y = self._rows
        return np.sqrt(self.convex_loss.second(X @ self.optimum_columns, y) / 2) * X

    @property
    def residual_share(self) -> float:
        """Mean of φ'² at the optimum over that at zero: 0 if every φ_i' vanishes."""
        X, y = self._rows
        at = [X @ self.optimum_columns, np.zeros_like(y)]
        there, zero = (float(np.mean(self.convex_loss.slope(z, y) ** 2)) for z in at)
        return there / zero if zero > 0 else 0.0

    def best_of_rank(self, rank: int) -> BestOfRank:
        """Return the product of rank at most r with the least risk that descent finds (X-34)."""
        r = whole_number("rank", rank)
        optimum = self.optimum_columns
        values = np.linalg.svd(optimum, compute_uv=False)
        full = numerical_rank(values, max(optimum.shape))
        if r >= full:
            product, excess = optimum, 0.0
        else:
            if r not in self._best_products:
                self._best_products[r] = self._best_factors(r)
            product = self._best_products[r]
            excess = float(self.risk_of_columns.value_and_gradient(product)[0])
        return BestOfRank(
            product=as_map(product),
            risk=self.minimal_risk + excess,
            excess=excess,
            rank=min(r, full),
            unique=r >= full,
            exact=r >= full,
        )

    @cached_property
    def _best_products(self) -> dict[int, np.ndarray]:
        return {}

    def _best_factors(self, rank: int) -> np.ndarray:
        """Return the best product (d, q) of this rank that descent finds, in whitened inputs."""
        loss, targets, E = self.convex_loss, self._rows[1], self.coordinates.outputs
        Q, R = np.linalg.qr(self.coordinates.rows)
        n, rows = len(Q), np.sqrt(len(Q)) * Q

        def risk(product: np.ndarray) -> tuple[float, np.ndarray]:
            z = rows @ product @ E.T
            return float(loss.value(z, targets).mean()), rows.T @ (loss.slope(z, targets) @ E) / n

        def hessian(product: np.ndarray) -> np.ndarray:
            return assembled(rows, E.T @ loss.blocks(rows @ product @ E.T, targets) @ E)

        best = Factors(risk, hessian, rows.shape[1], E.shape[1], rank).least(
            R @ self._fit.coordinates / np.sqrt(n)
        )
        return self.coordinates.theta(np.linalg.solve(R, np.sqrt(n) * best))

    def require_signal(self, quantity: str) -> None:
        """Raise InputError if w* = 0 or H^{1/2}w* = 0, where the infimum of S is 0."""
        super().require_signal(quantity)
        if self.outputs == 1:
            size = float(np.linalg.norm(self.spectrum.coordinates))
            if size <= 1e-14 * self.optimum_norm:
                raise InputError(
                    f"{quantity} is 0, and no minimizer has it: the risk does not bend along w* "
                    "(every sample that sees w* lies on a linear part of the loss)."
                )

    @property
    def zero_risk(self) -> float:
        """R(0), the risk of the zero map."""
        return self.minimal_risk + self.zero_gap

    def only_target(self, index: int) -> Problem:
        """Return the problem itself, because its outputs are fitted together."""
        return self

    _solution_name, _curvature_name = "minimizer", "H"

    @cached_property
    def _eigenvalues(self) -> np.ndarray:
        if not isinstance(self.convex_loss, Softmax):
            return self.spectrum.eigenvalues
        values = np.linalg.eigvalsh(self.curvature)[::-1] / 2
        return values[values > np.finfo(np.float64).eps * len(values) * max(values[0], 0.0)]

    @cached_property
    def _fit(self) -> Fit:
        return fit(self.convex_loss, self.coordinates, self._rows[1])

    @property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        return self.require_data("a loss that is not squared")


# --- Newton's method ------------------------------------------------------------------------------


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
                :: max(1, n // max(n // SUBSAMPLING, 4 * d))
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
    rows, outputs = coordinates.rows, coordinates.outputs
    many = 8 * SUBSAMPLING * rows.shape[1] * outputs.shape[1]
    if start is None and is_tall(rows) and len(rows) > many:
        # the minimizer of a sixteenth of the rows is close to that of all rows
        part = coordinates._replace(rows=np.ascontiguousarray(rows[::SUBSAMPLING]))
        near = fit(loss, part, targets[::SUBSAMPLING], ridge=ridge)
        start = near.coordinates if near.settled else None
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
    separable, checked, hessian = None, False, np.zeros((0, 0))
    reuse, before = False, np.inf
    for _ in range(NEWTON_STEPS):
        gradient = rows.T @ (loss.slope(z, targets) @ outputs) / n
        if metric is not None:
            gradient = gradient + 2 * ridge * metric @ u
        if not reuse:
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
        length = 1.0 if reuse and size <= before else _backtracked(excess, descent)
        u, z = u + length * step, z + length * change
        # With an old Hessian the convergence is linear, not quadratic.
        if length == 1.0 and size <= (STEP_TOLERANCE**2 * 1e3 if reuse else STEP_TOLERANCE) * scale:
            return _least_norm(loss, coordinates, targets, Fit(u, z, True), hessian)
        reuse = length == 1.0 and size <= REUSE_FACTOR * min(scale, before) and is_tall(rows)
        before = size
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
    pairs = np.triu_indices(k)
    if k < FEW_BLOCKS:
        matrix = np.empty((k, r, k, r))
        for a, b in zip(*pairs, strict=True):
            matrix[a, :, b] = rows.T @ (blocks[:, a, b, None] * rows) / n
            matrix[b, :, a] = matrix[a, :, b].T
        return matrix.reshape(k * r, k * r)
    upper = np.triu_indices(r)
    entries = np.zeros((len(pairs[0]), len(upper[0])))
    step = max(1, PRODUCTS_IN_MEMORY // len(upper[0]))
    for first in range(0, n, step):  # one product of two matrices for all pairs of classes
        part = rows[first : first + step]
        squares = part[:, upper[0]] * part[:, upper[1]]
        entries += blocks[first : first + step, pairs[0], pairs[1]].T @ squares
    matrix = np.empty((k, k, r, r))
    matrix[pairs[0][:, None], pairs[1][:, None], upper[0], upper[1]] = entries / n
    matrix[pairs[0][:, None], pairs[1][:, None], upper[1], upper[0]] = entries / n
    matrix[pairs[1], pairs[0]] = matrix[pairs[0], pairs[1]]
    return matrix.transpose(0, 2, 1, 3).reshape(k * r, k * r)


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
