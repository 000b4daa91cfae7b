import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.certificates.certificate import HOLDS, MEASURED, NOT_APPLICABLE, certify
from deeplin.certificates.statements.flat_minima import toy_sharpness
from deeplin.dynamics import gradient_flow
from deeplin.theory import logistic_descent


@pytest.mark.parametrize("depth", [1, 2, 5, 12])
def test_toy_product_has_sharpness_depth_minus_one(depth):
    assert toy_sharpness(depth) == pytest.approx(depth - 1, abs=1e-12)


def test_logistic_loss_falls_at_any_rate_where_regression_diverges(problem):
    X, _ = problem.require_data("the test")
    labels = np.sign(X @ problem.optimum)
    rates = (1.0, 10.0, 1000.0)
    losses = logistic_descent(X, labels, rates, steps=5000)
    assert np.all(losses < 0.05)
    net = dl.initialize.gaussian(jax.random.key(0), (5, 1), 0.1)
    rate = 10 * 1 / problem.largest_eigenvalue  # ten times the critical rate of depth one
    assert dl.gradient_descent(problem, net, rate, 5000).status == "diverged"


def test_logistic_descent_takes_the_gradient_of_its_loss(rng):
    X, y = rng.normal(size=(12, 3)), np.sign(rng.normal(size=12))

    def loss(w):
        return np.mean(np.log1p(np.exp(-y * (X @ w))))

    rate = 0.01
    eta = 2 * rate / (np.linalg.norm(X, 2) ** 2 / (4 * len(X)))
    step = 1e-6
    slope = [(loss(step * e) - loss(-step * e)) / (2 * step) for e in np.eye(3)]
    after = logistic_descent(X, y, [rate], steps=1)[0]
    assert after == pytest.approx(loss(-eta * np.array(slope)), rel=1e-9)


def test_the_flow_of_the_branches_is_the_flow_of_the_layers(rng):
    """Talk-res with both flows integrated: V from V(0), W from I + V(0)."""
    X = rng.normal(size=(20, 3))
    problem = dl.Problem.from_data(X, X @ rng.normal(size=3))
    readout = np.array([0.6, 0.0, 0.8])
    start = dl.initialize.residual(jax.random.key(0), 3, 4, 0.3, readout)
    layers = gradient_flow(problem, start, until=2.0)

    def loss(branches):
        weights = [np.eye(3) + V for V in branches.weights]
        outputs = dl.Network(weights, readout=readout)(X)[:, 0]
        return jax.numpy.mean((outputs - problem.targets) ** 2)

    branches = gradient_flow(loss, dl.Network([W - np.eye(3) for W in start.weights]), until=2.0)
    for W, V in zip(layers.network.weights, branches.network.weights, strict=True):
        np.testing.assert_allclose(W, np.eye(3) + V, atol=1e-7)
    row = certify(problem, layers, only="Talk-res").iloc[0]
    assert row.verdict == HOLDS


def test_logistic_contrast_needs_the_rows(problem):
    moments = dl.Problem.from_moments(
        problem.covariance, problem.cross_moment, problem.target_moment, problem.samples
    )
    net = dl.initialize.gaussian(jax.random.key(0), (5, 1), 0.1)
    assert certify(moments, net, only="Talk-log").iloc[0].verdict == NOT_APPLICABLE
    assert certify(problem, net, only="Talk-log").iloc[0].verdict == MEASURED
