"""The page's logistic loss (X-14, X-16) against NumPy, SciPy and dense autodiff."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize, minimize_scalar

pytestmark = pytest.mark.browser
REFERENCES = [  # depth, ‖p‖, S_min, S_bal of the data below, from the specification of X-14
    (2, 1.0, 0.32411966, 0.44834119),
    (3, 1.0, 0.53454498, 0.59516876),
    (3, 0.5, 0.33674224, 0.37493283),
    (5, 1.0, 0.98614967, None),
]


def classes(seed=0, rows=30):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3)) * [1, 0.6, 1.5]
    return X, np.where(X @ [1, -1, 0.5] + 1.5 * rng.normal(size=rows) > 0, 1.0, -1.0)


def risk(w, X, y):
    return jnp.mean(jnp.logaddexp(0.0, -y * (X @ w)))


def product(weights):
    outputs = weights[0]
    for layer in weights[1:]:
        outputs = layer @ outputs
    return outputs[0]


@pytest.mark.parametrize(("depth", "size", "exact", "balanced"), REFERENCES)
def test_minimal_sharpness_has_its_reference_value(ask, depth, size, exact, balanced):
    X, y = classes()
    given = {"X": X.tolist(), "y": y.tolist(), "depth": depth, "readout_norm": size}
    found = ask("minimal_sharpness", given | {"loss": "logistic"})
    assert found["exact"] == pytest.approx(exact, abs=1e-8)  # as many digits as are printed
    assert found["critical_learning_rate"] == pytest.approx(2 / exact, rel=1e-7)
    if balanced:
        assert found["balanced"] == pytest.approx(balanced, abs=1e-8)


@pytest.mark.parametrize("depth", [2, 4])
def test_minimal_sharpness_is_the_formula_at_a_minimum_that_scipy_finds(ask, depth):
    X, y = classes(seed=5, rows=40)
    slope = jax.jit(jax.grad(risk))
    best = minimize(
        lambda w: float(risk(w, X, y)), np.zeros(3), jac=lambda w: np.asarray(slope(w, X, y)),
        method="BFGS", options={"gtol": 1e-12},
    ).x  # fmt: skip
    values, vectors = np.linalg.eigh(np.asarray(jax.jit(jax.hessian(risk))(best, X, y)))
    root = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    along = root @ best

    def largest(tau):
        weight = (depth - 1) * np.exp(-tau / (depth - 1))
        return np.linalg.eigvalsh(np.exp(tau) * root @ root + weight * np.outer(along, along))[-1]

    least = minimize_scalar(largest, bounds=(-15, 15), method="bounded", options={"xatol": 1e-12})
    given = {"X": X.tolist(), "y": y.tolist(), "depth": depth, "loss": "logistic"}
    # the place of the minimum is good to about 1e-9
    assert ask("minimal_sharpness", given)["exact"] == pytest.approx(least.fun, rel=1e-7)


def test_training_and_sharpness_are_those_of_the_loss(ask):
    X, y = classes()
    rng = np.random.default_rng(2)
    weights = [0.7 * rng.normal(size=(m, n)) for n, m in pairwise([3, 4, 4, 1])]
    layers = [W.tolist() for W in weights]
    given = {"X": X.tolist(), "y": y.tolist(), "weights": layers, "loss": "logistic"}
    found = ask("train", given | {"learning_rate": 0.5, "steps": 40, "record_every": 20})

    def objective(weights):
        return risk(product(weights), X, y)

    slope = jax.jit(jax.grad(objective))
    flat, unravel = ravel_pytree([jnp.asarray(W) for W in weights])
    hessian = jax.jit(jax.hessian(lambda theta: objective(unravel(theta))))
    for step in range(41):
        layers = unravel(flat)
        if step % 20 == 0:
            record = step // 20
            assert found["risk"][record] == pytest.approx(float(objective(layers)), rel=1e-10)
            sharpest = np.linalg.eigvalsh(hessian(flat))[-1]
            assert found["sharpness"][record] == pytest.approx(sharpest, rel=1e-6)
        flat = flat - 0.5 * ravel_pytree(slope(layers))[0]


def test_any_two_values_are_classes_and_the_larger_is_positive(ask):
    X, y = classes()
    given = {"X": X.tolist(), "depth": 2, "loss": "logistic"}
    plain = ask("minimal_sharpness", given | {"y": y.tolist()})
    other = ask("minimal_sharpness", given | {"y": np.where(y > 0, 7, 3).tolist()})
    assert other == plain


@pytest.mark.parametrize(
    ("y", "said"),
    [
        ([1.0, 2.0, 3.0, 1.0], "two distinct values"),
        ([1.0, 1.0, 1.0, 1.0], "two distinct values"),
        ([1.0, 1.0, -1.0, -1.0], "separates"),
    ],
)
def test_targets_without_a_minimum_get_a_sentence(calculator, y, said):
    given = {"X": [[1.0], [2.0], [-1.0], [-3.0]], "y": y, "depth": 2, "loss": "logistic"}
    message = calculator.evaluate(
        "(g) => { try { deeplin.minimal_sharpness(g); } catch (e) { return e.message; } }",
        given,
    )
    assert said in message


def test_sharpness_falls_with_the_risk_where_classes_are_separable(visit):
    visitor = visit("#loss=logistic&noise=0&depth=3&scale=0.3&learning_rate=1&steps=1000").drawn()
    shown = visitor.page.evaluate("deeplin.current()")
    assert shown["critical"] is None
    assert "has no minimum" in shown["verdict"]
    for run in shown["runs"]:  # S/(ℓ log(1/ℓ)^{2−2/L}) levels off, so S falls with ℓ
        assert run["risk"][-1] < 1e-2 * run["risk"][0]
        assert run["sharpness"][-1] < 0.1 * max(run["sharpness"])
