"""X-7, X-8 and X-11: minimizers of networks with any number of outputs."""

import jax.numpy as jnp
import numpy as np
import pytest
from dense_network import gap_after, hessian
from minimizer_search import largest, least, make_problem

import deeplin as dl
from deeplin.theory import (
    balanced_sharpness,
    critical_learning_rate,
    layerwise_sharpness,
    minimal_sharpness,
    minimal_trace,
    stability_limit,
)

SHAPES = [(3, 2, 2), (3, 2, 3), (4, 3, 2), (4, 3, 4), (2, 5, 3)]
"""(d, q, L), more inputs than outputs and fewer."""


@pytest.mark.parametrize(("d", "q", "depth"), SHAPES)
def test_minimal_sharpness_is_what_direct_minimization_finds(d, q, depth):
    problem = make_problem(d, q)
    minimal = minimal_sharpness(problem, depth)
    found = least(problem, depth, largest)
    assert found == pytest.approx(minimal.exact, rel=1e-8)
    assert found >= minimal.exact * (1 - 1e-12)
    assert minimal.lower <= minimal.exact <= minimal.upper


@pytest.mark.parametrize(("d", "q", "depth"), [*SHAPES, (4, 2, 1)])
def test_the_flattest_minimizer_attains_the_minimal_sharpness(d, q, depth):
    problem = make_problem(d, q)
    minimal = minimal_sharpness(problem, depth)
    for network in (minimal.minimizer, minimal.attaining(hidden=min(d, q))):
        np.testing.assert_allclose(network.product, problem.optimum, atol=1e-12)
        top = np.linalg.eigvalsh(hessian(problem, network))[-1]
        assert top == pytest.approx(minimal.exact, rel=1e-10)


def test_published_values_for_three_modes():
    """Target diag(10, 9.5, 9), L = 3, loss ½‖Θ − S‖²: deeplin's risk where Σ̂ = I/2."""
    X = np.sqrt(3 / 2) * np.eye(3)
    together = dl.Problem.from_data(X, X @ np.diag([10, 9.5, 9]))
    assert critical_learning_rate(together, 3) == pytest.approx(0.0309439, abs=5e-8)
    rates = []
    for size in (10, 9.5, 9):
        mode = dl.Problem.from_data(X, size * X[:, 0])
        rates.append(critical_learning_rate(mode, 3))
    np.testing.assert_allclose(rates, [0.0309439, 0.0331343, 0.0356111], atol=5e-8)


@pytest.mark.parametrize("outputs", [1, 3])
def test_white_data_have_the_closed_form_and_balance_is_flattest(outputs):
    """The lower bound of FM-T1 is attained there."""
    rng = np.random.default_rng(3)
    X = np.linalg.qr(rng.normal(size=(30, 4)))[0] * np.sqrt(30)
    problem = dl.Problem.from_data(X, X @ rng.normal(size=(4, outputs)))
    top = np.linalg.norm(problem.optimum, ord=2)
    for depth in (1, 2, 3, 7, 20):
        expected = 2 * depth * top ** (2 - 2 / depth)
        minimal = minimal_sharpness(problem, depth)
        for found in (minimal.exact, minimal.lower, balanced_sharpness(problem, depth)):
            assert found == pytest.approx(expected, rel=1e-12)


def test_a_second_target_of_zeros_changes_nothing():
    one = make_problem(4, 1)
    columns = np.concatenate([one.target_columns, np.zeros((20, 1))], axis=1)
    two = dl.Problem.from_data(one.inputs, columns)
    for depth in (1, 2, 5):
        expected = minimal_sharpness(one, depth).exact
        assert minimal_sharpness(two, depth).exact == pytest.approx(expected, rel=1e-13)
        expected = balanced_sharpness(one, depth)
        assert balanced_sharpness(two, depth) == pytest.approx(expected, rel=1e-12)


def test_rank_one_targets_on_wide_data_reduce_to_one_target():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4, 7))
    problem = dl.Problem.from_data(X, np.outer(rng.normal(size=4), [1.0, -2.0, 0.5]))
    minimal = minimal_sharpness(problem, 3)
    network = minimal.attaining(hidden=1)
    top = np.linalg.eigvalsh(hessian(problem, network))[-1]
    assert top == pytest.approx(minimal.exact, rel=1e-10)
    single = dl.Problem.from_data(X, problem.targets[:, 0] * np.sqrt(1 + 4 + 0.25))
    assert minimal.exact == pytest.approx(minimal_sharpness(single, 3).exact, rel=1e-12)


def test_hidden_layers_below_the_rank_are_refused():
    problem = make_problem(4, 3)
    for minimal in (minimal_sharpness(problem, 3), minimal_trace(problem, 3)):
        with pytest.raises(dl.InputError, match="rank 3"):
            minimal.attaining(hidden=2)


