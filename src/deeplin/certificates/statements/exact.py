"""Exact results beyond the papers: X-1 to X-24 (those on wide networks: `wide_networks`)."""

from __future__ import annotations

import jax
import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, NotApplicable, statement
from deeplin.errors import InputError
from deeplin.hessian import sharpness
from deeplin.hessian.spectrum import blocks
from deeplin.networks import Network, host_arrays, initialize, products
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.theory.critical_rate import (
    adam_critical_learning_rate,
    critical_learning_rate,
    parallel_sharpness,
    sam_sharpness_limit,
)
from deeplin.theory.minimizers import balanced_sharpness, minimal_trace
from deeplin.theory.orbits import balanced_orbit
from deeplin.theory.stochastic import DENSE, minimal_stochastic_sharpness, stochastic_sharpness
from deeplin.theory.weight_decay import critical_weight_decay, decayed_minimum
from deeplin.theory.white_inputs import balanced_mode, time_to_reach, two_layer_flow


@statement("X-1", hypotheses=Context.minimizer_hypotheses)
def exact_sharpness(context: Context) -> Check:
    """Against certified Lanczos on the full Hessian, at the end of the run."""
    exact, other = context.exact_sharpness, context.certified_sharpness
    apart, error = np.abs(exact.value - other.value), np.add(exact.error, other.error)
    return Check(apart, error, scale=np.abs(other.value))


@statement("X-2")
def exact_minimal_sharpness(context: Context) -> list[Check]:
    """The minimizer that attains it, and the end of the run, which cannot be flatter."""
    context.require_vector()
    return _attained(context)


@statement("X-3")
def balanced_limit(context: Context) -> list[Check]:
    """The balanced rank-one minimizer has this sharpness, and it is at least S_min."""
    context.require_vector()
    problem, L = context.problem, context.depth
    balanced = balanced_sharpness(problem, L)
    widths = (problem.dimension, *[1] * L)  # rank-one layers need no more
    network = initialize.rank_one(problem.optimum.reshape(-1), L, widths=widths)
    measured = sharpness(problem, network, method="exact").value
    return [
        Check(measured, balanced, "balanced minimizer", equality=True),
        Check(context.minimal.exact, balanced, "S_min ≤ S_bal"),
    ]


@statement("X-7")
def minimal_sharpness_of_several(context: Context) -> list[Check]:
    """As X-2, with the bracket of FM-T2 extended to several outputs."""
    if context.problem.outputs == 1:
        raise NotApplicable("for several targets; one target is X-2")
    _require_solution(context)
    return _attained(context) + context.minimal_bracket()


@statement("X-8")
def least_trace(context: Context) -> list[Check]:
    """Attained, and not undercut by the end of the run."""
    _require_solution(context)
    minimal = minimal_trace(context.problem, context.depth)
    network = minimal.attaining(hidden=len(minimal.values))
    attained, _ = blocks(context.problem, network.with_batch())
    reached, _ = blocks(context.problem, context.final_network)
    return [
        Check(np.asarray(attained), minimal.exact, "attained", equality=True),
        context.at_minimizer(minimal.exact * context.minimal_scale, reached, "least ≤ trace"),
    ]


@statement("X-9")
def decayed(context: Context) -> list[Check]:
    """At a quarter of the critical weight decay (of ‖Σ̂w*‖ for one layer), and at the jump."""
    context.require_vector()
    return _decayed(context)


def _decayed(context: Context) -> list[Check]:
    """F and S_λ of the network that attains the minimum, and F at both sides of the jump."""
    problem, L = context.problem, context.depth
    critical = critical_weight_decay(problem, L).value
    zero = np.zeros((problem.dimension, 1))
    pull = float(np.linalg.norm(problem.value_and_gradient(zero)[1])) / 2
    z = decayed_minimum(problem, L, (critical if L > 1 else pull) / 4)
    network = z.attaining(hidden=1)
    layers, _ = host_arrays(network)
    at_zero = problem.minimal_risk + problem.zero_gap
    risk = problem.risk(products.product(layers))
    cost = risk + z.weight_decay * sum(np.sum(layer**2) for layer in layers)
    top = sharpness(problem, network, method="lanczos", tolerance=1e-10)
    checks = [
        Check(cost, z.objective, "objective", equality=True),
        Check(cost, at_zero, "F(W) ≤ F(0)"),
        Check(top.value + 2 * z.weight_decay, z.sharpness, "S_λ", equality=True, slack=1e-8),
    ]
    if L > 1:
        edge = decayed_minimum(problem, L, critical * (1 - 1e-9))
        # F grows with λ at the rate Σ‖W_k‖², so 1e-9 beside the jump it is within 1e-9 of F(0)
        checks.append(Check(edge.objective, at_zero, "jump", equality=True, slack=1e-8))
    return checks


