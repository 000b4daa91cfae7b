"""The averaged path at the edge of stability, against an oracle that shares nothing with it."""

import jax
import numpy as np
import pytest

import deeplin as dl


def two_weights(x, y):
    """f(z) = y·x·z on one sample z = 1 with target 1: R = (xy − 1)²."""
    problem = dl.Problem.from_data(np.ones((1, 1)), np.ones(1))
    return problem, dl.Network([np.array([[x]]), np.array([[y]])])


def hessian(x, y):
    """Of (xy − 1)², by hand."""
    return np.array([[2 * y * y, 4 * x * y - 2], [4 * x * y - 2, 2 * x * x]])


def plain_central_flow(x, y, rate, steps, small=1e-3):
    """Euler steps of length `small` with σ² = max(0, −2⟨∇R, ∇S⟩/‖∇S‖²) where S is at 2/η.

    ∇S by central differences of the top eigenvalue.
    """

    def top(point):
        return np.linalg.eigvalsh(hessian(*point))[-1]

    point, path = np.array([x, y]), []
    for step in range(steps * round(1 / small) + 1):
        if step % round(1 / small) == 0:
            path.append(top(point))
        slope = 2 * (point[0] * point[1] - 1) * point[::-1]
        units = 1e-5 * np.eye(2)
        rise = np.array([(top(point + e) - top(point - e)) / 2e-5 for e in units])
        square = 0.0
        if top(point) >= 2 / rate:
            square = max(0.0, -2 * slope @ rise / (rise @ rise))
        point = point - small * rate * (slope + 0.5 * square * rise)
    return np.array(path), point


def test_one_mode_follows_the_plain_formula():
    problem, network = two_weights(2.0, 0.1)
    rate, steps = 2 / 8.5, 12
    sharpness, end = plain_central_flow(2.0, 0.1, rate, steps)
    assert sharpness[0] < 8.5 <= max(sharpness) < 8.52  # it meets the edge and stays there
    run = dl.central_flow(problem, network, rate, steps, modes=1, substeps=25)
    # The library holds the oscillation fixed for 1/25 of a step, the oracle for 1/1000 of one.
    np.testing.assert_allclose(run.records["sharpness"], sharpness, rtol=5e-3)
    found = [float(weight[0, 0]) for weight in run.network.weights]
    np.testing.assert_allclose(found, end, rtol=5e-3)
    assert run.records["oscillation"].max() > 0
    assert run.status == "converged"


def test_central_flow_below_the_edge_is_the_gradient_flow(problem):
    network = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.3)
    rate = 0.02
    run = dl.central_flow(problem, network, rate, 50)
    assert not run.records["oscillation"].any()
    flow = dl.gradient_flow(problem, network, until=50 * rate)
    for found, exact in zip(run.network.weights, flow.network.weights, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(run.records["risk"], run.records["averaged_risk"])


def test_two_modes_are_held_at_the_edge_together():
    problem = dl.Problem.from_data(np.eye(2) * np.sqrt(2), np.eye(2) * np.sqrt(2) * [1.0, 0.97])
    network = dl.Network([np.diag([1.6, 1.59]), np.diag([0.1, 0.1])])
    edge = 5.8  # both modes start below it and would end above it
    run = dl.central_flow(problem, network, 2 / edge, 8, modes=2, substeps=20)
    assert run.records["eigenvalues"][0].max() < edge
    assert run.records["eigenvalues"].max() < 1.0001 * edge
    np.testing.assert_allclose(run.records["eigenvalues"][-1], edge, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"learning_rate": -1}, "learning_rate"),
        ({"steps": 0}, "steps"),
        ({"modes": 0}, "modes"),
        ({"network": "one"}, "one network"),
    ],
)
def test_bad_requests_get_one_sentence(change, sentence):
    problem, network = two_weights(1.0, 0.5)
    arguments = {"network": network, "learning_rate": 0.1, "steps": 1} | change
    with pytest.raises(dl.InputError, match=sentence):
        dl.central_flow(problem, **arguments)
