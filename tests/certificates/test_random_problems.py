"""Certificates over many random problems: nothing that meets its hypotheses may be violated."""

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.certificates.certificate import HOLDS, certify
from deeplin.certificates.statements import STATEMENTS
from deeplin.dynamics import gradient_flow
from deeplin.theory import critical_learning_rate

PROBLEMS = 70
"""In each of three groups: more than 200 together."""
ONCE = {"Talk-log", "FM-L6", "FM-toy"}
"""Statements that look at no run; they are checked on every tenth problem."""


def random_problem(seed):
    """Overdetermined, interpolating, ill-conditioned or nearly singular, with or without noise."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 30))
    spread = 10 ** rng.uniform(-1.5, 0, size=4)
    X = rng.normal(size=(n, 4)) * spread / np.max(spread)
    if seed % 5 == 0:
        X[:, 3] = X[:, 0] - X[:, 1]
    y = X @ rng.normal(size=4) + rng.choice([0.0, 1.0]) * rng.normal(size=n)
    size = np.exp(rng.uniform(-0.5, 1.0)) / dl.Problem.from_data(X, y).optimum_norm
    return dl.Problem.from_data(X, size * y)


def statements(seed):
    return [id for id in STATEMENTS if seed % 10 == 0 or id not in ONCE]


def assert_nothing_violated(problem, run, seed, seen):
    table = certify(problem, run, only=statements(seed))
    assert table.all_hold, f"problem {seed}:\n{table.violated.to_string()}"
    for id in table[table["verdict"] == HOLDS]["id"]:
        seen[id] = seen.get(id, 0) + 1


def assert_often(seen, ids, least):
    for id in ids:
        assert seen.get(id, 0) >= least, (id, seen)


@pytest.mark.extended
def test_certificates_hold_on_descent_over_random_problems():
    """Four rates from far below to above the critical one, with settled and diverged runs."""
    seen: dict[str, int] = {}
    for seed in range(PROBLEMS):
        problem = random_problem(seed)
        rate = critical_learning_rate(problem, 3)
        net = dl.initialize.gaussian(jax.random.key(seed), (4, 4, 4, 1), 0.5)
        rates = rate * np.array([0.1, 0.6, 0.97, 1.5])
        run = dl.gradient_descent(problem, net, rates, 4000, record_every=401, record=("gap",))
        assert_nothing_violated(problem, run, seed, seen)
    assert_often(seen, ["FM-grad", "FM-L8", "FM-sharp", "FM-T1", "FM-T2", "X-1", "X-2"], PROBLEMS)
    assert_often(seen, ["FM-crit", "FM-rescale", "X-3"], PROBLEMS)


@pytest.mark.extended
def test_certificates_hold_on_flow_from_small_starts_over_random_problems():
    seen: dict[str, int] = {}
    times = [0.1, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0]
    for seed in range(PROBLEMS):
        problem = random_problem(seed)
        scale = (2e-3, 2e-2, 0.2)[seed % 3]
        net = dl.initialize.zero_layer(jax.random.key(seed), (4, 4, 1), scale)
        run = gradient_flow(problem, net, until=100.0, at=times, record=("gap",))
        assert_nothing_violated(problem, run, seed, seen)
    assert_often(seen, ["FM-L1", "FM-L2", "FM-T3", "FM-L7", "FM-A1", "FM-L8"], PROBLEMS)
    assert_often(seen, ["FM-A2", "FM-C1", "FM-C2"], 5)


@pytest.mark.extended
def test_certificates_hold_on_flow_from_residual_starts_over_random_problems():
    """Every other problem is one the start almost explains, inside the radius of FM-T4."""
    seen: dict[str, int] = {}
    for seed in range(PROBLEMS):
        problem = random_problem(seed)
        p = np.random.default_rng(seed).normal(size=4)
        net = dl.initialize.residual(jax.random.key(seed), 4, 6, 0.05, p)
        if seed % 2:
            X, _ = problem.require_data("the test")
            shift = 1e-12 * np.random.default_rng(seed).normal(size=4)
            problem = dl.Problem.from_data(X, X @ (np.asarray(net.product) + shift).T)
        run = gradient_flow(problem, net, until=3.0, at=[0.1, 0.5, 1.0, 3.0], record=("gap",))
        assert_nothing_violated(problem, run, seed, seen)
    assert_often(seen, ["FM-grad-sandwich", "FM-L9", "FM-L1", "Talk-res", "FM-L8"], PROBLEMS)
    assert_often(seen, ["FM-T4", "FM-L3"], 10)
    assert_often(seen, ["FM-C3"], 5)
