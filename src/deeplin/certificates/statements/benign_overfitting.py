"""Benign overfitting (BO): the data, training orthogonal to them, convergence, the risk.

α and β are measured on the singular values of the initial layers (errata E-6). The paper's flow
lacks the factor 2 of the gradient (errata E-5): the flow of the true gradient judged here runs
twice as fast, so the printed rates hold a fortiori.
"""

from __future__ import annotations

import math

import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.curvature import directional
from deeplin.certificates.registry import (
    CATALOGUE,
    Check,
    Hypothesis,
    NotApplicable,
    is_open,
    ratio,
    statement,
    tolerance,
    value,
)
from deeplin.networks import products
from deeplin.networks.products import squared_distance
from deeplin.problems.population import Factored
from deeplin.problems.problem import as_map
from deeplin.theory.benign_overfitting import (
    RiskBound,
    RiskSplit,
    effective_ranks,
    interpolation_bound,
    noise_cost,
    random_start_bound,
    risk_split,
    spike_bound,
)


@statement("BO-D2.1")
def ranks(context: Context) -> list[Check]:
    """Check r_j ≤ R_j ≤ r_j² for every j with a nonzero tail, which holds for any spectrum."""
    population = context.require_population()
    found = effective_ranks(population.spectrum)
    small, large = found.small[None, None], found.large[None, None]
    return [Check(small, large, "r_j ≤ R_j"), Check(large, small**2, "R_j ≤ r_j²")]


@statement("BO-D2.2")
def tail_index(context: Context) -> Check:
    """Report k, for the caller's b."""
    return value(context.require_tail().k, "k")


def _only_a_distribution(id: str) -> None:
    """Register an assumption that no finite data set can confirm or refute."""

    @statement(id)
    def unverifiable(context: Context) -> Check:
        if context.population is not None and context.population.drawn:
            return Check(np.nan, np.nan, "by construction", granted=True)
        raise NotApplicable(f"an assumption about the distribution: {CATALOGUE[id]['title']}")


for _id in ("BO-A1", "BO-A2", "BO-A3", "BO-A4"):
    _only_a_distribution(_id)


@statement("BO-A5")
def full_rank(context: Context) -> list[Check]:
    """Check d > n and rank X = n; with a population, no eigenvector of Σ lies in the row space.

    X(I − vvᵀ) loses rank exactly if v is in that span, ‖P_Xv‖ = 1. As "almost surely" means one
    eigenvector at a time, the eigenvectors are a fixed basis, not every vector of an eigenspace.
    """
    problem = context.problem
    checks = [
        Check(problem.samples + 1.0, problem.dimension, "d > n"),
        Check(float(problem.samples), problem.rank, "rank X = n", equality=True),
    ]
    population = context.population
    if population is not None:
        inside, vectors = problem.spectrum.vectors, _eigenvectors(population.covariance)
        inside = inside if vectors is None else vectors.T @ inside
        share = float(np.max(np.sum(inside**2, axis=1)))
        checks.append(Check(share, 1 - 1e-9, "no eigenvector among the rows"))
    return checks


def _eigenvectors(covariance) -> np.ndarray | None:
    """Return the eigenvectors of Σ; None for the coordinate axes."""
    if isinstance(covariance, Factored):
        left, _, _ = np.linalg.svd(covariance.factor, full_matrices=False)
        if np.ptp(covariance.diagonal) > 0:
            raise NotApplicable("for a factor plus a constant diagonal, whose eigenvectors show")
        return left
    return None if covariance.ndim == 1 else np.linalg.eigh(covariance)[1]


@statement("BO-D2.5", Context.wide_data)
def interpolant(context: Context) -> Check:
    """Check that Θ_min interpolates: XΘ_min = Y."""
    X, Y = context.problem.require_data("the minimum-norm interpolant")
    residual = np.linalg.norm(X @ context.problem.optimum_columns - Y)
    size = np.linalg.norm(Y)
    return Check(residual, 0.0, scale=size, subtracted=size, condition=context.condition)