@statement("X-10")
def batches(context: Context) -> list[Check]:
    """For B = n/5, at the minimizer that attains it and at the end of the first run."""
    context.require_vector()
    problem = context.problem
    size = max(1, problem.samples // 5)
    if problem.rank > DENSE or size == problem.samples:
        raise NotApplicable(f"in certificates for two samples or more and rank up to {DENSE}")
    try:
        minimal = minimal_stochastic_sharpness(problem, context.depth, size)
    except InputError as error:
        raise NotApplicable(str(error)) from error
    attained = stochastic_sharpness(problem, minimal.minimizer, size)
    checks = [
        Check(attained.value, minimal.exact, "attained", equality=True),
        Check(minimal.exact, attained.upper, "certified", slack=1e-9),
        Check(context.minimal.exact, minimal.exact, "S_min ≤ S_min(B)"),
    ]
    first = jax.tree.map(lambda leaf: leaf[0], context.final_network)
    try:
        reached = stochastic_sharpness(problem, first, size).value
    except InputError:  # the run did not end in a minimizer
        return checks
    least = minimal.lower * float(context.minimal_scale[0])
    # a network counts as a minimizer up to 1e-6
    return [*checks, Check(least, reached, "S_min(B) ≤ S_B", slack=1e-5)]


@statement("X-11")
def layerwise_rates(context: Context) -> list[Check]:
    """Rates 4, 1/4, 4, … of product one: W_k = √η_k V_k turns the preconditioned Hessian at W into
    the Hessian at V, another minimizer of the same problem."""
    _require_solution(context)
    L = context.depth
    rates = np.where(np.arange(L) == 2 * (L // 2), 1.0, 4.0 ** ((-1.0) ** np.arange(L)))
    network = _narrowest(context, rates)
    pairs = zip(network.weights, rates, strict=True)
    moved = Network([np.asarray(weight) / np.sqrt(rate) for weight, rate in pairs])
    measured = sharpness(context.problem, moved, method="exact").value
    return [Check(measured, context.minimal.exact, "attained", equality=True)]


@statement("X-12")
def orbit_of_a_mode(context: Context) -> list[Check]:
    """A mode of the size ‖w*‖ at 1.1 times its critical rate: two steps of its descent return."""
    context.require_vector()
    context.require_depth()
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


@statement("X-13")
def flow_of_a_mode(context: Context) -> list[Check]:
    """A mode with target ‖w*‖ from a hundredth of it: its speed, and both solutions for L = 2."""
    context.require_vector()
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


@statement("X-14")
def minimal_sharpness_of_a_loss(context: Context) -> list[Check]:
    """The minimizer that attains it, the balanced one, and the end of the run: none is flatter."""
    _require_minimizer(context)
    context.require_vector()
    balanced = balanced_sharpness(context.problem, context.depth)
    return [*_attained(context), Check(context.minimal.exact, balanced, "S_min ≤ S_bal")]


@statement("X-15")
def decayed_loss(context: Context) -> list[Check]:
    """As X-9, for losses that are not squared, also on separable data; a theorem."""
    if context.problem.loss == "squared":
        raise NotApplicable("for losses that are not squared; squared loss is X-9")
    if context.problem.outputs > 1:
        raise NotApplicable(f"for one output; the problem has {context.problem.outputs}")
    return _decayed(context)


@statement("X-17")
def minimal_sharpness_of_softmax(context: Context) -> list[Check]:
    """Between its bounds, attained, and not undercut by the end of the run."""
    _require_minimizer(context)
    if context.problem.outputs == 1:
        raise NotApplicable("for several outputs; one output is X-14")
    return _attained(context) + context.minimal_bracket()


@statement("X-22")
def two_paths(context: Context) -> Check:
    """Two copies of the flattest network of w*/2 have it, K = Σ_h Σ_k ‖v_k‖²A_kᵀA_k; a theorem."""
    context.require_vector()
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
    """At ρ = 0.1/S_min the step is neutral at the flattest minimizer; a theorem."""
    S, problem, L = _flattest_measured(context), context.problem, context.depth
    rho = 0.1 / context.minimal.exact
    rate = critical_learning_rate(problem, L, sam_radius=rho)
    return [
        Check(rate * S * (1 + rho * S), 2.0, "neutral", equality=True, slack=1e-8),
        Check(sam_sharpness_limit(rate, rho), S, "settles up to S", equality=True, slack=1e-8),
    ]


@statement("X-24")
def adaptive(context: Context) -> list[Check]:
    """The late map of (θ, m) is neutral at the flattest minimizer; a theorem about that map."""
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
    """A network has S_min, and the end of the run is not flatter."""
    exact = context.minimal.exact
    return [
        Check(_flattest_measured(context), exact, "attained", equality=True),
        context.at_minimizer(exact * context.minimal_scale, context.final_sharpness, "S_min ≤ S"),
    ]


def _flattest_measured(context: Context) -> float:
    """The sharpness of the network that attains S_min."""
    _require_solution(context)
    squared = context.problem.loss == "squared"
    network = _narrowest(context) if squared else context.minimal.attaining(context.problem.outputs)
    return float(sharpness(context.problem, network, method="exact" if squared else "dense").value)


def _require_solution(context: Context) -> None:
    if context.problem.rank == 0 or context.problem.optimum_norm == 0:
        raise NotApplicable("for Θ* ≠ 0; the least-squares solution is zero")


def _narrowest(context: Context, rates: np.ndarray | None = None) -> Network:
    """The flattest minimizer with hidden layers as wide as the rank of Θ* asks for."""
    rank = int(np.linalg.matrix_rank(context.problem.spectrum.coordinates))
    return context.minimal.attaining(hidden=rank, rates=rates)


def _require_minimizer(context: Context) -> None:
    problem = context.problem
    if not isinstance(problem, GeneralizedLinearProblem):
        raise NotApplicable("for losses that are not squared; squared loss is X-2 and X-7")
    if not problem.has_minimizer:
        raise NotApplicable("the risk has no minimizer on separable data (X-16)")
    if problem.rank == 0 or problem.optimum_norm == 0:
        raise NotApplicable("for Θ* ≠ 0; the minimizer is zero")
