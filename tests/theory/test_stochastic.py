"""X-10: the second moment of mini-batch descent, against all batches enumerated."""

from itertools import combinations

import numpy as np
import pytest
from dense_network import gradients, product
from minimizer_search import make_problem, random_minimizer

import deeplin as dl
from deeplin.theory import (
    critical_learning_rate,
    minimal_sharpness,
    minimal_stochastic_sharpness,
    stochastic_sharpness,
)
from deeplin.theory.balanced import balanced_network
from deeplin.theory.second_moment import DENSE, SecondMoment

EXACT = {"seed": 0, "spread": 2.0, "noise": 0.0}
"""Data that a linear map fits exactly."""


def kernel_of(problem, network):
    """K = JJᵀ by moving every weight: w is linear in each."""
    weights = [np.asarray(weight) for weight in network.weights]
    columns = []
    for k, weight in enumerate(weights):
        for entry in range(weight.size):
            direction = np.zeros(weight.size)
            direction[entry] = 1.0
            moved = [*weights[:k], direction.reshape(weight.shape), *weights[k + 1 :]]
            columns.append(product(moved)[0])
    jacobian = np.array(columns).T
    return jacobian @ jacobian.T


def spectral_radius(problem, kernel, batch_size, rate, momentum=0.0):
    """Of E[M ⊗ M] over all batches, on the row space; M is one step in function space."""
    X = problem.inputs
    basis = np.linalg.svd(X, full_matrices=False)[2].T
    d = basis.shape[1]
    rows, kernel = X @ basis, basis.T @ kernel @ basis
    total, count = 0.0, 0
    for batch in combinations(range(len(X)), batch_size):
        chosen = rows[list(batch)]
        step = (1 + momentum) * np.eye(d) - 2 * rate * kernel @ chosen.T @ chosen / batch_size
        if momentum:
            step = np.block([[step, -momentum * np.eye(d)], [np.eye(d), np.zeros((d, d))]])
        total, count = total + np.kron(step, step), count + 1
    return np.abs(np.linalg.eigvals(total / count)).max()


SHAPES = [(6, 3, 1), (6, 3, 2), (7, 2, 3), (6, 3, 6), (4, 6, 2)]
"""(n, d, B); the last interpolates on a row space smaller than the inputs."""


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("n", "d", "B"), SHAPES)
def test_the_enumerated_second_moment_is_neutral_at_the_threshold(n, d, B, momentum):
    problem = make_problem(d, n=n, **EXACT)
    network = minimal_sharpness(problem, 3).minimizer
    s = stochastic_sharpness(problem, network, B, momentum=momentum)
    kernel = kernel_of(problem, network)
    rate = s.critical_learning_rate
    radii = [
        spectral_radius(problem, kernel, B, factor * rate, momentum)
        for factor in (0.5, 0.9, 0.999, 1, 1.001, 1.1)
    ]
    assert radii[3] == pytest.approx(1, abs=1e-9)  # a radius has the root of the precision at worst
    assert max(radii[:3]) < 1 < min(radii[4:])
    assert s.value <= s.upper <= s.value * (1 + 1e-9)


def test_weights_follow_the_second_moment_in_function_space():
    """E(w − w*)(w − w*)ᵀ of networks trained on batches, against the enumerated recursion."""
    n, d, B, copies, steps = 5, 2, 2, 20_000, 6
    problem = make_problem(d, n=n, **EXACT)
    network = minimal_sharpness(problem, 2).attaining(hidden=1)
    rate = stochastic_sharpness(problem, network, B).critical_learning_rate
    kernel, X, Y = kernel_of(problem, network), problem.inputs, problem.target_columns
    rng = np.random.default_rng(0)
    start = [
        np.asarray(weight) + 1e-5 * rng.normal(size=weight.shape) for weight in network.weights
    ]
    batches = [list(batch) for batch in combinations(range(n), B)]
    ends = []
    # paths share their first steps: each distinct sequence of batches is drawn with its count
    for path, count in _draw_paths(rng, len(batches), steps, copies):
        weights = start
        for index in path:
            slopes = gradients(X[batches[index]], Y[batches[index]], weights)
            weights = [w - rate * g for w, g in zip(weights, slopes, strict=True)]
        error = product(weights)[0] - problem.optimum
        ends.append(count * np.outer(error, error))
    measured = np.sum(ends, axis=0) / copies
    error = product(start)[0] - problem.optimum
    moment = np.outer(error, error)
    for _ in range(steps):
        moved = []
        for batch in batches:
            step = np.eye(d) - 2 * rate * kernel @ X[batch].T @ X[batch] / B
            moved.append(step @ moment @ step.T)
        moment = np.mean(moved, axis=0)
    # 20 000 draws of a quantity whose spread is about its mean
    np.testing.assert_allclose(measured, moment, rtol=0.06, atol=0.02 * np.trace(moment))


