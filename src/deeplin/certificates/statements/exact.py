"""Exact results beyond the papers; those on wide networks are X-4 to X-6 and X-25 to X-33.

X-18 to X-21 are with the statements of FM that they sharpen. All are theorems under the hypotheses
that each row names, except parts named `measured`, which are reported and not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from deeplin.certificates.context import AT_MINIMIZER, Context
from deeplin.certificates.registry import Check, Hypothesis, NotApplicable, statement, value
from deeplin.certificates.statements.benign_overfitting import split_of_interpolator
from deeplin.certificates.statements.flat_minima import settles, stability_threshold
from deeplin.errors import InputError
from deeplin.hessian import sharpness
from deeplin.hessian.exact import Tangent
from deeplin.networks import Network, host_arrays, initialize, products
from deeplin.problems import Problem
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.theory.balanced import balanced_sharpness
from deeplin.theory.benign_overfitting import (
    best_interpolant,
    degrees_of_freedom_bounds,
    noise_cost,
    noise_cost_bound,
)
from deeplin.theory.critical_rate import (
    adam_critical_learning_rate,
    critical_learning_rate,
    parallel_sharpness,
    sam_sharpness_limit,
)
from deeplin.theory.least_trace import minimal_trace
from deeplin.theory.minimizers import minimal_sharpness
from deeplin.theory.modes import balanced_mode, balanced_orbit, time_to_reach, two_layer_flow
from deeplin.theory.ridgeless import ridgeless_risk
from deeplin.theory.second_moment import DENSE
from deeplin.theory.stochastic import minimal_stochastic_sharpness, stochastic_sharpness
from deeplin.theory.weight_decay import critical_weight_decay, decayed_minimum
from deeplin.theory.wide_networks import zero_first_modes, zero_last_modes

Bound = Callable[[np.ndarray, int], np.ndarray]
"""Squared singular values of U from those of P_XΘ, for the start of a run."""
RADII = np.geomspace(1e-4, 0.999, 120)
"""Distances ρ at which the hypothesis of X-31 is tested."""


def _has_solution(context: Context) -> None:
    if context.problem.rank == 0 or context.problem.optimum_norm == 0:
        raise NotApplicable("for Θ* ≠ 0; the least-squares solution is zero")


def _has_minimizer(context: Context) -> None:
    problem = context.problem
    if not isinstance(problem, GeneralizedLinearProblem):
        raise NotApplicable("for losses that are not squared; squared loss is X-2 and X-7")
    if not problem.has_minimizer:
        raise NotApplicable("the risk has no minimizer on separable data (X-16)")
    if problem.rank == 0 or problem.optimum_norm == 0:
        raise NotApplicable("for Θ* ≠ 0; the minimizer is zero")


@statement("X-1", Context.full_width, Context.ends_in_minimizer)
def exact_sharpness(context: Context) -> Check:
    """Compare with certified Lanczos on the full Hessian, at the end of the run."""
    exact, other = context.exact_sharpness, context.certified_sharpness
    apart, error = np.abs(exact.value - other.value), np.add(exact.error, other.error)
    return Check(apart, error, scale=np.abs(other.value))


@statement("X-2", Context.one_target)
def exact_minimal_sharpness(context: Context) -> list[Check]:
    """Check the minimizer that attains it, and the end of the run, which cannot be flatter."""
    return _attained(context)


@statement("X-3", Context.one_target)
def balanced_limit(context: Context) -> list[Check]:
    """Check the sharpness of the balanced rank-one minimizer, which is at least S_min."""
    problem, L = context.problem, context.depth
    balanced = balanced_sharpness(problem, L)
    widths = (problem.dimension, *[1] * L)  # rank-one layers need no more
    network = initialize.rank_one(problem.optimum, L, widths=widths)
    measured = sharpness(problem, network, method="exact").value
    return [
        Check(measured, balanced, "balanced minimizer", equality=True),
        Check(context.minimal.exact, balanced, "S_min ≤ S_bal"),
    ]


@statement("X-7", Context.full_width)
def minimal_sharpness_of_several(context: Context) -> list[Check]:
    """Check as for X-2, with the bracket of FM-T2 extended to several outputs."""
    if context.problem.outputs == 1:
        raise NotApplicable("for several targets; one target is X-2")
    _has_solution(context)
    return _attained(context) + context.minimal_bracket()


@statement("X-8", _has_solution, Context.full_width)
def least_trace(context: Context) -> list[Check]:
    """Check that it is attained, and that the end of the run is not below it."""
    minimal = minimal_trace(context.problem, context.depth)
    network = minimal.attaining(hidden=len(minimal.values))
    reached = _trace(context.problem, context.final_network)
    return [
        Check(_trace(context.problem, network), minimal.exact, "attained", equality=True),
        context.at_minimizer(minimal.exact * context.minimal_scale, reached, "least ≤ trace"),
    ]


def _trace(problem: Problem, network: Network) -> np.ndarray:
    """Return the trace of the Hessian, Σ_k 2‖V_k‖²‖B_k‖²: layer by layer the risk is quadratic."""
    tangent = Tangent.of(problem, network)
    squares = [
        np.sum(above**2, axis=(-1, -2)) * np.sum(below**2, axis=(-1, -2))
        for above, below in zip(tangent.backward[1:], tangent.forward, strict=True)
    ]
    return 2 * np.sum(squares, axis=0)


@statement("X-9", Context.one_target)
def decayed(context: Context) -> list[Check]:
    """Check at a quarter of the critical weight decay (for one layer, of ‖Σ̂w*‖) and at the
    jump."""
    return _decayed(context)


def _decayed(context: Context) -> list[Check]:
    """Check F and S_λ of the network that attains the minimum, and F at both sides of the jump."""
    problem, L = context.problem, context.depth
    critical = critical_weight_decay(problem, L).value
    zero = np.zeros(problem.dimension)
    pull = float(np.linalg.norm(problem.value_and_gradient(zero)[1])) / 2
    z = decayed_minimum(problem, L, (critical if L > 1 else pull) / 4)
    network = z.attaining(hidden=1)
    layers, _ = host_arrays(network)
    at_zero = problem.minimal_risk + problem.zero_gap
    risk = problem.risk(np.asarray(network.product))
    cost = risk + z.weight_decay * sum(np.sum(layer**2) for layer in layers)
    top = sharpness(problem, network, method="lanczos", tolerance=1e-10)
    checks = [
        Check(cost, z.objective, "objective", equality=True),
        Check(cost, at_zero, "F(W) ≤ F(0)"),
        Check(top.value + 2 * z.weight_decay, z.sharpness, "S_λ", equality=True, slack=1e-8),
    ]
    if L > 1:
        edge = decayed_minimum(problem, L, critical * (1 - 1e-9))
        # F grows with λ at the rate Σ‖W_k‖², so 1e-9 from the jump it is within 1e-9 of F(0)
        checks.append(Check(edge.objective, at_zero, "jump", equality=True, slack=1e-8))
    return checks


@statement("X-10", Context.one_target)
def batches(context: Context) -> list[Check]:
    """Check B = n/5, at the minimizer that attains it."""
    problem = context.problem
    size = max(1, problem.samples // 5)
    if problem.rank > DENSE or size == problem.samples:
        raise NotApplicable(f"in certificates for two samples or more and rank up to {DENSE}")
    try:
        minimal = minimal_stochastic_sharpness(problem, context.depth, size)
    except InputError as error:
        raise NotApplicable(str(error)) from error
    attained = stochastic_sharpness(problem, minimal.minimizer, size)
    return [
        Check(attained.value, minimal.exact, "attained", equality=True),
        Check(minimal.exact, attained.upper, "certified", slack=1e-9),
        Check(context.minimal.exact, minimal.exact, "S_min ≤ S_min(B)"),
    ]


@statement("X-11", _has_solution)
def layerwise_rates(context: Context) -> list[Check]:
    """Check rates 4, 1/4, 4, … of product one.

    W_k = √η_k V_k turns the preconditioned Hessian at W into the Hessian at V, another minimizer of
    the same problem.
    """
    L = context.depth
    rates = np.where(np.arange(L) == 2 * (L // 2), 1.0, 4.0 ** ((-1.0) ** np.arange(L)))
    network = _narrowest(context, rates)
    pairs = zip(network.weights, rates, strict=True)
    moved = Network([np.asarray(weight) / np.sqrt(rate) for weight, rate in pairs])
    measured = sharpness(context.problem, moved, method="exact").value
    return [Check(measured, context.minimal.exact, "attained", equality=True)]


@statement("X-12", Context.one_target, Context.several_layers)
def orbit_of_a_mode(context: Context) -> list[Check]:
    """Check that two steps of a mode of size ‖w*‖ return, at 1.1 times its critical rate."""
    L, sigma = context.depth, context.problem.optimum_norm
    rate = 1.1 * 2 / (L * sigma ** (2 - 2 / L))
    orbit = balanced_orbit(sigma, L, rate, curvature=0.5)
    assert orbit is not None  # above its threshold

    def step(x: float) -> float:
        return x + rate * (sigma - x**L) * x ** (L - 1)

    there = step(orbit.low)
    # errors of the first step are multiplied by the slope of the second, which is about L at most
    return [
        Check(there, orbit.high, "there", equality=True),
        Check(step(there), orbit.low, "and back", equality=True, slack=1e-9),
        Check(np.abs(orbit.multiplier), 1.0, "stable"),
    ]


@statement("X-13", Context.one_target)
def flow_of_a_mode(context: Context) -> list[Check]:
    """Check a mode with target ‖w*‖ from 1% of it: its speed, and both solutions for L = 2."""
    L, s = context.depth, context.problem.optimum_norm
    mode = {"target": s, "start": s / 100, "depth": L}
    time = time_to_reach(s / 2, **mode)
    h = 1e-4 * time
    before, half, after = balanced_mode([time - h, time, time + h], **mode)
    speed = 2 * L * half ** (2 - 2 / L) * (s - half)
    weight = np.sqrt([[s / 100]])
    two = two_layer_flow(weight, weight, [[s]], time).product[0, 0]
    logistic = balanced_mode(time, target=s, start=s / 100, depth=2)[0]
    # a central difference over 1e-4 of the time errs by its square
    return [
        Check(half, s / 2, "time to reach half", equality=True),
        Check((after - before) / (2 * h), speed, "speed", equality=True, slack=1e-5),
        Check(two, logistic, "two layers", equality=True),
    ]


@statement("X-14", _has_minimizer, Context.one_target)
def minimal_sharpness_of_a_loss(context: Context) -> list[Check]:
    """Check the minimizer that attains it, the balanced one, and the end of the run."""
    balanced = balanced_sharpness(context.problem, context.depth)
    return [*_attained(context), Check(context.minimal.exact, balanced, "S_min ≤ S_bal")]


@statement("X-15")
def decayed_loss(context: Context) -> list[Check]:
    """Check as for X-9, for losses that are not squared, also on separable data; a theorem."""
    if context.problem.loss == "squared":
        raise NotApplicable("for losses that are not squared; squared loss is X-9")
    if context.problem.outputs > 1:
        raise NotApplicable(f"for one output; the problem has {context.problem.outputs}")
    return _decayed(context)


@statement("X-17", _has_minimizer, Context.full_width)
def minimal_sharpness_of_softmax(context: Context) -> list[Check]:
    """Check that it is between its bounds, attained, and not above the end of the run."""
    if context.problem.outputs == 1:
        raise NotApplicable("for several outputs; one output is X-14")
    return _attained(context) + context.minimal_bracket()


@statement("X-22", Context.one_target)
def two_paths(context: Context) -> Check:
    """Check two copies of the flattest network of w*/2, K = Σ_h Σ_k ‖v_k‖²A_kᵀA_k; a theorem."""
    problem, L = context.problem, context.depth
    layers, _ = host_arrays(context.minimal.attaining(hidden=1))
    layers = [layer / 2 ** (1 / L) for layer in layers]
    backward = products.backward_products(layers, None)
    forward = products.forward_products(layers, np.eye(problem.dimension))
    K = sum(np.sum(v**2) * A.T @ A for v, A in zip(backward[1:], forward, strict=True))
    attained = np.linalg.eigvals(problem.curvature @ (2 * K)).real.max()
    return Check(attained, parallel_sharpness(problem, L, 2), "attained", equality=True)


@statement("X-23")
def sharpness_aware(context: Context) -> list[Check]:
    """Check that at ρ = 0.1/S_min the step is neutral at the flattest minimizer; a theorem."""
    S, problem, L = _flattest_measured(context), context.problem, context.depth
    rho = 0.1 / context.minimal.exact
    rate = critical_learning_rate(problem, L, sam_radius=rho)
    return [
        Check(rate * S * (1 + rho * S), 2.0, "neutral", equality=True, slack=1e-8),
        Check(sam_sharpness_limit(rate, rho), S, "settles up to S", equality=True, slack=1e-8),
    ]


@statement("X-24")
def adaptive(context: Context) -> list[Check]:
    """Check that the late map of (θ, m) is neutral at the flattest minimizer; a theorem."""
    S, problem, L = _flattest_measured(context), context.problem, context.depth
    checks = []
    for name, beta in (("Adam", 0.9), ("RMSProp", 0.0)):
        ratio = adam_critical_learning_rate(problem, L, beta1=beta, epsilon=1.0)
        gain = (1 - beta) * S
        late = np.array([[1 - ratio * gain, -ratio * beta], [gain, beta]])
        radius = np.abs(np.linalg.eigvals(late)).max()
        checks.append(Check(radius, 1.0, name, equality=True, slack=1e-8))
    return checks


def _attained(context: Context) -> list[Check]:
    """Check that a network attains S_min, and that the end of the run is not flatter."""
    exact = context.minimal.exact
    return [
        Check(_flattest_measured(context), exact, "attained", equality=True),
        context.at_minimizer(exact * context.minimal_scale, context.final_sharpness, "S_min ≤ S"),
    ]


def _flattest_measured(context: Context) -> float:
    """Return the sharpness of the network that attains S_min."""
    _has_solution(context)
    squared = context.problem.loss == "squared"
    network = _narrowest(context) if squared else context.minimal.attaining(context.problem.outputs)
    return float(sharpness(context.problem, network, method="exact" if squared else "dense").value)


def _narrowest(context: Context, rates: np.ndarray | None = None) -> Network:
    """Return the flattest minimizer with hidden layers as wide as the rank of Θ* requires."""
    return context.minimal.attaining(hidden=context.optimum_rank, rates=rates)


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
    score = (context.perpendicular_norm[-1] ** 2 - mean) / deviation
    return value(np.abs(np.nan_to_num(score)), "measured: deviations from the mean")


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
    """Check locally, with the best ρ; globally from β = 0; and Θ_⊥ with the measured norms."""
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
    terms = np.linalg.norm(context.backward[0], axis=(-2, -1)) + context.problem.optimum_norm
    known = {"subtracted": terms, "condition": context.condition}
    # with every step recorded the norms along the run replace ω, and Σ η√ℒ is known
    largest = np.max(context.singular_values, axis=0)
    factor = [2 * context.input_norm * _seen_growth(norms)[1] for norms in largest]
    along = size * np.array(factor) * context.path
    every = np.all(np.diff(context.times) <= 1)
    recorded = plain | {"every step recorded": every}
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
        Check(moved, along, "(d) by measured norms", hypotheses=recorded, **known),
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


def _bottleneck(context: Context) -> None:
    if context.narrowest >= context.optimum_rank:
        raise NotApplicable(
            f"for a hidden layer narrower than the rank of Θ*, {context.optimum_rank}; the "
            f"narrowest has width {context.narrowest}"
        )
    if not context.problem.best_of_rank(context.narrowest).unique:
        raise NotApplicable(f"for one best product of rank {context.narrowest}; here are several")


@statement("X-34", _bottleneck)
def behind_a_bottleneck(context: Context) -> Check:
    """Check the whole Hessian at the end, by Lanczos: it has a part with the residual.

    A product at the distance x from Θ_r (`_from_best_product`) is GΘ_rH on the data, with G and H
    within about x of the identity, and the network is that close to a minimizer. This
    changes the part of the Hessian without the residual by 4xS, and the part with it by
    (L−1) max_{j<k}Π_{l≠j,k}‖W_l‖ times the change of 2(Θ − Θ*)Σ̂, at most 2√Λ x(s_r + 2s_{r+1}); up
    to terms of order x².
    """
    problem, r = context.problem, context.narrowest
    away, values = _from_best_product(context)
    best = Hypothesis(away, "≤", AT_MINIMIZER)
    met = context.stays_finite() | {"the run ended in a minimizer of its width": best}
    least, top, slack = np.nan, np.nan, 0.0
    if np.any(context.bounded & best.met()):
        least = minimal_sharpness(problem, context.depth, width=r).lower
        top = _largest_sharpness(context)
        others = np.prod(np.sort(context.singular_values[-1], axis=-1)[..., 2:], axis=-1)
        residual = 2 * np.sqrt(problem.largest_eigenvalue) * (values[r - 1] + 2 * values[r])
        slack = 1.1 * away * (4 + (context.depth - 1) * others * residual / top)
    return Check(least, top, "S_min ≤ S", slack=slack, hypotheses=met)


def _largest_sharpness(context: Context) -> np.ndarray:
    """Return an upper bound of S at the end that is tight to its error, (batch,)."""
    return context.certified_sharpness.value + context.certified_sharpness.error


def _from_best_product(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Return ‖(Θ − Θ_r)Σ̂^{1/2}‖_F/s_r at the end, (batch,), and the values s of Θ*Σ̂^{1/2}."""
    problem, r = context.problem, context.narrowest
    eigenvalues, vectors, coordinates = problem.spectrum
    roots, left = np.sqrt(eigenvalues)[:, None], problem.truncation(r).left
    optimum = roots * coordinates
    values = np.linalg.svd(optimum, compute_uv=False)
    missing = roots * (vectors.T @ context.backward[0][-1]) - optimum @ left.T @ left
    away = np.linalg.norm(missing, axis=(-2, -1)) / values[r - 1]
    return away, values


def _unseen_inputs(context: Context) -> None:
    problem = context.problem
    if problem.rank == problem.dimension:
        raise NotApplicable("for rank X < d; these data span all inputs")
    if problem.rank == 0:
        raise NotApplicable("for nonzero inputs")


@statement("X-35", _unseen_inputs, Context.by_gradients, Context.stays_finite)
def added_by_the_start(context: Context) -> list[Check]:
    """Check ‖B_1‖², the law in units of σ² tr((I−P)Σ), against the sharpness and the rate.

    The first bound holds at every network: the Hessian has the block 2B_1ᵀB_1⊗Σ̂ of the first layer.
    """
    law = np.sum(context.backward[1][-1] ** 2, axis=(-2, -1))
    rank = min(context.narrowest, context.problem.outputs)
    unit = rank / (2 * context.problem.largest_eigenvalue)
    checks = [Check(law, unit * _largest_sharpness(context), "by sharpness")]
    if context.run.learning_rate is not None and not context.is_flow:
        with suppress(NotApplicable):
            bound, met = unit * stability_threshold(context), settles(context)
            known: Any = {"slack": 4 * context.slack, "hypotheses": met}
            checks.append(Check(law, bound, "by the learning rate", **known))
    return checks
