"""The reduced network has the training of the full one, to rounding (X-4)."""

import dense_network
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deeplin as dl
from deeplin.dynamics import reduce


def _random_case(seed):
    """Data and a network with identity or orthogonal middle layers: shapes, depths 2 to 6."""
    rng = np.random.default_rng(seed)
    d, q, depth = int(rng.integers(2, 13)), int(rng.integers(1, 4)), int(rng.integers(2, 7))
    n, m = int(rng.integers(1, 9)), int(rng.integers(2, 31))
    X, Y = rng.normal(size=(n, d)), rng.normal(size=(n, q))
    if seed % 2:
        middle = [np.linalg.qr(rng.normal(size=(m, m)))[0] for _ in range(depth - 2)]
    else:
        middle = [np.eye(m)] * (depth - 2)
    first, last = rng.normal(size=(m, d)) / np.sqrt(m), rng.normal(size=(q, m)) / np.sqrt(m)
    return dl.Problem.from_data(X, Y), dl.Network([first, *middle, last])


def _agree(reduction, full, small):
    """Relative distance of the lifted weights, and of Θ, from those of the full network."""
    lifted = reduction.lift(dl.Network(small))
    errors = [
        np.linalg.norm(np.asarray(a) - b) / np.linalg.norm(b)
        for a, b in zip(lifted.weights, full, strict=True)
    ]
    theta = dense_network.product(full)
    difference = np.asarray(reduction.theta(dl.Network(small))).reshape(theta.shape) - theta
    return max(*errors, np.linalg.norm(difference) / np.linalg.norm(theta))


@pytest.mark.parametrize("seed", range(16))
def test_descent_momentum_and_flow_of_the_reduced_network_are_those_of_the_full_one(seed):
    problem, network = _random_case(seed)
    reduction = reduce(problem, network)
    small = reduction.problem
    rank, q = problem.rank, problem.outputs
    assert all(width <= rank + q for width in reduction.network.widths[1:-1])
    assert reduction.network.widths[0] == rank
    dynamics = {
        "descent": lambda p, w: dense_network.descend(p.inputs, p.target_columns, w, 0.01, 60),
        "momentum": lambda p, w: dense_network.descend(
            p.inputs, p.target_columns, w, 0.003, 60, 0.9
        ),
        "flow": lambda p, w: dense_network.flow(p.inputs, p.target_columns, w, 0.5),
    }
    for name, run in dynamics.items():
        full, reduced = run(problem, network.weights), run(small, reduction.network.weights)
        assert _agree(reduction, full, reduced) < 1e-10, name


def test_any_two_layer_network_reduces_to_rank_plus_outputs(rng):
    problem = dl.Problem.from_data(rng.normal(size=(4, 20)), rng.normal(size=(4, 2)))
    network = dl.initialize.gaussian(jax.random.key(0), (20, 50, 2), 0.3)
    assert reduce(problem, network).network.widths == (4, 6, 2)


def test_gaussian_middle_layers_leave_nothing_smaller(problem):
    network = dl.initialize.gaussian(jax.random.key(0), (5, 8, 8, 8, 1), 0.3)
    reduction = reduce(problem, network)
    assert reduction.network is network
    assert reduction.problem is problem
    assert np.array_equal(reduction.lift(network).weights[1], network.weights[1])


def test_a_gaussian_middle_still_loses_its_idle_inputs(wide_problem):
    network = dl.initialize.gaussian(jax.random.key(0), (10, 12, 12, 1), 0.3)
    reduction = reduce(wide_problem, network)
    assert reduction.network.widths == (6, 12, 12, 1)


def test_low_rank_middle_layers_reduce_below_the_general_bound(rng):
    problem = dl.Problem.from_data(rng.normal(size=(30, 6)), rng.normal(size=30))
    left, right = rng.normal(size=(2, 20, 1))
    first, last = rng.normal(size=(20, 6)), rng.normal(size=(1, 20))
    network = dl.Network([first, left @ right.T, last])
    reduction = reduce(problem, network)
    assert reduction.network.widths == (6, 7, 2, 1)
    run = lambda p, w: dense_network.descend(p.inputs, p.target_columns, w, 1e-4, 40)  # noqa: E731
    full = run(problem, network.weights)
    assert _agree(reduction, full, run(reduction.problem, reduction.network.weights)) < 1e-10


def test_the_residual_network_reduces_its_last_layer_to_the_read_out(problem):
    readout = np.arange(1.0, 6.0)
    network = dl.initialize.residual(jax.random.key(1), 5, 3, scale=0.0, readout=readout)
    reduction = reduce(problem, network)
    assert reduction.network.widths == (5, 5, 5, 1)
    full, small = (
        _descend_with_readout(case.inputs, case.target_columns, net)
        for case, net in ((problem, network), (reduction.problem, reduction.network))
    )
    for a, b in zip(reduction.lift(small).weights, full.weights, strict=True):
        assert np.allclose(a, b, atol=1e-12)
    theta = dense_network.product([*map(np.asarray, full.weights), readout[None]])[0]
    assert np.allclose(reduction.theta(small), theta, atol=1e-12)


