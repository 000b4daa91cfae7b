"""X-13: gradient flow on white inputs in closed form, against integration."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import deeplin as dl
from deeplin.theory import time_to_reach, two_layer_flow
from deeplin.theory.bounds import balanced_mode

TIMES = np.array([0.0, 0.05, 0.3, 1.0, 3.0, 30.0])
MODES = [(2.0, 0.01), (2.0, 1.9), (1.0, 3.0), (3.0, 1e-4)]
"""Targets and starts: far below, near, above, and vanishing."""


@pytest.mark.parametrize(("target", "start"), MODES)
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 7])
def test_modes_agree_with_integration(depth, target, start):
    curvature = 0.7

    def speed(_, x):
        return 2 * curvature * depth * np.abs(x) ** (2 - 2 / depth) * (target - x)

    exact = balanced_mode(TIMES, target=target, start=start, depth=depth, curvature=curvature)
    solver = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-15}
    path = solve_ivp(speed, (0, 30), [start], t_eval=TIMES, **solver).y[0]
    np.testing.assert_allclose(exact, path, rtol=1e-10)
    assert exact[0] == pytest.approx(start, rel=1e-12)


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
@pytest.mark.parametrize(("target", "start", "value"), [(2.0, 0.1, 1.0), (1.0, 4.0, 1.5)])
def test_times_and_modes_are_inverse(depth, target, start, value):
    time = time_to_reach(value, target=target, start=start, depth=depth)
    reached = balanced_mode(time, target=target, start=start, depth=depth)
    assert reached[0] == pytest.approx(value, rel=1e-12)


def test_deep_modes_wait_at_the_saddle_for_a_time_that_grows_with_a_power_of_the_start():
    for depth in (3, 4, 10):
        power = 1 - 2 / depth
        times = [time_to_reach(0.5, target=1.0, start=s, depth=depth) for s in (1e-8, 1e-10)]
        leading = (1e-10**-power - 1e-8**-power) / (2 * depth * power)
        assert times[1] - times[0] == pytest.approx(leading, rel=1e-3)
    two = time_to_reach(0.5, target=1.0, start=1e-8, depth=2)
    assert two == pytest.approx(np.log(1e8 - 1) / 4, rel=1e-12)


@pytest.mark.parametrize("depth", [2, 3])
def test_the_library_flows_along_the_exact_modes(depth):
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.normal(size=(20, 3)))[0] * np.sqrt(20)
    sizes = np.array([2.0, 1.0, 0.5])
    problem = dl.Problem.from_data(X, X @ np.diag(sizes))
    network = dl.Network([0.3 * np.eye(3)] * depth)
    run = dl.gradient_flow(problem, network, until=1.5)
    exact = [balanced_mode(1.5, target=size, start=0.3**depth, depth=depth)[0] for size in sizes]
    # the flow is integrated to a relative accuracy of about 1e-6
    np.testing.assert_allclose(np.diag(run.network.product), exact, rtol=1e-5)


def balanced_layers(rng, d, h, q, balance):
    """W_1 and W_2 with W_2ᵀW_2 − W_1W_1ᵀ = λI."""
    first, second = rng.normal(size=(h, d)), rng.normal(size=(q, h))
    frame = np.linalg.qr(rng.normal(size=(q if balance >= 0 else d, h)))[0]
    inner = first @ first.T if balance >= 0 else second.T @ second
    values, vectors = np.linalg.eigh(inner + abs(balance) * np.eye(h))
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    if balance >= 0:
        return 0.5 * first, 0.5 * frame @ root
    return 0.5 * (frame @ root).T, 0.5 * second


@pytest.mark.parametrize(
    ("d", "h", "q", "balance"),
    [(3, 2, 4, 1.0), (3, 2, 4, 0.0), (4, 3, 2, -0.8), (2, 3, 5, 0.0), (2, 2, 2, 2.0)],
)
@pytest.mark.parametrize("time", [0.1, 0.7, 3.0])
def test_two_layers_agree_with_integration(d, h, q, balance, time):
    rng = np.random.default_rng(3)
    first, second = balanced_layers(rng, d, h, q, balance)
    target = rng.normal(size=(q, d))

    def speed(_, flat):
        W, V = flat[: h * d].reshape(h, d), flat[h * d :].reshape(q, h)
        error = 2 * (target - V @ W)
        return np.concatenate([(V.T @ error).reshape(-1), (error @ W.T).reshape(-1)])

    start = np.concatenate([first.reshape(-1), second.reshape(-1)])
    end = solve_ivp(speed, (0, time), start, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    W, V = end[: h * d].reshape(h, d), end[h * d :].reshape(q, h)
    flow = two_layer_flow(first, second, target, time)
    np.testing.assert_allclose(flow.product, V @ W, atol=1e-9)
    np.testing.assert_allclose(flow.first_gram, W.T @ W, atol=1e-9)
    np.testing.assert_allclose(flow.second_gram, V @ V.T, atol=1e-9)
    assert flow.balance == pytest.approx(balance / 4, abs=1e-12)


def test_late_times_end_at_the_target():
    rng = np.random.default_rng(3)
    first, second = balanced_layers(rng, 2, 2, 2, 1.0)
    target = np.diag([3.0, 2.0])
    flow = two_layer_flow(first, second, target, time=300.0)
    np.testing.assert_allclose(flow.product, target, atol=1e-9)
    assert two_layer_flow(first, second, target, time=0.0).product == pytest.approx(second @ first)


def test_unsupported_input_is_refused_with_a_reason():
    rng = np.random.default_rng(0)
    with pytest.raises(dl.InputError, match="not λ-balanced"):
        two_layer_flow(rng.normal(size=(2, 2)), rng.normal(size=(2, 2)), np.eye(2), 1.0)
    with pytest.raises(dl.InputError, match="shapes"):
        two_layer_flow(np.eye(2), np.eye(3), np.eye(2), 1.0)
    with pytest.raises(dl.InputError, match="never reaches"):
        time_to_reach(3.0, target=2.0, start=1.0, depth=2)
    with pytest.raises(dl.InputError, match="times"):
        balanced_mode(-1.0, target=1.0, start=0.1, depth=2)
