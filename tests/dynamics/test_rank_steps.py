"""The compiled descent of wide linear networks against plain NumPy."""

from itertools import pairwise

import dense_network
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deeplin.dynamics.rank_kernel import Descent, steps_within
from deeplin.kernels.wide import BROKEN, REACHED, RUNNING


def _case(sizes, seed):
    rng = np.random.default_rng(seed)
    weights = [0.5 * rng.normal(size=(b, a)) for a, b in pairwise(sizes)]
    eigenvalues = rng.uniform(0.1, 1, sizes[0])
    optimum = rng.normal(size=(sizes[0], sizes[-1]))
    X = np.diag(np.sqrt(len(eigenvalues) * eigenvalues))  # n = d, so that XᵀX/n is diagonal
    return weights, eigenvalues, optimum, X, X @ optimum


def _risk(X, Y, weights):
    return np.sum((Y - X @ dense_network.product(weights).T) ** 2) / len(X)


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=6),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.5, 0.9]),
)
@example([4, 9, 9, 7, 9, 8], 47830, 0.0)  # its risk passes the ceiling
@example([1, 5, 9, 4, 1], 890223, 0.0)  # its risk is almost zero
def test_steps_are_those_of_dense_descent(sizes, seed, momentum):
    weights, eigenvalues, optimum, X, Y = _case(sizes, seed)
    dense, risks = [weights], [_risk(X, Y, weights)]
    ceiling = 10 * risks[0]  # above it rounding grows without bound from step to step
    while len(risks) <= 20 and risks[-1] <= ceiling:
        dense.append(dense_network.descend(X, Y, weights, 0.005, len(dense), momentum))
        risks.append(_risk(X, Y, dense[-1]))
    stable = risks[-1] <= ceiling
    descent = Descent.begin(weights, eigenvalues, optimum, momentum=momentum)
    for until in (1, 4, 20):
        descent.advance(until, 0.005, momentum=momentum, ceiling=ceiling)
    assert descent.outcome == (RUNNING if stable else BROKEN)
    assert descent.steps == len(risks) - 1
    kept = -1 if stable else -2
    for ours, theirs in zip(descent.layers, dense[kept], strict=True):
        assert np.allclose(ours, theirs, rtol=0, atol=1e-12)
    # √R moves no faster than the weights; R itself loses its digits where it is almost zero.
    assert np.sqrt(descent.risk) == pytest.approx(np.sqrt(risks[kept]), rel=1e-10, abs=1e-12)


def test_a_read_out_takes_the_place_of_the_identity():
    weights, eigenvalues, _, X, _ = _case((4, 6, 5), 3)
    readout, target = np.arange(1.0, 6.0), np.arange(4.0)[:, None]
    descent = Descent.begin(weights, eigenvalues, target, readout=readout)
    descent.advance(10, 0.001)
    layers = [*weights, readout[None, :]]
    for _ in range(10):
        slopes = dense_network.gradients(X, X @ target, layers)
        layers = [w - 0.001 * g for w, g in zip(layers[:-1], slopes, strict=False)] + layers[-1:]
    for ours, theirs in zip(descent.layers, layers, strict=False):
        assert np.allclose(ours, theirs, atol=1e-13)


def test_pieces_do_not_change_the_bits():
    weights, eigenvalues, optimum, _, _ = _case((7, 11, 11, 3), 0)
    whole = Descent.begin(weights, eigenvalues, optimum)
    whole.advance(50, 0.01)
    pieces = Descent.begin(weights, eigenvalues, optimum)
    for until in range(0, 51, 5):
        pieces.advance(until, 0.01)
    for a, b in zip(whole.layers, pieces.layers, strict=True):
        assert np.array_equal(a, b)


def test_the_path_sums_the_roots_of_the_risk():
    weights, eigenvalues, optimum, X, Y = _case((5, 8, 2), 1)
    descent = Descent.begin(weights, eigenvalues, optimum)
    descent.advance(15, 0.01)
    total = 0.0
    for steps in range(15):
        layers = dense_network.descend(X, Y, weights, 0.01, steps)
        residual = Y - X @ dense_network.product(layers).T
        total += np.sqrt(np.sum(residual**2) / len(X))
    assert descent.path == pytest.approx(total, rel=1e-12)


def test_the_goal_is_met_at_the_first_step_that_meets_it():
    weights, eigenvalues, optimum, _, _ = _case((5, 8, 2), 1)
    descent = Descent.begin(weights, eigenvalues, optimum)
    descent.advance(100_000, 0.05, goal=1e-6)
    assert descent.outcome == REACHED
    assert descent.risk <= 1e-6
    before = Descent.begin(weights, eigenvalues, optimum)
    before.advance(descent.steps - 1, 0.05)
    assert before.outcome == RUNNING
    assert before.risk > 1e-6


@pytest.mark.parametrize("rate", [0.5, 5.0, 1e200])
def test_a_broken_run_keeps_the_weights_before_it_broke(rate):
    weights, eigenvalues, optimum, X, Y = _case((5, 8, 8, 2), 1)
    weights = [3 * weight for weight in weights]
    descent = Descent.begin(weights, eigenvalues, optimum)
    descent.advance(1000, rate, ceiling=1e12)
    assert descent.outcome == BROKEN
    assert all(np.isfinite(layer).all() for layer in descent.layers)
    assert descent.risk <= 1e12
    if rate < 1e100:
        kept = dense_network.descend(X, Y, weights, rate, descent.steps - 1)
        for a, b in zip(descent.layers, kept, strict=True):
            assert np.allclose(a, b, rtol=1e-9)
    descent.advance(2000, rate)
    assert descent.outcome == BROKEN


def test_short_pieces_for_large_networks():
    assert steps_within(0.1, 10**9, 3) == 1
    assert steps_within(0.1, 10**4, 3) > 100