@statement("BO-L4.3")
def input_norm(context: Context) -> Check:
    """Report the measured constant."""
    largest = context.require_population().spectrum[0]
    return context.with_constant(context.input_norm, np.sqrt(largest * context.problem.samples))


@statement("BO-L5.6")
def input_frobenius(context: Context) -> Check:
    """Report the measured constant."""
    total = np.sum(context.require_population().spectrum)
    return context.with_constant(context.input_frobenius, np.sqrt(total * context.problem.samples))


@statement("BO-L5.7")
def target_norm(context: Context) -> Check:
    """Report the measured constant."""
    problem = context.problem
    truth = np.linalg.norm(context.require_population().optimum)
    noise = np.sqrt(problem.outputs * problem.samples)
    return context.with_constant(context.target_norm, context.input_norm * truth + noise)


@statement("BO-sigma-min", Context.wide_data)
def smallest_singular_value(context: Context) -> Check:
    """Report the measured constant of √s_k ≤ c σ_min(X)."""
    return context.with_constant(np.sqrt(context.require_tail().sum), context.smallest_singular)


@statement("BO-trace")
def noise_trace(context: Context) -> Check:
    """Report the measured constant."""
    population = context.require_population()
    context.wide_data()
    n, k, _, rank = context.require_tail()
    return context.with_constant(noise_cost(context.problem, population), k / n + n / rank)


@statement("BO-D3.3")
def spiked(context: Context) -> list[Check]:
    """Check the effective ranks of the spike in closed form."""
    population = context.require_population()
    k, epsilon = context.require_spike()
    found, tail = effective_ranks(population.spectrum), population.dimension - k
    checks = [
        Check(found.small[0], k + epsilon * tail, "r_0", equality=True),
        Check(found.tail_sums[k], epsilon * tail, "s_k", equality=True),
    ]
    if epsilon > 0:
        checks.append(Check(found.large[k], float(tail), "R_k", equality=True))
    return checks


@statement("BO-D2.3", Context.identity_middle)
def random_start(context: Context) -> Check:
    """Report β of the last layer."""
    return value(context.scales[1], "β")


@statement("BO-D2.4", Context.stays_finite)
def perpetual_bound(context: Context) -> Check:
    """Report the smallest B over the records."""
    return value(context.bound[-1], "B")


@statement("BO-L4.4", Context.stays_finite)
def product_rate(context: Context) -> Check:
    """Compare the formula with the derivative of the product, at the start and at the end."""
    n, errors, sizes = context.problem.samples, [], []
    scale = context.gradient_scale()

    def product(layers):
        return products.product(layers, context.readout)

    for record, layers in ((0, context.initial), (-1, context.final)):
        slopes = [-slope for slope in context.gradients_at(record)]
        difference = directional(product, layers, slopes) + _pulled_back(context, record)
        errors.append(n * np.linalg.norm(difference, axis=(-1, -2)))
        norms = context.singular_values[record]
        others = [np.prod(np.delete(norms, k, axis=-1), axis=-1) for k in range(context.depth)]
        sizes.append(n * np.sum(scale[record] * np.stack(others, -1), axis=-1))
    return Check(np.stack(errors), 0.0, scale=np.stack(sizes))


def _pulled_back(context: Context, record: int) -> np.ndarray:
    """Return Σ_j A_jᵀ(A_j g)(V_jᵀV_j), by Horner's rule from the last layer down, (batch, d, q)."""
    total = 0.0
    for j in range(context.depth, 0, -1):
        above = context.backward[j][record if len(context.backward[j]) > 1 else 0]
        total = total + context.forward[j - 1][record] @ (above.mT @ above)
        if j > 1:
            total = context.weights[j - 2][record].mT @ total
    return np.asarray(total)


