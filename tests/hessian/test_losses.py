"""Sharpness with other losses than the squared one, against dense automatic differentiation."""

import jax
import numpy as np
import pytest

import deeplin as dl


@pytest.mark.parametrize("loss", ["logistic", "poisson", "huber", "softmax"])
@pytest.mark.parametrize("width", [3, 20])
def test_recorded_sharpness_and_spectrum_are_those_of_the_dense_hessian(loss, width, rng):
    X = rng.normal(size=(40, 3))
    noisy = X[:, 0] + rng.normal(size=40)
    targets = {
        "logistic": noisy > 0,
        "poisson": rng.poisson(np.exp(0.3 * X[:, 1])),
        "huber": noisy,
        "softmax": rng.integers(0, 3, 40),
    }
    problem = dl.Problem.from_data(X, targets[loss], loss=loss)
    net = dl.initialize.gaussian(jax.random.key(0), (3, width, problem.outputs), 0.5)
    run = dl.gradient_descent(problem, net, 0.02, 200, record_every=99)
    dense = [
        dl.sharpness(problem, run.trajectory[k], method="dense").value
        for k in range(len(run.trajectory))
    ]
    np.testing.assert_allclose(run.records["sharpness"], dense, rtol=1e-6)
    found = dl.hessian_spectrum(problem, run.network, count=2).values
    assert found[0] == pytest.approx(dense[-1], rel=1e-8)


def test_the_exact_method_is_refused_for_other_losses(rng):
    X = rng.normal(size=(40, 3))
    problem = dl.Problem.from_data(X, X[:, 0] + rng.normal(size=40) > 0, loss="logistic")
    net = dl.initialize.gaussian(jax.random.key(0), (3, 3, 1), 0.5)
    with pytest.raises(dl.InputError, match="with squared loss"):
        dl.sharpness(problem, net, method="exact")
