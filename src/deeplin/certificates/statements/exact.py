"""Exact results beyond the papers; those on wide networks are in `wide_networks`.

X-18 to X-21 are with the statements of FM that they sharpen. All are theorems under the hypotheses
that each row names, except parts named `measured`, which are reported and not judged.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from deeplin.certificates.context import AT_MINIMIZER, Context
from deeplin.certificates.registry import Check, Hypothesis, NotApplicable, statement
from deeplin.certificates.statements.flat_minima import settles, stability_threshold
from deeplin.errors import InputError
from deeplin.hessian import sharpness
from deeplin.hessian.exact import Tangent, exact
from deeplin.networks import Network, initialize, products
from deeplin.networks.network import host_arrays
from deeplin.problems import Problem
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.theory.balanced import balanced_sharpness
from deeplin.theory.critical_rate import (
    adam_critical_learning_rate,
    critical_learning_rate,
    parallel_sharpness,
    sam_sharpness_limit,
)
from deeplin.theory.least_trace import minimal_trace
from deeplin.theory.minimizers import minimal_sharpness
from deeplin.theory.modes import balanced_mode, balanced_orbit, time_to_reach, two_layer_flow
from deeplin.theory.second_moment import DENSE
from deeplin.theory.stochastic import minimal_stochastic_sharpness, stochastic_sharpness
from deeplin.theory.weight_decay import critical_weight_decay, decayed_minimum


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
    other = context.certified_sharpness
    apart = np.abs(context.final_sharpness - other.value)
    return Check(apart, context.sharpness_error + other.error, scale=np.abs(other.value))


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
    reached = _trace(context.problem, context.final_network)
    return [
        Check(_trace(context.problem, minimal.narrowest), minimal.exact, "attained", equality=True),
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
    problem = context.problem
    if problem.loss == "squared":
        return exact(problem, _narrowest(context).with_batch(), "largest")[0][0]
    network = context.minimal.attaining(problem.outputs)
    return float(sharpness(problem, network, method="dense").value)


def _narrowest(context: Context, rates: np.ndarray | None = None) -> Network:
    """Return the flattest minimizer with hidden layers as wide as the rank of Θ* requires."""
    return context.minimal.attaining(hidden=context.optimum_rank, rates=rates)


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
