"""Gradient descent: closed forms, autodiff and dense NumPy as oracles, for both layouts."""

import tracemalloc

import dense_network
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics import engine
from deeplin.dynamics.descent import gradient_descent
from deeplin.networks.network import data_risk, risk_and_data

EPSILON = np.finfo(np.float64).eps


@pytest.fixture
def networks():
    """Eleven networks (more than a padded chunk), scales from small to catapulting."""
    keys = jax.random.split(jax.random.key(1), 11)
    return dl.initialize.gaussian(keys, widths=(5, 5, 5, 1), scale=np.linspace(0.2, 0.8, 11))


def gaussian(activation="linear", widths=(5, 5, 5, 1), batch=None, seed=0, scale=0.6):
    key = jax.random.key(seed)
    keys = key if batch is None else jax.random.split(key, batch)
    return dl.initialize.gaussian(keys, widths=widths, scale=scale, activation=activation)


def difference(one, other):
    """Largest difference of two networks' weights."""
    pairs = zip(one.weights, other.weights, strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def identical(one, other):
    pairs = zip(one.weights, other.weights, strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def chosen_of(networks, members):
    return jax.tree.map(lambda leaf: leaf[members], networks)


# --- what a step is ------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["linear", "gelu", "relu"])
def test_a_step_is_the_gradient_by_autodiff_on_the_rows(problem, activation, layout):
    net = gaussian(activation)
    rows = (jnp.asarray(problem.inputs), jnp.asarray(problem.target_columns))

    def risk(weights):
        residual = dl.Network(weights, activation=activation)(rows[0]) - rows[1]
        return jnp.sum(residual**2) / 50

    slopes = jax.jit(jax.grad(risk))(net.weights)
    run = gradient_descent(problem, net, 0.01, 1)
    for before, slope, after in zip(net.weights, slopes, run.network.weights, strict=True):
        np.testing.assert_allclose(after, before - 0.01 * slope, rtol=0, atol=100 * EPSILON)


def test_one_layer_follows_the_closed_form(problem, layout):
    net = gaussian(widths=(5, 1))
    run = gradient_descent(problem, net, 0.05, 40)
    contraction = np.eye(5) - 2 * 0.05 * problem.covariance
    start = np.asarray(net.product) - problem.optimum
    expected = problem.optimum + np.linalg.matrix_power(contraction, 40) @ start
    np.testing.assert_allclose(run.network.product, expected, rtol=1e-13)


def test_several_outputs_and_read_outs_follow_dense_numpy(rng, layout):
    X = rng.normal(size=(20, 4))
    for outputs, readout in ((3, None), (1, rng.normal(size=3))):
        Y = rng.normal(size=(20, outputs))
        problem = dl.Problem.from_data(X, Y)
        weights = [rng.normal(size=shape) / 2 for shape in ((6, 4), (2, 6), (3, 2))]
        run = gradient_descent(problem, dl.Network(weights, readout=readout), 0.02, 5)
        P = np.eye(3) if readout is None else readout[None]
        for _ in range(5):
            A, B, C = weights
            error = 2 / 20 * (P @ C @ B @ A @ X.T - Y.T)
            D = C.T @ P.T @ error
            weights = [A - 0.02 * B.T @ D @ X, B - 0.02 * D @ X @ A.T]
            weights.append(C - 0.02 * P.T @ error @ X @ A.T @ B.T)
        for ours, theirs in zip(run.network.weights, weights, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=100 * EPSILON)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_descent_is_stable_up_to_sharpness_2_plus_2_beta_over_eta(problem, momentum, layout):
    net = gaussian(widths=(5, 1))
    threshold = (2 + 2 * momentum) / (2 * problem.largest_eigenvalue)
    rates = threshold * np.array([0.99, 1.01])
    run = gradient_descent(problem, net, rates, 4000, momentum=momentum)
    assert list(run.status) == ["converged", "diverged"]


def test_float32_networks_stay_float32(problem, layout):
    net = gaussian()
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), net)
    exact = gradient_descent(problem, net, 0.01, 50)
    run = gradient_descent(problem, single, 0.01, 50)
    assert {weight.dtype for weight in run.network.weights} == {jnp.dtype("float32")}
    assert difference(run.network, exact.network) < 100 * np.finfo(np.float32).eps


def test_linear_networks_need_the_moments_only(problem):
    moments = dl.Problem.from_moments(
        problem.covariance, problem.cross_moment, problem.target_moment, samples=50
    )
    net = gaussian()
    ours = gradient_descent(moments, net, 0.01, 100)
    theirs = gradient_descent(problem, net, 0.01, 100)
    assert difference(ours.network, theirs.network) < 1e-12


def test_any_loss_of_a_network_descends_like_the_problem_it_states(problem):
    net = gaussian("gelu")
    risk, data = risk_and_data(problem, net)
    assert risk is data_risk
    ours = gradient_descent(lambda network: risk(data, network), net, 0.01, 50)
    theirs = gradient_descent(problem, net, 0.01, 50)
    assert difference(ours.network, theirs.network) < 1e-13
    assert ours.evidence["risk"] == pytest.approx(theirs.evidence["risk"], rel=1e-12)
    assert ours.status == "stopped"


