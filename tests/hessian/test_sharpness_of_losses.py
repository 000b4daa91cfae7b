"""Sharpness with other losses than the squared one, against dense automatic differentiation."""

import jax
import numpy as np
import pytest

import deeplin as dl


@pytest.mark.parametrize("loss", ["logistic", "poisson", "huber", "softmax"])
def test_recorded_sharpness_and_spectrum_are_those_of_the_dense_hessian(loss, rng):
    X = rng.normal(size=(40, 3))
    noisy = X[:, 0] + rng.normal(size=40)
    targets = {
        "logistic": noisy > 0,
        "poisson": rng.poisson(np.exp(0.3 * X[:, 1])),
        "huber": noisy,
        "softmax": rng.integers(0, 3, 40),
    }
    problem = dl.Problem.from_data(X, targets[loss], loss=loss)
    net = dl.initialize.gaussian(jax.random.key(0), (3, 3, problem.outputs), 0.5)
    run = dl.gradient_descent(problem, net, 0.02, 200, record_every=99)
    dense = [
        dl.sharpness(problem, run.trajectory[k], method="dense").value
        for k in range(len(run.trajectory))
    ]
    np.testing.assert_allclose(run.records["sharpness"], dense, rtol=1e-6)
    found = dl.hessian_spectrum(problem, run.network, count=2).values
    assert found[0] == pytest.approx(dense[-1], rel=1e-8)
