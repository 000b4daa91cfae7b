"""Exact results on wide networks and benign overfitting, X-4 to X-6 and X-25 to X-33."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, Hypothesis, NotApplicable, ratio, statement, value
from deeplin.certificates.statements.benign_overfitting import split_of_interpolator
from deeplin.theory.benign_overfitting import (
    best_interpolant,
    degrees_of_freedom_bounds,
    noise_cost,
    noise_cost_bound,
)
from deeplin.theory.ridgeless import ridgeless_risk
from deeplin.theory.wide_networks import zero_first_modes, zero_last_modes

Bound = Callable[[np.ndarray, int], np.ndarray]
"""Squared singular values of U from those of P_XΘ, for the start of a run."""
RADII = np.geomspace(1e-4, 0.999, 120)
"""Distances ρ at which the hypothesis of X-31 is tested."""


def _subspaces(context: Context) -> list[np.ndarray]:
    """Return orthonormal columns (batch, d_k, r) that span H_1 … H_{L−1}.

    The middle layers must be orthogonal.

    H_1 is the span of W_1(0)Q and of W_2(0)ᵀ…W_L(0)ᵀ, carried up by the middle layers. Columns
    beyond its dimension are zero.
    """
    context.several_layers()
    if context.problem.rank == 0:
        raise NotApplicable("for nonzero inputs")
    for layer in context.initial[1:-1]:
        gram = layer.mT @ layer
        if layer.shape[-1] != layer.shape[-2] or not np.allclose(gram, np.eye(gram.shape[-1])):
            raise NotApplicable("for middle layers that start orthogonal, such as the identity")
    start = 0 if len(context.backward[1]) > 1 else -1
    span = np.concatenate(
        [context.initial[0] @ context.problem.spectrum.vectors, context.backward[1][start]], axis=-1
    )
    left, sizes, _ = np.linalg.svd(span, full_matrices=False)
    floor = 100 * np.finfo(float).eps * np.sqrt(max(span.shape[1:])) * sizes[:, :1]
    basis = left * (sizes > floor)[:, None, :]
    bases = [basis]
    for layer in context.initial[1:-1]:
        bases.append(layer @ bases[-1])
    return bases


@statement("X-4", Context.stays_finite, Context.by_gradients)
def exact_reduction(context: Context) -> Check:
    """Check orthogonal middle layers, under descent, momentum and flow, at every record."""
    last = np.eye(context.widths[-1])
    if context.readout is not None:
        last = (context.readout / context.readout_norm[:, None])[..., None]
    spaces = [context.problem.spectrum.vectors, *_subspaces(context), last]
    used = context.problem.rank + spaces[-1].shape[-1]
    if context.width <= used:
        raise NotApplicable(
            f"for hidden layers wider than rank X + q = {used}; their width is {context.width}"
        )
    left, sizes = [], []
    for k, layer in enumerate(context.weights):
        change = layer - context.initial[k]
        upper, lower = spaces[k + 1], spaces[k]
        block = upper.mT @ change @ lower
        outside = change - upper @ block @ lower.mT
        left.append(np.linalg.norm(outside, axis=(-1, -2)))
        sizes.append(context.layer_norms[..., k] + context.layer_norms[:1, :, k])
    left, scale = (np.stack(parts, axis=-1) for parts in (left, sizes))
    grown = (context.condition * context.amplification)[:, None]
    known = {"subtracted": scale, "condition": grown, "slack": context.flow_slack}
    return Check(left, 0.0, scale=scale, **known)


@statement("X-5", Context.identity_middle)
def reduced_width(context: Context) -> Check:
    """Report the width r to which training reduces; `simulate_wide` draws it for any m."""
    needed = context.problem.rank + context.problem.outputs
    return value(float(min(context.width, needed)), "r")


@statement("X-6", Context.stays_finite, Context.by_gradients, Context.wide_data)
def minimum_norm_condition(context: Context) -> Check:
    """Check Θ_⊥(t) = NᵀV_1(t) with N = VᵀW_1(0)(I − P_X), which stays 0 if N = 0."""
    reached = np.linalg.norm(context.unseen_first @ _subspaces(context)[0], axis=(-1, -2))
    above = np.linalg.norm(context.backward[1], 2, axis=(-2, -1))
    scale = np.prod(context.layer_norms, axis=-1)
    grown = context.condition * context.amplification
    known = {"subtracted": scale, "condition": grown, "slack": context.flow_slack}
    return Check(context.perpendicular_norm, reached * above, scale=scale, **known)


def _seen(context: Context) -> np.ndarray:
    """Return W_1(0)Q, the first layer on the data, (batch, m, n)."""
    context.identity_middle()
    if context.readout is not None:
        raise NotApplicable("for networks without a read-out")
    return context.initial[0] @ context.problem.spectrum.vectors


def _extremes(layers: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest of `count` singular values, 0 where there are fewer, and the largest."""
    values = np.linalg.svd(layers, compute_uv=False)
    smallest = values[:, count - 1] if values.shape[1] >= count else np.zeros(len(values))
    return smallest, values[:, 0]


