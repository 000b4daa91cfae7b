"""The page's logistic loss (X-14, X-16) against the library."""

from itertools import pairwise

import numpy as np
import pytest

import deeplin as dl

pytestmark = pytest.mark.browser


def classes(seed=0, rows=30):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3)) * [1, 0.6, 1.5]
    return X, np.where(X @ [1, -1, 0.5] + 1.5 * rng.normal(size=rows) > 0, 1.0, -1.0)


@pytest.mark.parametrize(("depth", "size"), [(2, 1.0), (3, 0.5), (5, 1.0)])
def test_minimal_sharpness_is_the_librarys(ask, depth, size):
    X, y = classes()
    given = {"X": X.tolist(), "y": y.tolist(), "depth": depth, "readout_norm": size}
    found = ask("minimal_sharpness", given | {"loss": "logistic"})
    problem = dl.Problem.from_data(X, y, loss="logistic")
    exact = float(dl.minimal_sharpness(problem, depth, size * np.eye(3)[0]).exact)
    assert found["exact"] == pytest.approx(exact, rel=1e-7)
    assert found["critical_learning_rate"] == pytest.approx(2 / exact, rel=1e-7)


def test_training_and_sharpness_are_the_librarys(ask):
    X, y = classes()
    rng = np.random.default_rng(2)
    weights = [0.7 * rng.normal(size=(m, n)) for n, m in pairwise([3, 4, 4, 1])]
    layers = [W.tolist() for W in weights]
    given = {"X": X.tolist(), "y": y.tolist(), "weights": layers, "loss": "logistic"}
    found = ask("train", given | {"learning_rate": 0.5, "steps": 40, "record_every": 40})
    problem = dl.Problem.from_data(X, y, loss="logistic")
    run = dl.gradient_descent(
        problem, dl.Network(weights), 0.5, 40, record_every=40, record=["risk"]
    )
    np.testing.assert_allclose(found["risk"], run.records["risk"], rtol=1e-9)
    exact = float(np.asarray(dl.sharpness(problem, run.network, method="dense").value))
    assert found["sharpness"][-1] == pytest.approx(exact, rel=1e-6)


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
