"""The compiled descent of wide linear networks against plain NumPy."""

from itertools import pairwise

import dense_network
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import deeplin as dl
from deeplin.dynamics.objective import Ensemble
from deeplin.dynamics.rank_steps import RankSteps, Target
from deeplin.dynamics.state import LOST, REACHED, RUNNING, Rules


def _case(sizes, seed):
    rng = np.random.default_rng(seed)
    weights = [0.5 * rng.normal(size=(b, a)) for a, b in pairwise(sizes)]
    eigenvalues = rng.uniform(0.1, 1, sizes[0])
    optimum = rng.normal(size=(sizes[0], sizes[-1]))
    X = np.diag(np.sqrt(len(eigenvalues) * eigenvalues))  # n = d, so that XᵀX/n is diagonal
    return weights, eigenvalues, optimum, X, X @ optimum


class Descent:
    """One network on its way."""

    def __init__(self, case, rate, *, readout=None, momentum=0.0, goal=-np.inf, ceiling=np.inf):
        weights, eigenvalues, optimum = case[:3]
        rules = Rules(np.array([goal]), np.array([ceiling]))
        ensemble = Ensemble.of(dl.Network(weights, readout))
        target = Target(eigenvalues, optimum)
        self.steps = RankSteps(ensemble, [target], rules, np.array([rate]), momentum)
        self.state = self.steps.start()

    def advance(self, until):
        """To step `until`, in as many pieces as the pace asks for."""
        while True:
            self.state = self.steps.advance(self.state, until)
            if not self.state.running[0] or self.state.steps[0] == until:
                return self

    @property
    def layers(self):
        return [np.asarray(weight[0]) for weight in self.state.weights]

    @property
    def risk(self):
        return self.state.memory.risk[0]

    @property
    def taken(self):
        return self.state.steps[0]

    @property
    def outcome(self):
        return self.state.outcome[0]


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
    case = weights, _, _, X, Y = _case(sizes, seed)
    dense, risks = [weights], [_risk(X, Y, weights)]
    ceiling = 10 * risks[0]  # above it rounding grows without bound from step to step
    while len(risks) <= 20 and risks[-1] <= ceiling:
        dense.append(dense_network.descend(X, Y, weights, 0.005, len(dense), momentum))
        risks.append(_risk(X, Y, dense[-1]))
    stable = risks[-1] <= ceiling
    descent = Descent(case, 0.005, momentum=momentum, ceiling=ceiling)
    for until in (1, 4, 20):
        descent.advance(until)
    assert descent.outcome == (RUNNING if stable else LOST)
    assert descent.taken == len(risks) - 1
    kept = -1 if stable else -2
    for ours, theirs in zip(descent.layers, dense[kept], strict=True):
        assert np.allclose(ours, theirs, rtol=0, atol=1e-12)
    # √R moves no faster than the weights; R itself loses its digits where it is almost zero.
    assert np.sqrt(descent.risk) == pytest.approx(np.sqrt(risks[kept]), rel=1e-10, abs=1e-12)


def test_a_read_out_takes_the_place_of_the_identity():
    weights, eigenvalues, _, X, _ = _case((4, 6, 5), 3)
    readout, target = np.arange(1.0, 6.0), np.arange(4.0)[:, None]
    descent = Descent((weights, eigenvalues, target), 0.001, readout=readout).advance(10)
    layers = [*weights, readout[None, :]]
    for _ in range(10):
        slopes = dense_network.gradients(X, X @ target, layers)
        layers = [w - 0.001 * g for w, g in zip(layers[:-1], slopes, strict=False)] + layers[-1:]
    for ours, theirs in zip(descent.layers, layers, strict=False):
        assert np.allclose(ours, theirs, atol=1e-13)


def test_pieces_do_not_change_the_bits():
    case = _case((7, 11, 11, 3), 0)
    whole = Descent(case, 0.01).advance(50)
    pieces = Descent(case, 0.01)
    for until in range(0, 51, 5):
        pieces.advance(until)
    for a, b in zip(whole.layers, pieces.layers, strict=True):
        assert np.array_equal(a, b)


def test_the_path_sums_the_roots_of_the_risk():
    case = weights, _, _, X, Y = _case((5, 8, 2), 1)
    descent = Descent(case, 0.01).advance(15)
    total = 0.0
    for steps in range(15):
        layers = dense_network.descend(X, Y, weights, 0.01, steps)
        residual = Y - X @ dense_network.product(layers).T
        total += np.sqrt(np.sum(residual**2) / len(X))
    assert descent.state.memory.path[0] == pytest.approx(total, rel=1e-12)


def test_the_goal_is_met_at_the_first_step_that_meets_it():
    case = _case((5, 8, 2), 1)
    descent = Descent(case, 0.05, goal=1e-6).advance(100_000)
    assert descent.outcome == REACHED
    assert descent.risk <= 1e-6
    before = Descent(case, 0.05).advance(descent.taken - 1)
    assert before.outcome == RUNNING
    assert before.risk > 1e-6


@pytest.mark.parametrize("rate", [0.5, 5.0, 1e200])
def test_a_broken_run_keeps_the_weights_before_it_broke(rate):
    weights, eigenvalues, optimum, X, Y = _case((5, 8, 8, 2), 1)
    weights = [3 * weight for weight in weights]
    descent = Descent((weights, eigenvalues, optimum), rate, ceiling=1e12).advance(1000)
    assert descent.outcome == LOST
    assert all(np.isfinite(layer).all() for layer in descent.layers)
    assert descent.risk <= 1e12
    if rate < 1e100:
        kept = dense_network.descend(X, Y, weights, rate, descent.taken - 1)
        for a, b in zip(descent.layers, kept, strict=True):
            assert np.allclose(a, b, rtol=1e-9)
    assert descent.advance(2000).outcome == LOST