@statement("BO-L4.5", Context.under_flow)
def perpendicular_growth(context: Context) -> Check:
    """Check the bound at every record, with B and the integral up to it.

    The gradient's factor 2 (errata E-5) is compensated by ‖(I−P_X)A_jᵀA_jP_X‖ ≤ ‖A_j‖²/2, so the
    printed constant is valid.
    """
    return _growth(context, 1.0)


def _growth(context: Context, factor) -> Check:
    """Check ‖Θ_⊥(t)‖ ≤ ‖Θ_⊥(0)‖ + factor·(L−1)B²‖X‖_2∫√ℒ, for a factor (batch,)."""
    context.wide_data()
    growth = (context.depth - 1) * context.bound**2 * context.input_norm * context.path
    return _perpendicular_below(context, context.perpendicular_norm[:1] + factor * growth)


def _perpendicular_below(context: Context, right, where=True) -> Check:
    """Check ‖Θ_⊥(t)‖ ≤ right along a flow after its start, relative to ‖Θ‖ + ‖Θ_min‖."""
    size, found = context.map_size, context.perpendicular_norm
    after, slack = context.later & where, context.flow_slack
    known = {"subtracted": size, "condition": context.condition}
    return Check(found, right, where=after, slack=slack, scale=size, **known)


@statement("E-4", Context.under_flow, Context.wide_data)
def printed_zero_case(context: Context) -> Check:
    """Judge the printed claim, which is false for β = 0 with a random first layer."""
    zero = context.perpendicular_norm[0] == 0
    if not np.any(zero):
        raise NotApplicable("for maps that start at Θ_⊥ = 0")
    return _perpendicular_below(context, 0.0, where=zero[None])


@statement("BO-L5.3", Context.stays_finite, Context.wide_data)
def perpendicular_from_first_layer(context: Context) -> Check:
    """Compare projecting the product with projecting the first layer before multiplying."""
    first = context.problem.spectrum.orthogonal_part(context.weights[0].mT)
    difference = context.perpendicular - first @ context.backward[1]
    scale = np.sqrt(context.problem.outputs) * np.prod(context.singular_values, axis=-1)
    return Check(np.linalg.norm(difference, axis=(-1, -2)), 0.0, scale=scale)


@statement("BO-L5.4", Context.stays_finite, Context.by_gradients, Context.wide_data)
def first_layer_beside_data(context: Context) -> Check:
    """Check descent and flow: gradients of W_1 have their rows in the span of the data."""
    change = context.problem.spectrum.orthogonal_part((context.weights[0] - context.initial[0]).mT)
    sizes = context.layer_norms[..., 0]
    size = np.maximum(sizes, sizes[:1])
    known = {"subtracted": size, "condition": context.condition}
    return Check(np.linalg.norm(change, axis=(-1, -2)), 0.0, scale=size, **known)


@statement("BO-L5.5", Context.under_flow)
def perpendicular_growth_from_first_layer(context: Context) -> Check:
    """Check the bound at every record, with B and the integral up to it."""
    return _growth(context, 2 * np.linalg.norm(context.initial[0], 2, axis=(-2, -1)))


@statement("BO-D5.1")
def good_start(context: Context) -> Check:
    """Report the smallest c for which the initialization is good."""
    spread = np.max(_spread(context), axis=0)
    return context.with_constant(np.maximum(spread, _start_of_the_loss(context)), 1.0)


def _spread(context: Context) -> np.ndarray:
    """Return α/σ_min, σ_max/α of W_1(0) and β/σ_min, σ_max/β of W_L(0), (4, batch)."""
    context.identity_middle()
    if "width" in context.run.evidence:
        raise NotApplicable("for weights that were formed; this wide network was not")
    ratios = []
    for scale, layer in zip(context.scales, context.initial[:: context.depth - 1], strict=True):
        singular = np.linalg.svd(layer, compute_uv=False)
        ratios += [scale / singular[:, -1], singular[:, 0] / scale]
    return np.nan_to_num(ratios, nan=np.inf)


