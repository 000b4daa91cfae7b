"""Hidden layers narrower than the optimum: runs are measured against what they can reach (X-34)."""

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics import GradientNorm
from deeplin.dynamics.integration import flow_limit, flow_sharpness


@pytest.fixture(scope="module")
def problem():
    """The reference data of X-34: three outputs, an optimum of rank 3."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4)) * [1, 0.8, 0.5, 1.5]
    return dl.Problem.from_data(X, X @ rng.normal(size=(4, 3)) + 0.5 * rng.normal(size=(40, 3)))


@pytest.fixture(scope="module")
def net():
    return dl.initialize.gaussian(jax.random.key(0), (4, 2, 3), 0.5)


LEAST = 1.70721932
"""The smallest risk of a product of rank 2, as printed with X-34."""


@pytest.fixture(scope="module")
def run(problem, net):
    names = ["gap", "distance", "gradient_norm"]
    return dl.gradient_descent(problem, net, 0.05, 4000, record=names)


def test_a_run_that_reaches_the_best_product_of_its_rank_is_converged(problem, run):
    assert run.status == "converged"
    assert run.evidence["risk"] == pytest.approx(LEAST, abs=1e-8)
    assert abs(run.evidence["gap"]) < 1e-12
    assert run.evidence["bottleneck"] == pytest.approx(LEAST - problem.minimal_risk, abs=1e-8)
    assert "hidden layers of width 2" in run.message


def test_gap_and_distance_refer_to_the_best_product_of_the_rank(problem, run):
    """By NumPy: reduced-rank regression, on the raw data."""
    X, Y = np.asarray(problem.inputs), np.asarray(problem.targets)
    optimum = np.linalg.lstsq(X, Y)[0]
    right = np.linalg.svd(X @ optimum)[2][:2]
    best = optimum @ right.T @ right
    for k in (0, 7, -1):
        W1, W2 = (np.asarray(weight) for weight in run.trajectory[k].weights)
        theta = (W2 @ W1).T
        risk = np.sum((Y - X @ theta) ** 2) / 40
        least = np.sum((Y - X @ best) ** 2) / 40
        assert run.records["gap"][k] == pytest.approx(risk - least, rel=1e-9, abs=1e-13)
        distance = np.sum((theta - best) ** 2)
        assert run.records["distance"][k] == pytest.approx(distance, rel=1e-9, abs=1e-13)
        slope = 2 / 40 * X.T @ (X @ theta - Y)
        norm = np.hypot(np.linalg.norm(W2.T @ slope.T), np.linalg.norm(slope.T @ W1.T))
        assert run.records["gradient_norm"][k] == pytest.approx(norm, rel=1e-9, abs=1e-13)


def test_a_gap_and_a_gradient_norm_stop_a_run_with_a_bottleneck(problem, net):
    by_gap = dl.gradient_descent(problem, net, 0.05, 4000, gap=1e-9)
    assert (by_gap.status, by_gap.evidence["gap"] <= 1e-9) == ("converged", True)
    assert by_gap.steps < 4000


def test_a_flow_stops_at_the_gap_that_its_rank_allows(problem, net):
    flow = dl.gradient_flow(problem, net, until=dl.Gap(1e-6))
    assert flow.status == "converged"
    assert flow.evidence["gap"] <= 1e-6
    assert flow.evidence["evaluations"] < 10_000
    exact = dl.gradient_flow(problem, net, until=GradientNorm(1e-5), solver="explicit")
    assert exact.status == "converged"
    assert exact.evidence["risk"] == pytest.approx(LEAST, abs=1e-8)
    with pytest.raises(dl.InputError, match="exactly one"):
        dl.gradient_flow(problem, net, until=1.0, gradient_norm=1e-8)


def test_the_flow_ends_where_small_steps_of_descent_do(problem, net):
    """Along the flow the sharpness at its end is one number, that of a long slow descent."""
    nets = net.with_batch()
    ends, reached = flow_limit(problem, nets)
    assert reached.all()
    slow = dl.gradient_descent(problem, net, 1e-3, 60_000)
    assert slow.status == "converged"
    value, error = flow_sharpness(problem, nets)
    assert value[0] == pytest.approx(dl.sharpness(problem, slow.network).value, rel=5e-3)
    assert error[0] < 1e-9
    balance = [np.asarray(w2[0].T @ w2[0] - w1[0] @ w1[0].T) for w1, w2 in [ends.weights]]
    start = np.asarray(net.weights[1].T @ net.weights[1] - net.weights[0] @ net.weights[0].T)
    np.testing.assert_allclose(balance[0], start, atol=1e-6)  # FM-L1


def test_a_flow_to_a_saddle_says_so(problem, net):
    dead = dl.Network([weight[None] * 0 for weight in net.weights])
    with pytest.warns(UserWarning, match="flow_sharpness is NaN for 1 of 1"):
        assert np.isnan(flow_sharpness(problem, dead)[0]).all()


def test_hidden_layers_as_wide_as_the_rank_change_nothing(problem):
    wide = dl.initialize.gaussian(jax.random.key(0), (4, 3, 3), 0.5)
    run = dl.gradient_descent(problem, wide, 0.05, 10)
    assert "bottleneck" not in run.evidence
    assert run.evidence["gap"] == pytest.approx(run.evidence["risk"] - problem.minimal_risk)
