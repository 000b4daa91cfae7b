"""X-9: the global minimizer with weight decay, its sharpness, and where it collapses."""

import numpy as np
import pytest
from dense_network import gap_after, gradients, hessian, product
from minimizer_search import make_problem
from scipy.optimize import minimize

import deeplin as dl
from deeplin.theory import (
    balanced_sharpness,
    critical_learning_rate,
    critical_weight_decay,
    decayed_minimum,
)


def one_target(**options):
    return make_problem(**{"seed": 0, "spread": 5.0, "noise": 0.3} | options)


def white_problem(q=2):
    rng = np.random.default_rng(4)
    X = np.linalg.qr(rng.normal(size=(12, 3)))[0] * np.sqrt(6.0)
    return dl.Problem.from_data(X, X @ rng.normal(size=(3, q)) + 0.1 * rng.normal(size=(12, q)))


def objective(problem, decay, weights, readout=None):
    """F on the rows of the data, and its slope in all weights."""
    X, Y = problem.inputs, problem.target_columns
    layers = [*weights, *([] if readout is None else [readout[None]])]
    fit = np.sum((X @ product(layers).T - Y) ** 2) / problem.samples
    slopes = gradients(X, Y, layers, decay)[: len(weights)]
    slope = np.concatenate([part.ravel() for part in slopes])
    return fit + decay * sum(np.sum(weight**2) for weight in weights), slope


def curvatures(problem, decay, weights, readout=None):
    """The eigenvalues of the Hessian of F."""
    matrix = hessian(problem, dl.Network(weights, readout=readout))
    return np.linalg.eigvalsh(matrix + 2 * decay * np.eye(len(matrix)))


def directly_minimized(problem, depth, decay, readout=None, seeds=5):
    """The best of several descents on F over all weights: its value, and its sharpness."""
    last = problem.outputs if readout is None else len(readout)
    widths = (problem.dimension, *[3] * (depth - 1), last)
    shapes = [(widths[k + 1], widths[k]) for k in range(depth)]
    cuts = np.cumsum([a * b for a, b in shapes])

    def weights_of(x):
        parts = np.split(x, cuts[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    runs = []
    for seed in range(seeds):
        start = np.random.default_rng(seed).normal(size=cuts[-1])
        runs.append(
            minimize(
                lambda x: objective(problem, decay, weights_of(x), readout),
                start,
                jac=True,
                method="BFGS",
                options={"gtol": 1e-11, "maxiter": 3000},
            )
        )
    best = min(runs, key=lambda run: run.fun)
    return best.fun, curvatures(problem, decay, weights_of(best.x), readout)[-1]


CASES = [(1, 0.05), (2, 0.001), (2, 0.2), (2, 0.9), (3, 0.01), (3, 0.1), (3, 0.5), (4, 0.05)]


@pytest.mark.parametrize("readout", [None, np.array([0.6, 1.0])], ids=["plain", "readout"])
@pytest.mark.parametrize(("depth", "decay"), CASES)
def test_the_minimum_is_what_direct_minimization_finds(depth, decay, readout):
    problem = one_target()
    z = decayed_minimum(problem, depth, decay, readout)
    value, curvature = directly_minimized(problem, depth, decay, readout)
    assert z.objective == pytest.approx(value, rel=1e-10)
    # BFGS knows the weights to the root of the precision of F
    assert z.sharpness == pytest.approx(curvature, rel=1e-6)


@pytest.mark.parametrize(("depth", "decay"), [(2, 0.05), (3, 0.05), (4, 0.05), (3, 5.0)])
def test_the_network_has_the_objective_and_the_sharpness(depth, decay):
    problem = one_target()
    z = decayed_minimum(problem, depth, decay)
    for network in (z.network, z.attaining(hidden=1)):
        weights = [np.asarray(weight) for weight in network.weights]
        value, slope = objective(problem, decay, weights)
        assert value == pytest.approx(z.objective, rel=1e-13)
        assert np.linalg.norm(slope) < 1e-12
        values = curvatures(problem, decay, weights)
        assert values[-1] == pytest.approx(z.sharpness, rel=1e-12)
        assert values[0] > -1e-12
    assert z.collapsed == (decay == 5.0)


@pytest.mark.parametrize(("depth", "decay"), [(2, 0.1), (2, 0.6), (3, 0.1), (3, 3.0)])
def test_the_minimum_for_several_outputs_on_white_data_is_what_direct_minimization_finds(
    depth, decay
):
    problem = white_problem()
    z = decayed_minimum(problem, depth, decay)
    value, curvature = directly_minimized(problem, depth, decay)
    assert z.objective == pytest.approx(value, rel=1e-10)
    assert z.sharpness == pytest.approx(curvature, rel=1e-6)


def correlated_problem(rank=2):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, 3)) * [1, 0.6, 0.4]
    truth = rng.normal(size=(3, 2)) if rank == 2 else np.outer(rng.normal(size=3), [1.0, 2.0])
    return dl.Problem.from_data(X, X @ truth + 0.1 * (rank == 2) * rng.normal(size=(20, 2)))