def _start_of_the_loss(context: Context) -> np.ndarray:
    """Return ℒ(0)/(‖Y‖² + α²β²q‖X‖_F²log(n/δ)/m), (batch,)."""
    alpha, beta = context.scales
    chance = np.log(context.problem.samples / context.constants.delta)
    spread = (alpha * beta * context.input_frobenius) ** 2 * context.problem.outputs * chance
    return context.loss[0] / (context.target_norm**2 + spread / context.width)


def _wide(context: Context) -> dict[str, Hypothesis]:
    """Return the hypothesis m ≥ c(d + q + log(1/δ)) with the open constant c."""
    needed = context.problem.dimension + context.problem.outputs - np.log(context.constants.delta)
    return {"m ≥ c(d + q + log(1/δ))": Hypothesis(context.width, "≥", needed, constant=True)}


@statement("BO-LB.1", _wide)
def singular_values_at_start(context: Context) -> list[Check]:
    """Report the factor by which the largest of the four ratios exceeds 2; c is open."""
    names = ("α/σ_min(W_1)", "σ_max(W_1)/α", "β/σ_min(W_L)", "σ_max(W_L)/β")
    nonzero = [scale > 0 for scale in context.scales for _ in range(2)]
    rows = zip(_spread(context), names, nonzero, strict=True)
    return [Check(ratio, 2.0, name, where=some) for ratio, name, some in rows]


@statement("BO-LB.2", _wide, Context.identity_middle)
def loss_at_start(context: Context) -> Check:
    """Report the measured constant."""
    return context.with_constant(_start_of_the_loss(context), 1.0)


def _good(context: Context) -> dict[str, Hypothesis]:
    """Return the hypotheses β ≥ 2 and a good start, which in the lemmas is the event of BO-LB.1."""
    first, last = (np.max(part, axis=0) for part in np.split(_spread(context), 2))
    worst = np.maximum(np.where(context.scales[0] == 0, 0.0, first), last)
    return {
        "β ≥ 2": Hypothesis(context.scales[1], "≥", 2.0),
        "good initialization": Hypothesis(worst, "≤", 2.0),
    }


def _decay_rate(context: Context) -> np.ndarray:
    """Return β²σ_min²(X)/(4e), (batch,)."""
    return (context.scales[1] * context.smallest_singular) ** 2 / (4 * np.e)


@statement("BO-LB.3")
def decay_while_lazy(context: Context) -> Check:
    """Check the rate −dℒ/dt at every record, the squared norm of the gradient of ℒ = nR."""
    met = _good(context) | context.stays_finite()
    speed = context.problem.samples**2 * np.sum(context.gradient_squares, axis=-1)
    return Check(_decay_rate(context) * context.loss, speed, where=context.lazy, hypotheses=met)


@statement("BO-LB.4")
def decay_as_long_as_lazy(context: Context) -> Check:
    """Check the decay at every record up to which all layers stayed near their start."""
    return _decay(context, _good(context), np.logical_and.accumulate(context.lazy, axis=0))


def _decay(context: Context, hypotheses: dict, where: np.ndarray | bool = True) -> Check:
    """Check ℒ(t) ≤ ℒ(0)exp(−β²σ_min²(X)t/(4e)) after the start.

    With an open constant among the hypotheses, report the factor by which the rate is too large, at
    records where the loss is more than rounding.
    """
    rate, met = _decay_rate(context) * context.time, context.under_flow() | hypotheses
    if context.constants.c is None and any(map(is_open, hypotheses.values())):
        known = context.known_loss(context.problem.samples)
        where = where & context.later & (context.loss > tolerance(0.0, **known))
        reached = np.log(context.loss[:1] / context.loss)
        slow = np.where(reached > 0, ratio(rate, reached), np.inf)
        part = "rate of the loss: smallest factor"
        return value(slow, part, where=where, hypotheses=met)
    details = {"where": context.later & where, "slack": context.flow_slack}
    return context.loss_below(np.exp(-rate), "rate of the loss", hypotheses=met, **details)


