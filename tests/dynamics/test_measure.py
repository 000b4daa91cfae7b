"""Quantities along a run, against NumPy on the recorded weights."""

from itertools import pairwise

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics.descent import gradient_descent
from deeplin.dynamics.quantities import QUANTITIES


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 4))
    return dl.Problem.from_data(X, X @ rng.normal(size=4) + rng.normal(size=30))


@pytest.fixture(scope="module")
def run(problem):
    """A batch of three with a read-out: one converges early, one diverges, one goes on."""
    keys = jax.random.split(jax.random.key(2), 3)
    readout = np.array([0.6, 0.0, -0.8, 0.3])
    nets = dl.initialize.residual(keys, width=4, depth=3, scale=0.4, readout=readout)
    rates = np.array([0.05, 3.0, 1e-4])
    return gradient_descent(problem, nets, rates, 230, gap=1e-6, record_every=50)


def layers(run, record, member):
    return [np.asarray(weight)[record, member] for weight in run.trajectory.weights]


def test_records_are_taken_at_multiples_and_at_the_last_step(run):
    np.testing.assert_array_equal(run.records["step"], [0, 50, 100, 150, 200, 230])
    assert set(run.records) == {"step", "sharpness_error", *QUANTITIES}
    assert run.trajectory.weights[0].shape == (6, 3, 4, 4)
    assert repr(run.trajectory).startswith("Trajectory(6 records of 3 runs, widths (4, 4,")
    np.testing.assert_array_equal(run.trajectory.weights[1][-1], run.network.weights[1])
    np.testing.assert_array_equal(run.trajectory.weights[1][0], run.initial.weights[1])


def test_recorded_quantities_are_those_of_the_recorded_weights(problem, run):
    readout = np.array([0.6, 0.0, -0.8, 0.3])
    y, X = problem.targets, problem.inputs
    for record in range(6):
        for member in range(3):
            W = layers(run, record, member)
            start = layers(run, 0, member)
            w = (readout @ W[2] @ W[1] @ W[0]).ravel()
            factors = [np.linalg.svd(weight) for weight in W]
            balance = [b.T @ b - a @ a.T for a, b in pairwise(W)]
            first = [b.T @ b - a @ a.T for a, b in pairwise(start)]
            risk = np.mean((y - X @ w) ** 2)
            expected = {
                "risk": risk,
                "gap": np.mean((X @ (w - problem.optimum)) ** 2),
                "distance": np.sum((w - problem.optimum) ** 2),
                "layer_norms": [np.linalg.norm(weight) for weight in W],
                "singular_values": [s[0] for _, s, _ in factors],
                "alignment": [(factors[k + 1][2][0] @ factors[k][0][:, 0]) ** 2 for k in range(2)],
                "conservation": max(
                    np.linalg.norm(a - b) for a, b in zip(balance, first, strict=True)
                ),
            }
            for name, value in expected.items():
                measured = run.records[name][record, member]
                np.testing.assert_allclose(measured, value, rtol=1e-9, atol=1e-12, err_msg=name)


def test_recorded_sharpness_is_the_largest_eigenvalue_of_the_dense_hessian(problem, run):
    net = run.initial
    for record in (0, 3, 5):
        for member in (0, 2):

            def risk(vector, member=member):
                weights = vector.reshape(3, 4, 4)
                w = dl.Network(weights, readout=net.readout[member]).product
                residual = problem.inputs @ w - problem.targets
                return (residual**2).mean()

            point = np.concatenate([w.ravel() for w in layers(run, record, member)])
            largest = np.linalg.eigvalsh(jax.jit(jax.hessian(risk))(point))[-1]
            measured = run.records["sharpness"][record, member]
            error = run.records["sharpness_error"][record, member]
            assert abs(measured - largest) <= error + 1e-10 * largest
            assert error <= 1e-3 * largest


def test_a_stopped_run_repeats_its_last_record(run):
    assert list(run.status) == ["converged", "diverged", "stopped"]
    assert run.steps[0] < 200
    for member in (0, 1):
        late = [i for i, step in enumerate(run.records["step"]) if step >= run.steps[member]]
        assert len(late) >= 2
        for name in ("risk", "layer_norms", "conservation"):
            values = run.records[name][late, member]
            np.testing.assert_array_equal(values, np.broadcast_to(values[0], values.shape))
    assert np.all(np.diff(run.records["risk"][:, 2]) < 0)


def test_records_end_when_every_run_has_stopped(problem):
    net = dl.initialize.gaussian(jax.random.key(0), widths=(4, 4, 1), scale=0.5)
    run = gradient_descent(problem, net, 0.02, 10**6, gap=1e-8, record_every=10, record=["gap"])
    assert run.records["step"][-1] == run.steps < 10**4
    assert run.records["gap"][-1] <= 1e-8 < run.records["gap"][-2]


def test_weights_are_kept_only_with_keep_weights(problem):
    net = dl.initialize.gaussian(jax.random.key(0), widths=(4, 4, 1), scale=0.5)
    run = gradient_descent(
        problem, net, 0.02, 20, record_every=5, record="risk", keep_weights=False
    )
    assert run.trajectory is None
    assert list(run.records) == ["step", "risk"]
    assert run.records["risk"].shape == (5,)
    assert len(gradient_descent(problem, net, 0.02, 20).records) == 0


def test_quantities_that_do_not_apply_are_not_recorded(problem):
    one_layer = dl.initialize.gaussian(jax.random.key(0), widths=(4, 1), scale=0.5)
    run = gradient_descent(problem, one_layer, 0.02, 20, record_every=20)
    assert {"alignment", "conservation"}.isdisjoint(run.records)
    assert len(run.records.table()) == 2
    gelu = dl.initialize.gaussian(jax.random.key(0), widths=(4, 3, 1), scale=0.5, activation="gelu")
    run = gradient_descent(problem, gelu, 0.02, 20, record_every=20)
    assert {"gap", "distance"}.isdisjoint(run.records)
    assert "gap" not in run.evidence
    residual = np.asarray(run.network(problem.inputs)) - problem.target_columns
    assert run.evidence["risk"] == pytest.approx(np.mean(residual**2), rel=1e-12)
