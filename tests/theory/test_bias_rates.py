"""X-38: the minimal sharpness with biases."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

import deeplin as dl

REFERENCE = {
    (0, 2, 0.2): 3.16352166,
    (1, 2, 1.0): 3.24658452,
    (2, 3, 0.3): 5.77762087,
    (3, 3, 1.0): 4.90993080,
}


def reference_data(seed, scale):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 3)) * [1, 0.5, 1.5] * scale
    X -= X.mean(0)
    y = X @ rng.normal(size=3) / scale + 0.2 * rng.normal(size=30)
    return X, y - y.mean()


def top_of_hessian(X, Y, weights, biases):
    """The largest eigenvalue of the whole Hessian in weights and biases."""
    flat, unravel = ravel_pytree(
        ([jnp.asarray(w) for w in weights], [jnp.asarray(b) for b in biases])
    )

    def risk(x):
        layers, shifts = unravel(x)
        hidden = jnp.asarray(X)
        for W, b in zip(layers, shifts, strict=True):
            hidden = hidden @ W.T + b
        return jnp.sum((hidden - jnp.asarray(Y)) ** 2) / len(X)

    return float(jnp.linalg.eigvalsh(jax.hessian(risk)(flat))[-1])


@pytest.mark.parametrize(("seed", "depth", "scale"), REFERENCE)
def test_the_minimal_sharpness_is_the_reference_and_attained(seed, depth, scale):
    X, y = reference_data(seed, scale)
    problem = dl.Problem.from_data(X, y)
    found = dl.minimal_sharpness(problem, depth, biases=True)
    assert found.exact == pytest.approx(REFERENCE[seed, depth, scale], rel=1e-8)
    assert found.exact >= dl.minimal_sharpness(problem, depth).exact * (1 - 1e-12)
    assert found.lower == pytest.approx(found.exact, rel=1e-6)
    network = found.minimizer
    assert top_of_hessian(X, y[:, None], network.weights, network.biases) == pytest.approx(
        found.exact, rel=1e-9
    )


@pytest.mark.parametrize(("seed", "depth", "scale"), [(0, 2, 0.2), (2, 3, 0.3)])
def test_one_output_is_a_convex_problem_in_the_norms_of_the_suffixes(seed, depth, scale):
    """The printed formula, minimized over log t by Nelder-Mead."""
    X, y = reference_data(seed, scale)
    problem = dl.Problem.from_data(X, y)
    root = np.linalg.cholesky(problem.covariance)
    seen = root.T @ problem.optimum

    def objective(log_t):
        t = np.append(np.exp(log_t), 1.0)
        weight = np.sum((t[1:] / t[:-1]) ** 2)
        kernel = t[0] ** 2 * root.T @ root + weight * np.outer(seen, seen)
        return max(2 * np.linalg.eigvalsh(kernel)[-1], 2 * np.sum(t**2))

    options = {"xatol": 1e-10, "fatol": 1e-13, "maxiter": 4000}
    found = minimize(objective, np.zeros(depth - 1), method="Nelder-Mead", options=options).fun
    assert dl.minimal_sharpness(problem, depth, biases=True).exact == pytest.approx(found, rel=1e-7)


def test_the_critical_rate_of_the_diabetes_table():
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    problem = dl.Problem.from_data(X - X.mean(axis=0), y - y.mean())
    assert dl.critical_learning_rate(problem, 3) == pytest.approx(0.00823617, rel=1e-5)
    assert dl.critical_learning_rate(problem, 3, biases=True) == pytest.approx(0.00291499, rel=1e-5)


@pytest.mark.parametrize("width", [None, 1])
def test_several_outputs_and_a_bottleneck_have_the_block_of_the_biases(width):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(20, 3)) * 0.3
    X -= X.mean(axis=0)
    Y = X @ rng.normal(size=(3, 2)) / 0.3 + 0.1 * rng.normal(size=(20, 2)) + 5.0
    problem = dl.Problem.from_data(X, Y)
    found = dl.minimal_sharpness(problem, 3, width=width, biases=True)
    assert found.lower == pytest.approx(found.exact, rel=1e-6)
    assert found.exact > dl.minimal_sharpness(problem, 3, width=width).exact
    network = found.attaining(2)
    measured = top_of_hessian(X, Y, network.weights, network.biases)
    assert measured == pytest.approx(found.exact, rel=1e-9)


def test_one_layer_has_two_separate_blocks():
    X, y = reference_data(0, 0.2)
    problem = dl.Problem.from_data(X, y)
    assert dl.minimal_sharpness(problem, 1, biases=True).exact == 2.0
    problem = dl.Problem.from_data(10 * X, y)
    assert dl.minimal_sharpness(problem, 1, biases=True).exact == 2 * problem.largest_eigenvalue


def test_what_is_not_covered_says_why():
    X, y = reference_data(0, 1.0)
    with pytest.raises(dl.InputError, match="centered inputs"):
        dl.critical_learning_rate(dl.Problem.from_data(X + 1, y), 2, biases=True)
    logistic = dl.Problem.from_data(X, np.sign(y), loss="logistic")
    with pytest.raises(dl.InputError, match="squared loss"):
        dl.critical_learning_rate(logistic, 2, biases=True)
    problem = dl.Problem.from_data(X, y)
    with pytest.raises(dl.InputError, match="readout"):
        dl.minimal_sharpness(problem, 2, [1.0], biases=True)
    with pytest.raises(dl.InputError, match="biases"):
        dl.critical_learning_rate(problem, 2, biases=True, weight_decay=0.1)