@pytest.mark.parametrize(
    ("depth", "share", "certified"),
    [(1, 0.1, True), (2, 0.02, True), (2, 0.6, True), (3, 0.01, True), (3, 0.6, False)],
)
def test_the_minimum_for_several_outputs_on_any_data_is_what_direct_minimization_finds(
    depth, share, certified
):
    problem = correlated_problem()
    decay = share * critical_weight_decay(problem, max(depth, 2)).value
    z = decayed_minimum(problem, depth, decay)
    value, curvature = directly_minimized(problem, depth, decay)
    assert z.objective == pytest.approx(value, rel=1e-10)
    assert z.sharpness == pytest.approx(curvature, rel=1e-6)
    assert z.certified == certified
    if certified:
        assert critical_learning_rate(problem, depth, weight_decay=decay) == 2 / z.sharpness
    else:
        with pytest.raises(dl.InputError, match=r"no closed form.*decayed_minimum"):
            critical_learning_rate(problem, depth, weight_decay=decay)


@pytest.mark.parametrize("depth", [2, 3, 4, 10])
def test_the_collapse_of_several_outputs_is_that_of_one(depth):
    """Targets y and 2y are one target √5 times as large: the ridge path is the oracle."""
    problem = correlated_problem(rank=1)
    single = dl.Problem.from_data(problem.inputs, problem.targets[:, 0] * np.sqrt(5))
    found, expected = (critical_weight_decay(p, depth) for p in (problem, single))
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    assert found.jump == pytest.approx(expected.jump, rel=1e-7, abs=1e-12)  # at a flat maximum
    several, one = (decayed_minimum(p, depth, 0.4 * found.value) for p in (problem, single))
    assert several.certified
    assert several.objective == pytest.approx(one.objective, rel=1e-12)
    assert several.sharpness == pytest.approx(one.sharpness, rel=1e-8)


def test_the_critical_decay_of_several_outputs_is_the_largest_ratio_of_gain_and_cost():
    """Against a search over the weights of three layers, where the cost is Σ‖W‖²."""
    problem = correlated_problem()
    sigma, best = problem.covariance, problem.optimum.T

    def negative_ratio(x):
        first, second, third = x[:6].reshape(2, 3), x[6:10].reshape(2, 2), x[10:].reshape(2, 2)
        missing = (third @ second @ first).T - best
        gain = np.sum(best * (sigma @ best)) - np.sum(missing * (sigma @ missing))
        return -gain / np.sum(x**2)

    rng = np.random.default_rng(0)
    runs = [minimize(negative_ratio, rng.normal(size=14), method="BFGS") for _ in range(4)]
    found, critical = -min(run.fun for run in runs), critical_weight_decay(problem, 3).value
    assert found == pytest.approx(critical, rel=1e-8)
    assert found <= critical * (1 + 1e-12)


def test_singular_values_left_by_rounding_do_not_add_to_the_objective():
    """At depth 10 a singular value of 1e-17 left by rounding would add 2% to the objective."""
    problem = white_problem()
    decay = 0.9 * critical_weight_decay(problem, 10).value
    z = decayed_minimum(problem, 10, decay)
    layers = [np.asarray(weight) for weight in z.network.weights]
    cost = z.risk + decay * sum(np.sum(layer**2) for layer in layers)
    assert z.objective == pytest.approx(cost, rel=1e-12)


@pytest.mark.parametrize("depth", [2, 3, 6])
def test_sharpness_tends_to_the_balanced_one(depth):
    problem = one_target()
    balanced = balanced_sharpness(problem, depth)
    distances = [
        abs(decayed_minimum(problem, depth, decay).sharpness / balanced - 1)
        for decay in (1e-3, 1e-5, 1e-7)
    ]
    assert distances[0] > 10 * distances[1] > 100 * distances[2]
    assert distances[2] < 1e-5


@pytest.mark.parametrize("readout", [None, np.array([0.6, 1.0])])
def test_two_layers_collapse_continuously_at_the_norm_of_the_cross_moment(readout):
    problem = one_target()
    norm = 1.0 if readout is None else np.linalg.norm(readout)
    critical = critical_weight_decay(problem, 2, readout)
    assert critical.value == pytest.approx(norm * np.linalg.norm(problem.cross_moment), rel=1e-12)
    assert critical.jump == 0
    just_below = decayed_minimum(problem, 2, (1 - 1e-6) * critical.value, readout)
    assert 0 < np.linalg.norm(just_below.product) < 1e-4
    assert decayed_minimum(problem, 2, (1 + 1e-12) * critical.value, readout).collapsed


