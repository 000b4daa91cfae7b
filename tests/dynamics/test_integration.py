"""Where the flow ends: against SciPy on the raw equation, closed forms and conservation laws."""

import dense_network
import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics.integration import flow_limit, flow_sharpness
from deeplin.networks.network import risk_and_data


def several_outputs(rng):
    X = rng.normal(size=(30, 4))
    return dl.Problem.from_data(X, X @ rng.normal(size=(4, 2)) + rng.normal(size=(30, 2)))


@pytest.mark.parametrize("kind", ["one output", "read-out", "two outputs"])
def test_the_flow_ends_where_that_of_scipy_does(kind, problem, rng):
    readout = None
    if kind == "two outputs":
        problem, widths = several_outputs(rng), (4, 3, 4, 2)
    else:
        widths = (5, 3, 4, 1) if kind == "one output" else (5, 4, 3)
        readout = rng.normal(size=3) if kind == "read-out" else None
    weights = [0.7 * rng.normal(size=s) for s in zip(widths[1:], widths[:-1], strict=True)]
    net = dl.Network([weight[None] for weight in weights], readout=readout)
    limit, reached = flow_limit(problem, net)
    assert reached.all()
    ends = dense_network.flow(problem.inputs, problem.target_columns, weights, 60.0, readout)
    dense_network.agree([w[0] for w in limit.weights], ends, atol=1e-8)
    value, error = flow_sharpness(problem, net)
    dense = dl.sharpness(problem, dl.Network(ends, readout=readout), method="dense").value
    assert value[0] == pytest.approx(dense, rel=1e-8)  # 60 time units and 1e-10 a step
    assert error[0] < 1e-10 * value[0]


def test_the_record_follows_descent_and_the_end_keeps_what_the_flow_conserves(problem):
    net = dl.initialize.gaussian(jax.random.key(0), (5, 4, 1), 0.6)
    run = dl.gradient_descent(problem, net, 0.05, 20, record_every=10, record=["flow_sharpness"])
    assert set(run.records) == {"step", "flow_sharpness", "flow_sharpness_error"}
    for step in range(3):
        start = [np.asarray(weight) for weight in run.trajectory[step].weights]
        ends = dense_network.flow(problem.inputs, problem.target_columns, start, 60.0)
        dense = dl.sharpness(problem, dl.Network(ends), method="dense").value
        assert run.records["flow_sharpness"][step] == pytest.approx(dense, rel=1e-8)
    limit, _ = flow_limit(problem, run.trajectory[0].with_batch())
    first, second = (np.asarray(weight)[0] for weight in limit.weights)
    before = [np.asarray(weight) for weight in net.weights]
    kept = before[1].T @ before[1] - before[0] @ before[0].T
    np.testing.assert_allclose(second.T @ second - first @ first.T, kept, atol=1e-9)  # FM-L1
    np.testing.assert_allclose((second @ first)[0], problem.optimum, atol=1e-12)


def test_a_run_that_has_stopped_keeps_its_value(problem):
    """One of three stops at its goal: each record is that of its own network."""
    nets = dl.initialize.gaussian(jax.random.split(jax.random.key(0), 3), (5, 4, 1), 0.6)
    run = dl.gradient_descent(
        problem, nets, np.array([1e-4, 0.05, 1e-3]), 60, gap=1e-3, record_every=5,
        record=["flow_sharpness"],
    )  # fmt: skip
    assert len(set(run.steps)) > 1
    for step in (0, 3, 12):
        value, _ = flow_sharpness(problem, run.trajectory[step])
        # equal to rounding: flows that are integrated together share the order of sums
        np.testing.assert_allclose(run.records["flow_sharpness"][step], value, rtol=1e-12)


def test_two_scalar_layers_end_where_the_conserved_difference_says():
    """ab = w* and a² − b² = D: sharpness 2(a² + b²) = 2√(D² + 4w*²), for Σ̂ = 1."""
    problem = dl.Problem.from_data(np.array([[1.0], [-1.0]]), np.array([2.0, -2.0]))
    a, b = np.array([0.1, 1.5, -2.0]), np.array([0.3, 0.2, -0.1])
    net = dl.Network([a[:, None, None], b[:, None, None]])
    value, _ = flow_sharpness(problem, net)
    np.testing.assert_allclose(value, 2 * np.sqrt((a**2 - b**2) ** 2 + 16), rtol=1e-9)


def test_a_flow_that_ends_at_no_minimizer_has_no_sharpness(problem):
    saddle = dl.Network([np.zeros((1, 3, 5)), np.zeros((1, 1, 3))])
    lost = dl.Network([np.full((1, 3, 5), np.nan), np.ones((1, 1, 3))])
    fine = dl.Network([np.full((1, 3, 5), 0.1), np.ones((1, 1, 3))])
    layers = zip(saddle.weights, lost.weights, fine.weights, strict=True)
    nets = dl.Network([np.concatenate(same) for same in layers])
    with pytest.warns(UserWarning, match="NaN for 2 of 3"):
        value, error = flow_sharpness(problem, nets)
    assert np.isnan(value).tolist() == [True, True, False]
    assert np.isinf(error).tolist() == [True, True, False]


def test_flow_sharpness_needs_a_linear_network_on_a_problem(problem):
    net = dl.initialize.gaussian(jax.random.key(0), (5, 4, 1), 0.6, activation="gelu")
    with pytest.raises(dl.InputError, match="'flow_sharpness', which cannot be measured here"):
        dl.gradient_descent(problem, net, 0.05, 5, record_every=1, record=["flow_sharpness"])


def test_steps_are_those_of_diffrax(problem):
    """The same pair and tolerance; only the first step is chosen in a way of its own."""
    net = dl.initialize.gaussian(jax.random.key(0), (5, 4, 1), 0.6)
    ours = dl.gradient_flow(problem, net, until=1.0, rtol=1e-10, atol=1e-12, solver="explicit")
    risk, data = risk_and_data(problem, net)

    def field(_time, weights, _arguments):
        slopes = jax.grad(lambda layers: risk(data, dl.Network(layers)))(weights)
        return jax.tree.map(jnp.negative, slopes)

    controller = diffrax.PIDController(1e-10, 1e-12, safety=0.8)
    term, solver = diffrax.ODETerm(field), diffrax.Tsit5()
    theirs = diffrax.diffeqsolve(
        term, solver, 0.0, 1.0, None, net.weights, stepsize_controller=controller
    )
    dense_network.agree(ours.network.weights, [w[0] for w in theirs.ys], atol=1e-9)
    steps = int(theirs.stats["num_steps"])
    assert abs(ours.steps - steps) <= 0.1 * steps