# --- stopping ------------------------------------------------------------------------------


def test_a_gap_stops_each_run_at_the_first_step_that_reaches_it(problem, networks, layout):
    run = gradient_descent(problem, networks, 0.01, 2000, gap=1e-3)
    path = gradient_descent(
        problem, networks, 0.01, 2000, record_every=1, record=["gap"], keep_weights=False
    )
    reached = path.records["gap"] <= 1e-3
    assert reached.any(axis=0).all()
    np.testing.assert_array_equal(run.steps, reached.argmax(axis=0))
    assert np.all(run.status == "converged")
    assert np.all(run.evidence["gap"] <= 1e-3)


@pytest.mark.parametrize("activation", ["linear", "gelu"])
def test_a_loss_target_stops_at_the_first_step_below_it(problem, activation, layout):
    net = gaussian(activation)
    path = gradient_descent(problem, net, 0.005, 60, record_every=1, record=["risk"])
    target = float(path.records["risk"][40])
    run = gradient_descent(problem, net, 0.005, 60, loss_target=target * (1 + 1e-9))
    assert run.status == "converged"
    assert run.steps == int(np.argmax(path.records["risk"] <= target * (1 + 1e-9)))


def test_a_run_that_starts_at_its_goal_takes_no_step(problem, layout):
    net = dl.Network([problem.optimum[None]])
    run = gradient_descent(problem, net, 0.01, 10, gap=1e-20)
    assert (run.status, run.steps) == ("converged", 0)
    np.testing.assert_array_equal(run.network.weights[0], net.weights[0])


def test_without_a_goal_converged_means_a_gap_shrunk_1e8_times(problem):
    net = gaussian()
    start = gradient_descent(problem, net, 0.01, 1, gap=1e99)
    for steps in (100, 3000):
        run = gradient_descent(problem, net, 0.01, steps)
        close = run.evidence["gap"] <= 1e-8 * start.evidence["gap"]
        assert run.steps == steps
        assert run.status == ("converged" if close else "stopped")
    assert close


def test_a_diverged_run_keeps_the_weights_before_the_step_that_broke_the_ceiling(problem, layout):
    net = gaussian(scale=1.0)
    run = gradient_descent(problem, net, 1.0, 100)
    assert run.status == "diverged"
    risk, data = risk_and_data(problem, net)
    ceiling = 1e10 * max(problem.target_moment, float(risk(data, net)))
    assert run.evidence["risk"] <= ceiling
    before = gradient_descent(problem, net, 1.0, run.steps - 1)
    assert before.status == "stopped"
    assert difference(run.network, before.network) <= 1e-10 * max(
        float(jnp.abs(weight).max()) for weight in before.network.weights
    )
    slopes = jax.jit(jax.grad(lambda w: risk(data, dl.Network(w))))(run.network.weights)
    after = [w - s for w, s in zip(run.network.weights, slopes, strict=True)]
    assert not risk(data, dl.Network(after)) <= ceiling


def test_diverged_networks_do_not_change_the_others(problem, networks, layout):
    rates = np.full(11, 0.01)
    calm = gradient_descent(problem, networks, rates, 300)
    rates[[2, 7]] = 1e3, 1e308
    weights = [np.array(weight) for weight in networks.weights]
    weights[0][5] = np.nan
    wild = gradient_descent(problem, dl.Network(weights), rates, 300)
    lost = [2, 5, 7]
    assert np.all(wild.status[lost] == "diverged")
    assert wild.steps[5] == 0
    others = np.setdiff1d(np.arange(11), lost)
    for one, other in zip(calm.network.weights, wild.network.weights, strict=True):
        np.testing.assert_array_equal(one[others], other[others])
        assert np.isfinite(np.asarray(other)[[2, 7]]).all()
    np.testing.assert_array_equal(calm.status[others], wild.status[others])


@pytest.mark.parametrize("goal", [{}, {"gap": 1e-3}, {"loss_target": 1e-3}])
def test_overflow_is_divergence_whatever_sign_it_comes_out_with(problem, layout, goal):
    # a fused multiply-add turns ∞ − ∞ into −∞ where the first term is negative
    nets = gaussian(widths=(5, 5, 1), batch=64, scale=1.0)
    run = gradient_descent(problem, nets, 1e100, 5, **goal)
    assert set(run.status) == {"diverged"}
    assert all(np.isfinite(weight).all() for weight in run.network.weights)
    np.testing.assert_array_equal(run.network.weights[0], nets.weights[0])


# --- batches -------------------------------------------------------------------------------