def _draw_paths(rng, choices, steps, copies):
    paths, counts = np.unique(
        rng.integers(choices, size=(copies, steps)), axis=0, return_counts=True
    )
    return zip(paths, counts, strict=True)


@pytest.mark.parametrize(("n", "d", "depth", "B"), [(12, 3, 2, 3), (30, 4, 5, 1), (5, 8, 3, 2)])
def test_no_minimizer_is_flatter_for_batches_than_the_certified_bound(n, d, depth, B):
    problem = make_problem(d, n=n, **EXACT | {"seed": 2})
    minimal = minimal_stochastic_sharpness(problem, depth, B)
    assert minimal.exact * (1 - 1e-7) <= minimal.lower <= minimal.exact <= minimal.upper
    assert minimal.upper <= minimal.exact * (1 + 1e-9)
    attained = stochastic_sharpness(problem, minimal.minimizer, B).value
    assert attained == pytest.approx(minimal.exact, rel=1e-10)
    basis = problem.spectrum.vectors
    w = basis.T @ problem.optimum
    for t in np.geomspace(0.05, 20, 60):  # the formula on a grid
        kernel = t**2 * np.eye(len(w)) + (depth - 1) * t ** (-2 / (depth - 1)) * np.outer(w, w)
        found = SecondMoment(problem.inputs @ basis, kernel, B).top().value
        assert found >= minimal.lower * (1 - 1e-12)
    rng = np.random.default_rng(0)
    for _ in range(20):  # and any minimizer
        network = random_minimizer(problem, depth, rng, scale=rng.uniform(0.3, 1.5))
        assert stochastic_sharpness(problem, network, B).value >= minimal.lower * (1 - 1e-9)
    assert minimal.exact > minimal_sharpness(problem, depth).exact
    rate = critical_learning_rate(problem, depth, batch_size=B)
    assert rate == minimal.critical_learning_rate == 2 / minimal.exact