@statement("BO-LB.5")
def stays_lazy(context: Context) -> Check:
    """Report the lazy distance over 1/(2L), under the conditions of BO-P5.2 and its decay.

    With the caller's c it is judged.
    """
    conditions: dict = _good(context) | _start_conditions(context)
    decay = context.loss[:1] * np.exp(-_decay_rate(context) * context.time)
    known = tolerance(
        decay, slack=context.flow_slack, **context.known_loss(context.problem.samples)
    )
    conditions["the loss decays as in BO-LB.4"] = np.all(context.loss <= decay + known, axis=0)
    met, later = context.under_flow() | conditions, context.later[..., None]
    least = 1 / (2 * context.depth)
    return Check(context.lazy_distance, least, "lazy distance", hypotheses=met, where=later)


def _start_conditions(context: Context) -> dict[str, Hypothesis]:
    """Return the conditions of BO-P5.2 on m, β and α with the open constant c."""
    problem, L = context.problem, context.depth
    chance = np.log(problem.samples / context.constants.delta)
    alpha, beta = context.scales
    X, sigma = context.input_norm, context.smallest_singular
    spread = (L * alpha * X * context.input_frobenius) ** 2 * problem.outputs * chance
    enough = spread / (beta**2 * sigma**4)
    large = max(1.0, np.sqrt(L * X * context.target_norm) / sigma)
    return _wide(context) | {
        "m large enough for L, α and X": Hypothesis(context.width, "≥", enough, constant=True),
        "β large enough": Hypothesis(beta, "≥", large, constant=True),
        "α ≤ 1": Hypothesis(alpha, "≤", 1.0),
    }


@statement("BO-P5.2", Context.identity_middle)
def convergence(context: Context) -> list[Check]:
    """Report the constants of all parts; part 2 over subsets of layers with the first (E-19)."""
    conditions = _start_conditions(context)
    flow, start = context.under_flow() | conditions, _start_of_the_loss(context)
    bound, size = context.bound_with_first[-1], _printed_bound(context)
    parts = [
        _decay(context, conditions),
        context.with_constant(start, 1.0, "3. ℒ(0)", hypotheses=conditions),
        context.with_constant(bound, size, "2. B with layer 1", hypotheses=flow),
    ]
    if "width" not in context.run.evidence:
        spread = np.max(_spread(context), axis=0)
        parts.append(context.with_constant(spread, 1.0, "1. good", hypotheses=conditions))
    return parts


def _printed_bound(context: Context) -> np.ndarray:
    """Return (α + 1/L)β, (batch,)."""
    alpha, beta = context.scales
    return (alpha + 1 / context.depth) * beta


@statement("E-19", Context.identity_middle)
def printed_bound_on_all_subsets(context: Context) -> list[Check]:
    """Report the required c, about L for small α, since the last layer alone has norm β."""
    size = _printed_bound(context)
    flow = context.under_flow() | _start_conditions(context)
    narrower = context.bound_with_first[-1] / size
    return [
        context.with_constant(context.bound[-1], size, "all subsets", hypotheses=flow),
        value(narrower, "with layer 1: smallest c", hypotheses=flow),
    ]


@statement("E-24", Context.identity_middle)
def printed_bound_on_the_product(context: Context) -> Check:
    """Report the required c: an interpolating map has at least the norm of Θ_min on the data."""
    least = np.linalg.norm(context.problem.optimum_columns, 2)
    conditions = context.under_flow() | _start_conditions(context)
    return context.with_constant(least, _printed_bound(context), hypotheses=conditions)


def split_of_interpolator(context: Context) -> RiskSplit:
    """Return the risk and its parts for the interpolator Θ_min + Θ_⊥ nearest to the trained map."""
    population, problem = context.require_population(), context.problem
    context.wide_data()
    ends = as_map(problem.optimum_columns + context.perpendicular[-1])
    return risk_split(problem, population, ends)


