"""Gradient flow against closed forms, tiny steps of descent, and its own conserved matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import deeplin as dl
from deeplin.dynamics import Gap, gradient_flow


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(40, 4))
    return dl.Problem.from_data(X, X @ rng.normal(size=4) + rng.normal(size=40))


@pytest.fixture(scope="module")
def net():
    return dl.initialize.gaussian(jax.random.key(3), (4, 3, 3, 1), 0.4)


def test_one_layer_follows_the_matrix_exponential(data):
    """L = 1: w(t) = w* + exp(−2Σ̂t)(w(0) − w*)."""
    start = np.array([[1.0, -2.0, 0.5, 3.0]])
    times = [0.1, 0.5, 2.0]
    run = gradient_flow(data, dl.Network([start]), until=2.0, at=times, record=("gap",))
    assert run.records["time"] == pytest.approx(times, abs=1e-14)
    for k, t in enumerate(times):
        decay = scipy.linalg.expm(-2 * data.covariance * t)
        exact = data.optimum + decay @ (start[0] - data.optimum)
        np.testing.assert_allclose(run.trajectory.weights[0][k, 0], exact, atol=3e-8)


def scalar_flow(rtol):
    """d = 1, L = 2 from balanced weights: w = ab, dw/dt = 4Σ̂w(w* − w), a logistic curve."""
    problem = dl.Problem.from_data(np.array([[1.0], [-1.0]]), np.array([2.0, -2.0]))
    start = dl.Network([jnp.full((1, 1), 0.1), jnp.full((1, 1), 0.1)])
    run = gradient_flow(problem, start, time=0.6, rtol=rtol, atol=rtol, solver="explicit")
    grown = 0.01 * np.exp(4 * 2 * 0.6)
    exact = 2 * grown / (2 + grown - 0.01)
    return abs(float(run.network.product[0]) - exact), run.steps


def test_two_scalar_layers_follow_the_logistic_curve():
    error, _ = scalar_flow(1e-10)
    assert error < 1e-8


def test_error_falls_with_the_fifth_power_of_the_step():
    """A tolerance c times tighter takes c^{1/5} times the steps for an error c times smaller."""
    loose, few = scalar_flow(1e-5)
    tight, many = scalar_flow(1e-10)
    order = np.log(loose / tight) / np.log(many / few)
    assert 4.3 < order < 6.5


def test_tiny_steps_of_descent_approach_the_flow(data, net):
    flow = gradient_flow(data, net, until=1.0)

    def distance(rate):
        steps = round(1.0 / rate)
        end = dl.gradient_descent(data, net, learning_rate=rate, steps=steps).network
        pairs = zip(end.weights, flow.network.weights, strict=True)
        return max(float(jnp.abs(a - b).max()) for a, b in pairs)

    coarse, fine = distance(2e-3), distance(1e-3)
    assert fine < 1e-2
    assert coarse / fine == pytest.approx(2, rel=0.05)  # Euler's method has order one


def test_flow_reaches_its_gap_and_keeps_the_conserved_matrices(data, net):
    """FM-L1."""
    run = gradient_flow(data, net, until=Gap(1e-12))
    assert run.status == "converged"
    assert run.evidence["gap"] <= 1e-12
    assert run.evidence["drift"] < 1e-8
    assert run.evidence["relative_drift"] <= run.evidence["drift"]
    assert run.evidence["message"] == ""
    w = np.asarray(run.network.product)
    difference = w - data.optimum
    assert run.evidence["gap"] == pytest.approx(difference @ data.covariance @ difference)

    def conserved(network):
        first, second, _ = (np.asarray(weight) for weight in network.weights)
        return second.T @ second - first @ first.T

    change = np.linalg.norm(conserved(run.network) - conserved(net))
    assert change <= run.evidence["drift"]


def test_every_form_of_until_gives_the_same_run(data, net):
    runs = [
        gradient_flow(data, net, until=Gap(1e-6)),
        gradient_flow(data, net, gap=1e-6),
    ]
    assert len({run.evidence["time"] for run in runs}) == 1
    runs = [
        gradient_flow(data, net, until=0.5),
        gradient_flow(data, net, time=0.5),
    ]
    assert {run.evidence["time"] for run in runs} == {0.5}


def test_gradients_are_counted_as_they_are_taken(data, net):
    run = gradient_flow(data, net, until=1.0)
    assert run.evidence["evaluations"] == 3 + 6 * run.steps
    tighter = gradient_flow(data, net, until=1.0, rtol=1e-11, atol=1e-13)
    assert tighter.evidence["evaluations"] > run.evidence["evaluations"]
    assert run.evidence["rejected"] <= run.steps


def test_records_are_at_the_requested_times_and_at_the_end(data, net):
    run = gradient_flow(data, net, gap=1e-4, record_every=0.5, record=("risk", "gap", "sharpness"))
    times = run.records["time"]
    assert np.all(times[:-1] == 0.5 * np.arange(len(times) - 1))
    assert times[-1] == run.evidence["time"]
    assert run.records["gap"][-1] == run.evidence["gap"] <= 1e-4
    assert np.all(np.diff(run.records["risk"]) < 0)
    assert run.trajectory.weights[0].shape == (len(times), 3, 4)
    plain = gradient_flow(data, net, until=float(times[3]))
    np.testing.assert_allclose(run.trajectory.weights[0][3], plain.network.weights[0], atol=1e-7)


def test_each_run_of_a_batch_stops_where_it_would_alone(data):
    keys = jax.random.split(jax.random.key(0), 3)
    nets = dl.initialize.gaussian(keys, (4, 3, 3, 1), jnp.array([0.3, 0.5, 0.8]))
    together = gradient_flow(data, nets, gap=1e-8)
    assert list(together.status) == ["converged"] * 3
    for k in range(3):
        one = jax.tree.map(lambda leaf, k=k: leaf[k], nets)
        alone = gradient_flow(data, one, gap=1e-8)
        # the error of a step, 1e-8 of the weights, is known to 1e-8 of itself; so is its length
        assert together.evidence["time"][k] == pytest.approx(alone.evidence["time"], rel=1e-7)
        assert together.evidence["evaluations"][k] == alone.evidence["evaluations"]


def test_a_diverged_flow_does_not_change_the_others(data, net):
    lost = dl.Network([weight * jnp.nan for weight in net.weights])
    run = gradient_flow(data, dl.networks.stack([net, lost]), gap=1e-6)
    assert list(run.status) == ["converged", "diverged"]
    assert "finite" in run.evidence["message"][1]


def test_nonlinear_networks_flow_by_automatic_differentiation(data):
    net = dl.initialize.gaussian(jax.random.key(1), (4, 3, 1), 0.6, activation="gelu")
    run = gradient_flow(data, net, until=0.3, at=[0.1, 0.3], record=("risk",))
    inputs, targets = (jnp.asarray(item) for item in data.require_data("test"))

    @jax.jit
    def step(weights):
        def loss(weights):
            outputs = dl.Network(weights, activation="gelu")(inputs)
            return jnp.sum((outputs - targets) ** 2) / len(inputs)

        return jax.tree.map(lambda w, g: w - 1e-4 * g, weights, jax.grad(loss)(weights))

    weights = jax.lax.fori_loop(0, 3000, lambda _, weights: step(weights), net.weights)
    for mine, other in zip(run.network.weights, weights, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-3)
    assert np.all(np.diff(run.records["risk"]) < 0)
    with pytest.raises(dl.InputError, match="pass a time"):
        gradient_flow(data, net, gap=1e-6)


def test_a_stiff_end_is_reached_by_implicit_steps_where_explicit_ones_are_too_many():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3)) * np.array([1.0, 0.1, 0.004])
    problem = dl.Problem.from_data(X, X @ np.array([1.0, 5.0, 40.0]))
    net = dl.initialize.gaussian(jax.random.key(0), (3, 3, 1), 0.7)
    explicit = gradient_flow(problem, net, gap=1e-9, solver="explicit", max_steps=6000)
    assert explicit.status == "stopped"
    assert "solver='implicit'" in explicit.evidence["message"]
    assert "max_steps (now 6000)" in explicit.evidence["message"]
    auto = gradient_flow(problem, net, gap=1e-9, max_steps=6000)
    assert auto.status == "converged"
    assert auto.evidence["gap"] <= 1e-9
    assert auto.evidence["drift"] < 1e-6
    implicit = gradient_flow(problem, net, time=100.0, solver="implicit")
    explicit = gradient_flow(problem, net, time=100.0, solver="explicit")
    np.testing.assert_allclose(implicit.network.product, explicit.network.product, atol=1e-6)


def test_a_stationary_start_is_explained(data):
    run = gradient_flow(data, dl.Network([np.zeros((3, 4)), np.zeros((1, 3))]), gap=1e-6)
    assert run.status == "stopped"
    assert "gradient has vanished" in run.evidence["message"]


def test_a_network_at_its_goal_does_not_move(data):
    net = dl.initialize.rank_one(data.optimum, 2)
    run = gradient_flow(data, net, gap=1e-12)
    assert run.status == "converged"
    assert run.steps == 0
    assert run.evidence["evaluations"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "received 0 of until, time, gap"),
        ({"time": 1.0, "gap": 1e-3}, "received 2 of until, time, gap"),
        ({"until": -1.0}, "is -1"),
        ({"until": "1"}, "is the text '1'"),
        ({"until": Gap(0.0)}, "gap is 0"),
        ({"until": float("nan")}, "is nan"),
        ({"until": 1.0, "record_every": 0.0}, "record_every is 0"),
        ({"until": 1.0, "record_every": 0.1, "at": [0.5]}, "both record_every and at"),
        ({"until": 1.0, "at": [0.5, 0.2]}, "increasing"),
        ({"until": 1.0, "at": [2.0]}, "beyond the end"),
        ({"until": 1.0, "rtol": 0.0}, "rtol is 0"),
        ({"until": 1.0, "solver": "magic"}, "solver is 'magic'"),
        ({"until": 1.0, "max_steps": 0}, "max_steps is 0"),
    ],
)
def test_bad_arguments_are_named(data, net, arguments, words):
    with pytest.raises(dl.InputError, match=words):
        gradient_flow(data, net, **arguments)


def test_a_flow_from_single_precision_is_integrated_in_double_precision(data, net):
    single = dl.Network([weight.astype(jnp.float32) for weight in net.weights])
    exact = dl.Network([weight.astype(jnp.float64) for weight in single.weights])
    flow, reference = (gradient_flow(data, start, until=1.0) for start in (single, exact))
    assert flow.network.weights[0].dtype == jnp.float64
    assert all(map(np.array_equal, flow.network.weights, reference.network.weights))