def _ends(context: Context) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return σ and S of W_1(0)Q, then of W_L(0), each (batch,)."""
    first = _extremes(_seen(context), context.problem.rank)
    return (*first, *_extremes(context.initial[-1], context.problem.outputs))


@statement("X-25", Context.stays_finite, Context.identity_middle)
def conditional_law(context: Context) -> Check:
    """Report how many standard deviations ‖Θ_⊥‖² is from its mean, for a Gaussian first layer."""
    problem, first, above = context.problem, context.initial[0], context.backward[1][-1]
    free = problem.dimension - problem.rank
    alpha2 = np.sum(context.unseen_first**2, axis=(-2, -1)) / (free * first.shape[-2])
    squares = np.linalg.norm(above.mT @ above, axis=(-2, -1))
    mean = alpha2 * free * np.sum(above**2, axis=(-2, -1))
    deviation = alpha2 * np.sqrt(2 * free) * squares
    found = context.perpendicular_norm[-1]
    squares = np.where(found > context.map_rounding, found, 0.0) ** 2
    return value(ratio(np.abs(squares - mean), deviation), "measured: deviations from the mean")


@statement("X-26")
def convergence_rate(context: Context) -> list[Check]:
    """Check (i) a small last layer, ε = ‖W_L(0)‖², and (ii) a small first one, ε = ‖W_1(0)Q‖²."""
    first_low, first_high, last_low, last_high = _ends(context)
    hidden = context.depth - 2
    parts = (
        ("(i) small last layer", first_low**2, last_high**2),
        ("(ii) small first layer", last_low**2, first_high**2),
    )
    checks = []
    for name, square, epsilon in parts:
        limit = np.minimum(square, 1.0) if hidden else square
        met = epsilon < limit
        left = np.maximum(square - epsilon, 0) * np.maximum(1 - epsilon, 0) ** hidden
        rate = 4 * context.smallest_singular**2 * np.where(met, left, 0.0)
        hypotheses = context.under_flow() | {"ε < min(1, σ²)": Hypothesis(epsilon, "<", limit)}
        factor = np.exp(-rate * context.time)
        checks.append(context.loss_below(factor, name, hypotheses=hypotheses))
    return checks


def _between(context: Context, lower: Bound, upper: Bound, met: dict) -> list[Check]:
    """Check both sides of ‖U(t)‖², with the singular values of P_XΘ(t) at each record."""
    inside = context.problem.spectrum.vectors.T @ context.backward[0]
    found = np.linalg.svd(inside, compute_uv=False)
    records, batch = found.shape[:2]
    singular = np.zeros((records, batch, context.problem.outputs))
    singular[..., : found.shape[-1]] = found
    low, high = (
        np.array([[np.sum(bound(of[k], k)) for k in range(batch)] for of in singular])
        for bound in (lower, upper)
    )
    squares = np.broadcast_to(np.sum(context.backward[1] ** 2, axis=(-2, -1)), low.shape)
    shared = {"hypotheses": met, "slack": context.flow_slack, "scale": high}
    return [
        Check(low, squares, "from below", **shared),
        Check(squares, high, "from above", **shared),
    ]


@statement("X-27")
def zero_last_layer(context: Context) -> list[Check]:
    """Check a flow with β = 0 at all times, with s_i of P_XΘ(t), at its end those of Θ_min."""
    low, high = _ends(context)[:2]
    last = np.max(np.abs(context.initial[-1]), axis=(-2, -1))
    met = context.under_flow() | {
        "W_L(0) = 0": Hypothesis(last, "≤", 0.0),
        "rank W_1(0)Q = n": Hypothesis(low, ">", 0.0),
    }
    L = context.depth
    return _between(
        context,
        lambda s, run: zero_last_modes(s, high[run] ** 2, L),
        lambda s, run: zero_last_modes(s, low[run] ** 2, L),
        met,
    )


@statement("X-28")
def zero_first_layer(context: Context) -> list[Check]:
    """Check the value between those of the largest and the smallest singular value of W_L(0)."""
    _, seen, low, high = _ends(context)
    met = context.under_flow() | {
        "W_1(0)Q = 0": Hypothesis(seen, "≤", 0.0),
        "rank W_L(0) = q": Hypothesis(low, ">", 0.0),
    }
    L = context.depth
    return _between(
        context,
        lambda s, run: zero_first_modes(s, high[run] ** 2, L, low[run] ** 2),
        lambda s, run: zero_first_modes(s, low[run] ** 2, L, high[run] ** 2),
        met,
    )


class Ball(NamedTuple):
    """The hypothesis of X-31 for one run: a distance ρ that descent keeps, with its constants."""

    met: bool
    distance: float = np.inf
    """ρ_* = √(ℒ_0/μ)/(1−c/2)."""
    rate: float = 0.0
    """4ημ(1−c/2)."""
    path: float = np.inf
    """√ℒ_0/(2μ(1−c/2)), above Σ_t η√ℒ_t."""
    growth: float = np.inf
    """Bound of ‖Θ_⊥(T)−Θ_⊥(0)‖/‖W_1(0)(I−P)‖."""


def _curvature(norms: np.ndarray, input_norm: float, loss: float) -> float:
    """Return H = 2‖X‖²Σp_j² + 2‖X‖√ℒ λ_max(P) for layers of at most these norms ω_k (X-31)."""
    total = np.prod(norms)
    others = total / norms
    pairs = others[:, None] / norms
    np.fill_diagonal(pairs, 0.0)
    bend = np.linalg.eigvalsh(pairs)[-1]
    return float(2 * input_norm**2 * np.sum(others**2) + 2 * input_norm * np.sqrt(loss) * bend)


def _seen_growth(norms: np.ndarray) -> tuple[float, float]:
    """Return (Σ_{j≥2}π_j²)^{1/2} and Σ_{j≥2}π_jp_j, π_j = Π_{k≥2,k≠j}ω_k, p_j = Π_{k≠j}ω_k."""
    above = np.prod(norms[1:]) / norms[1:]
    return float(np.sqrt(np.sum(above**2))), float(np.sum(above**2) * norms[0])


def _ball(context: Context, ends: np.ndarray, loss: float, step: float) -> Ball:
    """Return the smallest ρ_* over `RADII` with ρ_* ≤ ρ, for `ends` = (σ_1, S_1, σ_L, S_L)."""
    low_1, high_1, low_L, high_L = ends
    hidden, X, best = context.depth - 2, context.input_norm, Ball(False)
    for radius in RADII:
        norms = np.array([high_1 + radius, *[1 + radius] * hidden, high_L + radius])
        first, last, middle = max(low_1 - radius, 0), max(low_L - radius, 0), (1 - radius) ** 2
        both = hidden * (first * last) ** 2 * middle ** max(hidden - 1, 0)
        mu = context.smallest_singular**2 * ((first**2 + last**2) * middle**hidden + both)
        c = step * _curvature(norms, X, loss)
        if mu == 0 or c >= 2:
            continue
        slow = 1 - c / 2
        distance = np.sqrt(loss / mu) / slow
        if distance <= radius and distance < best.distance:
            path = np.sqrt(loss) / (2 * mu * slow)
            near, far = _seen_growth(norms)
            growth = min(near * distance, 2 * X * far * path)
            best = Ball(True, float(distance), 4 * step * mu * slow, float(path), float(growth))
    return best


@statement("X-31")
def descent(context: Context) -> list[Check]:
    """Check locally, with the best ρ; globally from β = 0."""
    ends, plain = np.stack(_ends(context), axis=-1), _plain_descent(context)
    step = context.learning_rate / context.problem.samples  # on ℒ = nR
    balls = [_ball(context, *given) for given in zip(ends, context.loss[0], step, strict=True)]
    near, rate, path, growth = (
        np.array([getattr(ball, name) for ball in balls])
        for name in ("distance", "rate", "path", "growth")
    )
    local = plain | {"some ρ has ρ_* ≤ ρ": np.array([ball.met for ball in balls])}
    squares = [np.sum((w - w[:1]) ** 2, axis=(-2, -1)) for w in context.weights]
    change = context.perpendicular - context.perpendicular[:1]
    moved = np.linalg.norm(change, axis=(-2, -1))
    size = np.linalg.norm(context.unseen_first, 2, axis=(-2, -1))
    known = {"subtracted": context.map_size, "condition": context.condition}
    every = np.all(np.diff(context.times) <= 1)
    summed = {"Σ η√ℒ recorded": every or "path" in context.run.records}
    power = context.times[:, None]
    return [
        Check(
            np.sqrt(np.sum(squares, axis=0)),
            near,
            "(a) distance",
            hypotheses=local,
            subtracted=np.sqrt(np.sum(context.layer_norms**2, axis=-1)),
            condition=context.condition,
        ),
        context.loss_below((1 - rate) ** power, "(b) loss", hypotheses=local),
        Check(context.path, path, "(c) Σ η√ℒ", hypotheses=local | summed),
        Check(moved, size * growth, "(d) Θ_⊥", hypotheses=local, **known),
        _from_zero(context, ends, step, plain),
    ]


def _plain_descent(context: Context) -> dict:
    """Return the hypothesis of full-batch descent with one rate."""
    if context.is_flow or not context.has_path:
        raise NotApplicable("for gradient descent; X-26 speaks of gradient flow")
    return {"plain descent": context.run.plain} | context.stays_finite()


def _from_zero(context: Context, ends: np.ndarray, step: np.ndarray, met: dict) -> Check:
    """Check descent from β = 0, without a condition on the width (X-31, global)."""
    L, Y, sigma, X = (
        context.depth,
        context.target_norm,
        context.smallest_singular,
        context.input_norm,
    )
    rates, enough = np.zeros(context.batch), np.zeros(context.batch, bool)
    for run, (low, high, _, last) in enumerate(ends):
        if low == 0 or last > 0:
            continue
        epsilon = min(1 / (2 * L**2), low**2 / (2 * L))
        bar = 16 * Y**2 / (sigma * low) ** 2
        norms = np.sqrt([high**2 + bar + 1, *[2 + bar] * (L - 2), bar])
        c = step[run] * _curvature(norms, X, Y**2)
        enough[run] = c < 2 and step[run] * Y**2 <= (1 - c / 2) * epsilon
        rates[run] = (1 - c / 2) * step[run] * (sigma * low) ** 2 if enough[run] else 0.0
    hypotheses = met | {"W_L(0) = 0, rank W_1(0)Q = n, η small enough": enough}
    factor = (1 - rates) ** context.times[:, None]
    return context.loss_below(factor, "from β = 0", hypotheses=hypotheses)


@statement("X-32")
def variance_bounds(context: Context) -> list[Check]:
    """Check lower bounds of Tr(C) for these data, and df₂/n of the population by k and R_k."""
    population, problem = context.require_population(), context.problem
    context.wide_data()
    least, cost = noise_cost_bound(problem, population), noise_cost(problem, population)
    checks = [Check(least, cost, "Tr C from below")]
    b = context.constants.b if context.constants.b > 1 else 2.0
    bounds = degrees_of_freedom_bounds(population, problem.samples, b)
    if bounds is not None:
        share = ridgeless_risk(population, problem.samples).degrees_of_freedom / problem.samples
        checks += [Check(bounds[0], share, "df₂/n from below"),
                   Check(share, bounds[1], "df₂/n from above")]  # fmt: skip
    return checks


@statement("X-33", Context.interpolates)
def best_possible(context: Context) -> list[Check]:
    """Check the interpolator nearest to the trained map; no start can have a smaller risk."""
    split = split_of_interpolator(context)
    population, problem = context.require_population(), context.problem
    least = population.risk(problem.optimum)
    parts = least + split.xi + split.cross
    checks = [
        Check(split.total, parts, "the two parts of Θ_⊥", equality=True, scale=parts + least),
        value(split.cross, "measured: cross term"),
    ]
    if population.spectrum[-1] > 0:
        best = population.risk(best_interpolant(problem, population))
        checks.append(Check(best, split.total, "the best interpolator"))
    return checks