def test_results_do_not_depend_on_the_batch_to_the_last_bit(problem, networks):
    run = gradient_descent(problem, networks, 0.02, 500)
    for members in ([3], [10, 0, 4], range(5, 11)):
        chosen = np.array(members)
        alone = gradient_descent(problem, chosen_of(networks, chosen), 0.02, 500)
        assert identical(alone.network, chosen_of(run.network, chosen))
        np.testing.assert_array_equal(alone.steps, run.steps[chosen])


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_pauses_do_not_change_a_run_to_the_last_bit(problem, networks, layout, momentum):
    options = {"momentum": momentum}
    whole = gradient_descent(problem, networks, 0.02, 50, **options)
    paused = gradient_descent(
        problem, networks, 0.02, 50, record_every=7, record=["risk"], **options
    )
    assert identical(whole.network, paused.network)


def test_many_learning_rates_make_a_batch_of_a_single_network(problem):
    net = gaussian()
    rates = np.array([0.001, 0.01, 0.02])
    run = gradient_descent(problem, net, rates, 100)
    np.testing.assert_array_equal(run.learning_rate, rates)
    for index, rate in enumerate(rates):
        alone = gradient_descent(problem, net, rate, 100)
        assert identical(alone.network, chosen_of(run.network, index))


def test_a_single_network_gives_plain_values_and_a_batch_arrays(problem, networks):
    one = gradient_descent(problem, gaussian(), 0.01, 20, record_every=10)
    assert isinstance(one.status, str)
    assert isinstance(one.steps, int)
    assert isinstance(one.learning_rate, float)
    assert isinstance(one.evidence["risk"], float)
    assert one.network.batch is None
    many = gradient_descent(problem, networks, 0.01, 20, record_every=10)
    assert many.status.shape == many.steps.shape == many.evidence["gap"].shape == (11,)
    assert many.network.batch == 11
    np.testing.assert_array_equal(many.initial.weights[0], networks.weights[0])


def test_new_steps_and_rates_do_not_trace_again(problem):
    net = gaussian()
    risk, data = risk_and_data(problem, net)
    traces = []

    def loss(network):
        traces.append(1)
        return risk(data, network)

    gradient_descent(loss, net, 0.01, 10)
    first = len(traces)
    gradient_descent(loss, net, 0.02, 2000, momentum=0.0, loss_target=1e-3)
    assert len(traces) == first


def test_the_layout_depends_on_the_shape_alone(problem, monkeypatch):
    kinds, program = [], engine._program
    monkeypatch.setattr(engine, "_program", lambda *a: kinds.append(a[0]) or program(*a))
    for net in (gaussian(), gaussian(batch=40), gaussian(widths=(5, 17, 1)), gaussian("gelu")):
        gradient_descent(problem, net, 0.01, 2)
    gradient_descent(lambda net: jnp.sum(net.product**2), gaussian(), 0.01, 2)
    batch_last = [kind.batch_last for kind in kinds]
    assert batch_last[0]
    assert all(batch_last[:-3])
    assert batch_last[-3:] == [False] * 3


@pytest.mark.parametrize("samples", [20, 4])
def test_wide_layers_follow_plain_descent(problem, layout, samples):
    """Also where inputs outnumber the samples: what lies outside their span never moves."""
    X, y = problem.inputs[:samples], problem.target_columns[:samples]
    small = dl.Problem.from_data(X, y)
    keys = jax.random.split(jax.random.key(2), 3)
    nets = dl.initialize.gaussian(keys, widths=(5, 11, 6, 1), scale=0.4)
    rates = np.array([0.01, 50.0, 0.02])
    run = gradient_descent(small, nets, rates, 60, momentum=0.6, record_every=20, record="risk")
    assert list(run.status == "diverged") == [False, True, False]
    assert np.isfinite(run.network.weights[0]).all()
    for member in (0, 2):
        start = [np.asarray(w[member]) for w in nets.weights]
        weights = dense_network.descend(X, y, start, rates[member], 60, 0.6)
        for ours, theirs in zip(run.network.weights, weights, strict=True):
            np.testing.assert_allclose(ours[member], theirs, rtol=0, atol=1e-12)
        residual = X @ dense_network.product(weights).T - y
        risk = np.sum(residual**2) / samples
        assert run.records["risk"][-1, member] == pytest.approx(risk, rel=1e-9)
    last = np.asarray([w[1] for w in run.trajectory[-1].weights[:1]])
    assert np.isfinite(last).all()


def test_memory_of_training_does_not_grow_with_the_samples():
    """Linear networks see the moments: nothing as long as the data is ever made."""

    def peak(samples):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(samples, 5))
        problem = dl.Problem.from_data(X, X @ np.ones(5) + rng.normal(size=samples))
        net = dl.initialize.gaussian(jax.random.key(0), (5, 5, 5, 1), 0.4)
        dl.gradient_descent(
            problem, net, 1e-3, 10, record_every=5
        )  # moments and programs are there
        tracemalloc.start()
        dl.gradient_descent(problem, net, 1e-3, 10, record_every=5)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(200_000) - peak(50) < 200_000  # one byte for each sample would be more