@pytest.mark.parametrize(("d", "q", "depth"), SHAPES)
def test_minimal_trace_is_what_direct_minimization_finds(d, q, depth):
    problem = make_problem(d, q)
    minimal = minimal_trace(problem, depth)
    found = least(problem, depth, jnp.trace)
    assert found == pytest.approx(minimal.exact, rel=1e-8)
    for network in (minimal.minimizer, minimal.attaining(hidden=min(d, q))):
        np.testing.assert_allclose(network.product, problem.optimum, atol=1e-12)
        trace = np.trace(hessian(problem, network))
        assert trace == pytest.approx(minimal.exact, rel=1e-12)


def test_deep_networks_of_large_maps_do_not_overflow():
    X = 1e3 * np.eye(3)
    problem = dl.Problem.from_data(X, 1e6 * np.eye(3))
    depth = 400
    share = 3e6 * np.sqrt(1 / 3)  # ‖Θ*Σ̂^{1/2}‖_*, Σ̂ = 1e6/3 I and Θ* = 1e3 I
    expected = 2 * depth * (3 * 1e6) ** (1 / depth) * share ** (2 - 2 / depth)
    assert minimal_trace(problem, depth).exact == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_minimal_trace_with_a_readout(problem, depth):
    p = np.array([0.5, -1.0, 2.0])
    minimal = minimal_trace(problem, depth, p)
    network = minimal.minimizer
    np.testing.assert_allclose(network.product, problem.optimum, atol=1e-12)
    assert np.trace(hessian(problem, network)) == pytest.approx(minimal.exact, rel=1e-12)


RATES = np.array([0.2, 3.0, 1.0])


@pytest.mark.parametrize(("d", "q"), [(3, 1), (3, 2)])
def test_layerwise_rates_count_by_their_geometric_mean(d, q):
    problem = make_problem(d, q)
    smallest = layerwise_sharpness(problem, RATES)
    found = least(problem, 3, largest, rates=RATES)
    assert found == pytest.approx(smallest, rel=1e-8)
    network = minimal_sharpness(problem, 3).attaining(rates=RATES)
    np.testing.assert_allclose(np.squeeze(network.product), problem.optimum.squeeze(), atol=1e-12)
    scale = np.sqrt(np.repeat(RATES, [weight.size for weight in network.weights]))
    preconditioned = scale[:, None] * hessian(problem, network) * scale
    assert np.linalg.eigvalsh(preconditioned)[-1] == pytest.approx(smallest, rel=1e-10)


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_descent_with_layerwise_rates_settles_only_below_the_threshold(momentum):
    problem = make_problem(3, 2)
    unit = stability_limit(momentum) / layerwise_sharpness(problem, RATES)
    network = minimal_sharpness(problem, 3).attaining(rates=RATES)
    below, above = (
        gap_after(problem, network, factor * unit * RATES, 3000, momentum=momentum)
        for factor in (0.97, 1.03)
    )
    assert below < 1e-16 < 1e-6 < above


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("outputs", [1, 2])
def test_descent_beside_the_flattest_minimizer_settles_only_below_the_threshold(
    momentum, nesterov, outputs
):
    problem = make_problem(3, outputs)
    rate = critical_learning_rate(problem, 3, momentum=momentum, nesterov=nesterov)
    network = minimal_sharpness(problem, 3).minimizer
    below, above = (
        gap_after(problem, network, factor * rate, 3000, momentum=momentum, nesterov=nesterov)
        for factor in (0.97, 1.03)
    )
    assert below < 1e-16 < 1e-6 < above


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.95])
def test_stability_limit_is_where_the_two_step_matrix_leaves_the_unit_disk(momentum, nesterov):
    limit = stability_limit(momentum, nesterov=nesterov)

    def radius(curvature):
        keep = 1 - curvature
        ahead, back = (
            ((1 + momentum) * keep, momentum * keep)
            if nesterov
            else (1 + momentum - curvature, momentum)
        )
        return np.abs(np.linalg.eigvals([[ahead, -back], [1.0, 0.0]])).max()

    assert radius(limit) == pytest.approx(1, abs=1e-12)
    assert max(radius(share * limit) for share in np.linspace(0.01, 0.999, 50)) < 1
    assert radius(1.001 * limit) > 1


@pytest.mark.parametrize("rates", [[], [1.0, 0.0], [1.0, -1.0], [[1.0]], [np.nan, 1.0]])
def test_bad_rates_are_named(problem, rates):
    with pytest.raises(dl.InputError, match="rates"):
        layerwise_sharpness(problem, rates)