@statement("BO-risk", Context.stays_finite)
def excess_risk(context: Context) -> Check:
    """Report the risk of the trained map, which is between 0 and λ_1‖Θ − Θ*‖²."""
    population = context.require_population()
    theta = context.backward[0][-1]
    most = population.spectrum[0] * squared_distance(theta - population.optimum_columns)
    return Check(population.risk(as_map(theta)), most, "Risk ≤ λ_1‖Θ − Θ*‖²")


@statement("BO-L4.1", Context.stays_finite, Context.wide_data)
def inside_the_data(context: Context) -> Check:
    """Check the quantitative form at every record; exact interpolation makes the right side 0."""
    spectrum = context.problem.spectrum
    apart = spectrum.vectors.T @ context.backward[0] - spectrum.coordinates
    inside = np.linalg.norm(apart, axis=(-1, -2))
    bound = np.sqrt(context.loss) / context.smallest_singular
    return Check(inside, bound, scale=context.map_size)


@statement("BO-L4.2", Context.interpolates)
def risk_parts(context: Context) -> list[Check]:
    """Check the interpolator nearest to the trained map: as in the proof, then as printed."""
    split, population = split_of_interpolator(context), context.require_population()
    q = population.outputs
    chance = q * math.log(q / context.constants.delta)
    missed = split.bound / 2 - split.noise
    # Tr(ΩᵀCΩ) is quadratic in the noise, whose size the printed bound takes as 1.
    printed = missed + population.noise**2 * chance * noise_cost(context.problem, population)
    return [
        Check(split.total, split.bound, "of the proof"),
        context.with_constant(split.total, printed, "as printed"),
    ]


@statement("BO-T3.1")
def interpolation_risk(context: Context) -> list[Check]:
    """Report the constants of bias, variance, Ξ from ‖Θ_⊥‖, Ξ from ∫√ℒ, and the total."""
    split = split_of_interpolator(context)
    context.require_tail()
    population, n = context.require_population(), context.problem.samples
    delta, b, norms = context.constants.delta, context.constants.b, context.perpendicular_norm
    largest = math.sqrt(population.spectrum[0] * n)
    travelled = context.depth * context.bound[-1] ** 2 * largest * context.path[-1]
    bound, by_path = (
        interpolation_bound(population, n, norm, delta=delta, b=b)
        for norm in (norms[-1], norms[0] + travelled)
    )
    hypotheses = context.interpolates() | _enough_samples(context)
    along = hypotheses | context.under_flow()
    return [
        *_terms(context, split, bound, hypotheses),
        context.with_constant(
            split.xi, by_path.xi, "Ξ by ∫√ℒ", subtracted=context.risk_rounding, hypotheses=along
        ),
    ]


def _terms(context: Context, split: RiskSplit, bound: RiskBound, hypotheses: dict) -> list[Check]:
    """Report the constants of bias, variance and Ξ, each its own, and of the total."""
    rows = (
        (split.bias, bound.bias, "bias"),
        (split.noise, bound.variance, "variance"),
        (split.xi, bound.xi, "Ξ"),
        (split.total, bound.total, "total"),
    )
    known = {"subtracted": context.risk_rounding, "hypotheses": hypotheses}
    return [context.with_constant(*row, **known) for row in rows]


def _enough_samples(context: Context) -> dict:
    """Return the hypothesis n ≥ c·max(r_0, k, log(1/δ)) with the open constant c."""
    first = effective_ranks(context.require_population().spectrum).small[0]
    needed = max(first, context.require_tail().k, -math.log(context.constants.delta))
    enough = Hypothesis(context.problem.samples, "≥", needed, constant=True)
    return {"n ≥ c·max(r_0, k, log(1/δ))": enough}


@statement("BO-T3.2", Context.identity_middle)
def random_start_risk(context: Context) -> list[Check]:
    """Report the constants of bias, variance, Ξ as printed and corrected, and of the total."""
    split = split_of_interpolator(context)
    hypotheses = context.interpolates() | _enough_samples(context) | _random_start(context)
    printed, corrected = (_start_bound(context, corrected) for corrected in (False, True))
    return [
        *_terms(context, split, printed, hypotheses),
        context.with_constant(
            split.xi,
            corrected.xi,
            "Ξ corrected (E-19)",
            subtracted=context.risk_rounding,
            hypotheses=hypotheses,
        ),
    ]