@pytest.mark.parametrize("inputs", [1, 3])
@pytest.mark.parametrize("below", [1e-3, 1e-9, 1e-13, 1e-16])
def test_two_layers_shrink_to_nothing_just_below_their_critical_decay(inputs, below):
    """‖w‖ falls to 0 in proportion to what is left of the decay, down to rounding."""
    problem = one_target(d=inputs)
    critical = critical_weight_decay(problem, 2).value
    z = decayed_minimum(problem, 2, critical * (1 - below))
    size = np.linalg.norm(z.product) / problem.optimum_norm
    largest = problem.largest_eigenvalue / problem.smallest_eigenvalue
    # the difference of decay and critical decay is known to a few units of rounding
    assert size <= 2 * largest * (below + 1e-15)


@pytest.mark.parametrize("depth", [3, 4, 10])
@pytest.mark.parametrize("seed", [0, 1])
def test_deeper_networks_jump_to_zero(depth, seed):
    problem = one_target(seed=seed, spread=30.0)
    critical = critical_weight_decay(problem, depth)
    below = decayed_minimum(problem, depth, (1 - 1e-9) * critical.value)
    above = decayed_minimum(problem, depth, (1 + 1e-9) * critical.value)
    assert not below.collapsed
    assert above.collapsed
    assert np.linalg.norm(below.product) == pytest.approx(critical.jump, rel=1e-6)
    # both are minimizers there, so the objective does not jump
    assert below.objective == pytest.approx(above.objective, rel=1e-8)
    assert above.sharpness == 2 * above.weight_decay


def test_the_critical_decay_is_the_largest_ratio_of_gain_and_cost():
    """Against a search over all products w, not only those on the ridge path."""
    problem = one_target(seed=2)
    sigma, w = problem.covariance, problem.optimum

    def negative_ratio(x):
        gain = w @ sigma @ w - (x - w) @ sigma @ (x - w)
        return -gain / (4 * np.linalg.norm(x) ** (2 / 4))

    found = minimize(negative_ratio, 0.8 * w, method="Nelder-Mead", options={"fatol": 1e-14})
    assert critical_weight_decay(problem, 4).value == pytest.approx(-found.fun, rel=1e-10)


def test_the_best_of_several_minima_on_the_path_is_found():
    """Two inputs of very different power: weak decay keeps both, strong decay one or none."""
    sigma = np.diag([1.0, 1e-4])
    problem = dl.Problem.from_moments(sigma, sigma @ [1.0, 60.0], 10.0, samples=10)
    for decay in np.geomspace(1e-4, 1.0, 25):
        z = decayed_minimum(problem, 3, decay)
        grid = np.geomspace(1e-8, 1e4, 200_001)  # ridge strengths, searched without roots
        shares = np.diag(sigma) / (np.diag(sigma) + grid[:, None])
        products = shares * [1.0, 60.0]
        risks = problem.minimal_risk + ((products - [1.0, 60.0]) ** 2) @ np.diag(sigma)
        costs = risks + decay * 3 * np.linalg.norm(products, axis=1) ** (2 / 3)
        best = min(costs.min(), problem.target_moment)
        assert z.objective <= best * (1 + 1e-12)
        assert z.objective == pytest.approx(best, rel=1e-6)  # the grid is fine to 1e-4, squared


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.8, False), (0.8, True)])
@pytest.mark.parametrize("depth", [2, 3])
def test_descent_with_decay_settles_only_below_the_critical_rate(depth, momentum, nesterov):
    problem, decay = one_target(spread=1.5), 0.02
    rate = critical_learning_rate(
        problem, depth, momentum=momentum, nesterov=nesterov, weight_decay=decay
    )
    z = decayed_minimum(problem, depth, decay)
    assert z.critical_learning_rate(momentum, nesterov=nesterov) == rate
    below, above = (
        gap_after(
            problem,
            z.network,
            factor * rate,
            4000,
            momentum=momentum,
            nesterov=nesterov,
            decay=decay,
        )
        for factor in (0.97, 1.03)
    )
    assert below < 1e-16 < 1e-6 < above


@pytest.mark.parametrize("decay", [0.0, -1.0, np.nan])
def test_bad_decay_is_named(problem, decay):
    with pytest.raises(dl.InputError, match="weight_decay"):
        decayed_minimum(problem, 2, decay)