def _descend_with_readout(X, Y, network):
    """Thirty steps of a network whose last factor, the read-out, is fixed."""
    last = np.asarray(network.readout)[None]
    weights = list(map(np.asarray, network.weights))
    for _ in range(30):
        slopes = dense_network.gradients(X, Y, [*weights, last])[:-1]
        weights = [w - 1e-3 * slope for w, slope in zip(weights, slopes, strict=True)]
    return dl.Network(weights, readout=network.readout)


def test_moments_without_data_reduce_to_the_same_problem(wide_problem):
    X, y = wide_problem.inputs, wide_problem.targets
    moments = dl.Problem.from_moments(X.T @ X / 6, X.T @ y / 6, y @ y / 6, samples=6)
    network = dl.initialize.identity_middle(jax.random.key(2), 10, 30, 1, 3, 0.5, 0.5)
    thetas = []
    for problem in (wide_problem, moments):
        reduction = reduce(problem, network)
        small = reduction.problem
        # Data with these moments: the whole problem, as far as a linear network sees it.
        root = np.linalg.cholesky(small.covariance).T * np.sqrt(small.samples)
        fit = root @ small.optimum.reshape(-1, 1)
        weights = dense_network.descend(
            root, fit, reduction.network.weights, 1e-3 * len(root) / small.samples, 50
        )
        thetas.append(reduction.theta(dl.Network(weights)))
        assert small.target_moment == pytest.approx(wide_problem.target_moment)
        assert small.minimal_risk == pytest.approx(0, abs=1e-12)
    assert np.allclose(*thetas, atol=1e-10)


@settings(max_examples=settings.default.max_examples // 2)
@given(st.integers(0, 10**6))
def test_bases_are_orthonormal_and_the_start_lifts_to_itself(seed):
    problem, network = _random_case(seed)
    reduction = reduce(problem, network)
    for basis in reduction.bases:
        assert np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    for a, b in zip(reduction.lift(reduction.network).weights, network.weights, strict=True):
        assert np.array_equal(a, b)


def test_a_batch_of_reduced_weights_lifts_at_once(wide_problem):
    network = dl.initialize.identity_middle(jax.random.key(2), 10, 30, 1, 3, 0.5, 0.5)
    reduction = reduce(wide_problem, network)
    rng = np.random.default_rng(0)
    batch = dl.Network([rng.normal(size=(2, *w.shape)) for w in reduction.network.weights])
    lifted = reduction.lift(batch)
    assert lifted.batch == 2
    for k in range(2):
        single = reduction.lift(jax.tree.map(lambda leaf, k=k: leaf[k], batch))
        assert np.allclose(lifted.weights[0][k], single.weights[0], atol=1e-14)


def test_layers_that_never_move_keep_one_idle_unit(wide_problem):
    network = dl.initialize.identity_middle(jax.random.key(0), 10, 30, 1, 3, 0.0, 0.0)
    reduction = reduce(wide_problem, network)
    assert reduction.network.widths == (6, 1, 1, 1)
    small = reduction.problem
    weights = dense_network.descend(
        small.inputs, small.target_columns, reduction.network.weights, 0.01, steps=3
    )
    assert np.all(reduction.theta(dl.Network(weights)) == 0)


def test_an_activation_keeps_hidden_widths_but_not_idle_inputs(wide_problem):
    network = dl.initialize.gaussian(jax.random.key(0), (10, 7, 1), 0.5, activation="relu")
    reduction = reduce(wide_problem, network)
    assert reduction.network.widths == (6, 7, 1)
    full = dl.gradient_descent(wide_problem, network, 1e-2, steps=20)
    small = dl.gradient_descent(reduction.problem, reduction.network, 1e-2, steps=20)
    lifted = reduction.lift(small.network)
    assert np.allclose(lifted.weights[0], full.network.weights[0], atol=1e-12)


def test_bad_input_is_refused_with_what_to_pass(wide_problem, problem):
    network = dl.initialize.identity_middle(jax.random.key(0), 10, 30, 1, 3, 0.1, 0.1)
    keys = jax.random.split(jax.random.key(0), 2)
    batch = dl.initialize.gaussian(keys, (10, 3, 1), 0.3)
    with pytest.raises(dl.InputError, match="one by one"):
        reduce(wide_problem, batch)
    with pytest.raises(dl.InputError, match="inputs"):
        reduce(problem, network)
    with pytest.raises(dl.InputError, match="widths"):
        reduce(wide_problem, network).lift(network)
    with pytest.raises(dl.InputError, match="zero"):
        reduce(dl.Problem.from_data(np.zeros((3, 10)), np.ones(3)), network)