def _start_bound(context: Context, corrected: bool) -> RiskBound:
    alpha, beta = context.scales
    return random_start_bound(
        context.require_population(),
        context.problem.samples,
        alpha=alpha,
        beta=beta,
        depth=context.depth,
        width=context.width,
        delta=context.constants.delta,
        b=context.constants.b,
        corrected=corrected,
    )


def _random_start(context: Context) -> dict:
    """Return the conditions of BO-T3.2 on α, β and m with the open constant c."""
    population, delta = context.require_population(), context.constants.delta
    alpha, beta = context.scales
    n, L, q = context.problem.samples, context.depth, population.outputs
    largest, s_0 = population.spectrum[0], np.sum(population.spectrum)
    s_k = context.require_tail().sum
    truth = np.linalg.norm(population.optimum)
    reach = math.sqrt(L * n) * (math.sqrt(truth) * largest**0.25 + q**0.25)
    spread = L**2 * alpha**2 * largest * s_0 * n**2 * q * math.log(n / delta)
    wide = np.maximum(population.dimension + q - math.log(delta), spread / (beta * s_k) ** 2)
    large = max(1.0, largest**0.25 * reach / math.sqrt(s_k))
    return {
        "gradient flow": context.is_flow,
        "α ≤ 1": Hypothesis(alpha, "≤", 1.0),
        "β large enough": Hypothesis(beta, "≥", large, constant=True),
        "width m large enough": Hypothesis(context.width, "≥", wide, constant=True),
    }


@statement("BO-C3.4")
def spike_risk(context: Context) -> Check:
    """Report c with the α and β of the proof: β of BO-T3.2, α so small that Ξ is of lower order."""
    population, n = context.require_population(), context.problem.samples
    k, epsilon = context.require_spike()
    context.identity_middle()
    split, d = split_of_interpolator(context), population.dimension
    bound = spike_bound(population, n, delta=context.constants.delta)
    rare = -math.log(context.constants.delta)
    start = _start_bound(context, corrected=False)
    conditions = _random_start(context) | {
        "α so small that Ξ is of lower order": Hypothesis(
            start.xi, "≤", start.bias + start.variance
        ),
        "d ≥ cn": Hypothesis(d, "≥", n, constant=True),
        "n ≥ c·max(k + εd, log(1/δ))": Hypothesis(
            n, "≥", max(k + epsilon * d, rare), constant=True
        ),
    }
    return context.with_constant(split.total, bound, hypotheses=context.interpolates() | conditions)


@statement("BO-disc", Context.interpolates)
def follows_interpolant(context: Context) -> Check:
    """Compare with the interpolant: the difference is the part Ξ due to Θ_⊥, benign or not."""
    split = split_of_interpolator(context)
    population = context.require_population()
    least = population.risk(context.problem.optimum)
    apart = np.abs(np.sqrt(split.total) - math.sqrt(least))
    return Check(apart, np.sqrt(split.xi), scale=np.sqrt(split.total))


@statement("BO-mod-id", Context.stays_finite, Context.by_gradients, Context.identity_middle)
def modified_identity(context: Context) -> Check:
    """Check networks that copy the input to the first d units and read the last q."""
    d, q, m = context.widths[0], context.widths[-1], context.widths[1]
    eye = np.eye(d + q)
    same = m == d + q and np.all(context.initial[0] == eye[:, :d])
    if not same or np.any(context.initial[-1] != eye[d:]) or context.readout is not None:
        raise NotApplicable("for the modified identity of width d + q")
    size = context.problem.optimum_norm + np.prod(context.singular_values, axis=-1)
    known = {"subtracted": size, "condition": context.condition}
    return Check(context.perpendicular_norm, 0.0, scale=size, **known)