def test_the_threshold_falls_as_batches_shrink_and_ends_at_the_full_batch():
    problem = make_problem(3, n=12, **EXACT)
    values = [minimal_stochastic_sharpness(problem, 3, B).exact for B in (1, 2, 4, 8, 11, 12)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == minimal_sharpness(problem, 3).exact
    assert critical_learning_rate(problem, 3, batch_size=12) == critical_learning_rate(problem, 3)


def test_the_threshold_of_batches_is_exact_for_one_layer_and_with_a_readout():
    problem = make_problem(3, n=6, **EXACT)
    one = minimal_stochastic_sharpness(problem, 1, 2, readout=[2.0])
    kernel = 4 * np.eye(3)
    rate = one.critical_learning_rate
    assert spectral_radius(problem, kernel, 2, rate) == pytest.approx(1, abs=1e-12)
    deep = minimal_stochastic_sharpness(problem, 3, 2, readout=[1.2, -1.6])
    attained = stochastic_sharpness(problem, deep.minimizer, 2).value
    assert attained == pytest.approx(deep.exact, rel=1e-12)
    # a read-out of norm 2 doubles the outputs, as inputs of twice the size do
    twice = dl.Problem.from_data(2 * problem.inputs, problem.targets)
    assert deep.exact == pytest.approx(minimal_stochastic_sharpness(twice, 3, 2).exact, rel=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_lanczos_agrees_with_the_dense_matrix(momentum, monkeypatch):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(40, DENSE))
    factor = rng.normal(size=(DENSE, DENSE))
    moment = SecondMoment(rows, factor @ factor.T + np.eye(DENSE), 5, momentum)
    dense = moment.top()
    monkeypatch.setattr("deeplin.theory.second_moment.DENSE", 2)
    lanczos = moment.top()
    assert lanczos.value == pytest.approx(dense.value, rel=1e-12)
    assert lanczos.value <= lanczos.upper <= lanczos.value * (1 + 1e-6)


def test_the_upper_bound_holds_where_the_moment_is_singular():
    """Rows along the axes: the second moment falls apart, and its eigenvector has rank one."""
    rows = np.diag([1.0, 2.0, 3.0])[[0, 0, 1, 2, 2]]
    moment = SecondMoment(rows, np.eye(3), 2).top()
    power = np.sum(rows**4, axis=0) / 5 * 0.375 + 0.625 * np.mean(rows**2, axis=0) ** 2
    expected = 2 * np.max(power / np.mean(rows**2, axis=0))
    assert moment.value == pytest.approx(expected, rel=1e-12)
    assert expected * (1 - 1e-12) <= moment.upper <= expected * (1 + 1e-6)


def test_unsupported_input_is_refused_with_a_reason(rng):
    X = rng.normal(size=(20, 3))
    noisy = dl.Problem.from_data(X, X[:, 0] + rng.normal(size=20))
    with pytest.raises(dl.InputError, match="does not settle"):
        critical_learning_rate(noisy, 2, batch_size=5)
    network = minimal_sharpness(noisy, 2).minimizer
    with pytest.raises(dl.InputError, match="does not settle"):
        stochastic_sharpness(noisy, network, 5)
    linear = stochastic_sharpness(noisy, network, 5, linearized=True)
    assert linear.value > minimal_sharpness(noisy, 2).exact
    clean = dl.Problem.from_data(X, X[:, 0])
    with pytest.raises(dl.InputError, match="at most"):
        critical_learning_rate(clean, 2, batch_size=21)
    with pytest.raises(dl.InputError, match="momentum"):
        critical_learning_rate(clean, 2, batch_size=5, momentum=0.5)
    with pytest.raises(dl.InputError, match="weight_decay"):
        critical_learning_rate(clean, 2, batch_size=5, weight_decay=0.1)
    with pytest.raises(dl.InputError, match="one target"):
        critical_learning_rate(dl.Problem.from_data(X, X[:, :2]), 2, batch_size=5)
    moments = dl.Problem.from_moments(clean.covariance, clean.cross_moment, 2.0, samples=20)
    with pytest.raises(dl.InputError, match="needs the data"):
        critical_learning_rate(moments, 2, batch_size=5)
    start = dl.Network([np.ones((2, 3)), np.ones((1, 2))])
    with pytest.raises(dl.InputError, match="not at a minimizer"):
        stochastic_sharpness(clean, start, 5)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_below_the_bound_the_second_moment_of_several_outputs_is_stable(decay):
    """Against the operator on all moments of all weights, every batch of two enumerated."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(5, 2))
    problem = dl.Problem.from_data(X, X @ rng.normal(size=(2, 2)))
    network = balanced_network(problem, 2)
    bound = dl.theory.bounds.stochastic_sharpness_bound(problem, network, 2, weight_decay=decay)
    first, last = (np.asarray(weight) for weight in network.weights)
    rows = [np.hstack([np.kron(last, x[None]), np.kron(np.eye(2), first @ x)]) for x in X]
    curvatures = [2 * row.T @ row + 2 * decay * np.eye(8) for row in rows]

    def radius(rate):
        steps = [
            np.eye(8) - rate * (curvatures[i] + curvatures[j]) / 2
            for i, j in combinations(range(5), 2)
        ]
        operator = np.mean([np.kron(step, step) for step in steps], axis=0)
        return np.abs(np.linalg.eigvals(operator)).max()

    assert radius(2 / bound) <= 1 + 1e-12
    assert radius(6 / bound) > 1  # and the bound is not far from the truth
    whole = dl.theory.bounds.stochastic_sharpness_bound(problem, network, 5, weight_decay=decay)
    assert whole == pytest.approx(np.linalg.eigvalsh(np.mean(curvatures, axis=0))[-1], rel=1e-12)
