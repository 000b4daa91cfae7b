"""The advised rate works from the starts people have, also from those that were not simulated."""

import numpy as np
import pytest

import deeplin as dl
from deeplin.networks.initialize import framework_layers
from deeplin.training import TrainingSpec, try_starts

KINDS = ("xavier", "orthogonal", "torch")
FRESH = 24


def problem_of(explained):
    """Eight white inputs that explain this part of the variance of the target."""
    rng = np.random.default_rng(int(1000 * explained))
    X = rng.normal(size=(200, 8))
    X -= X.mean(axis=0)
    signal, noise = X @ rng.normal(size=8), rng.normal(size=200)
    y = np.sqrt(explained) * signal / signal.std() + np.sqrt(1 - explained) * noise / noise.std()
    return dl.Problem.from_data(X, y - y.mean())


def fresh(kind, depth):
    """Starts that no trial has drawn."""
    rng = np.random.default_rng(77)
    drawn = [framework_layers(kind, rng, (8,) * depth + (1,)) for _ in range(FRESH)]
    return [np.stack(layer) for layer in zip(*drawn, strict=True)]


@pytest.mark.slow
def test_of_288_new_starts_at_most_three_diverge_and_the_rate_is_no_smaller_than_needed():
    diverged, ratios = 0, []
    for explained in (0.8, 0.02):
        problem = problem_of(explained)
        for depth in (2, 10):
            critical = dl.theory.critical_learning_rate(problem, depth)
            rates = critical * 2.0 ** -np.arange(0, 10, 0.5)
            for kind in KINDS:
                trials = try_starts(problem, depth, kind)
                starts = fresh(kind, depth)
                goal = {"gap": 0.01 * problem.zero_gap}
                run = dl.gradient_descent(
                    problem, dl.Network(starts), trials.learning_rate, 4000, **goal
                )
                diverged += int(np.sum(run.status == "diverged"))
                many = dl.Network([np.repeat(layer, len(rates), axis=0) for layer in starts])
                tried = dl.gradient_descent(problem, many, np.tile(rates, FRESH), 4000, **goal)
                settled = (tried.status == "converged").reshape(FRESH, -1).mean(axis=0)
                ratios.append(trials.learning_rate / rates[np.argmax(settled >= 0.95)])
    assert diverged <= 3
    assert min(ratios) >= 1 / 3


def test_a_weak_signal_needs_a_far_smaller_rate_than_small_starts_do():
    problem = problem_of(0.02)
    advised = dl.training.advise(problem, 3).learning_rate
    trials = try_starts(problem, 3, "xavier")
    assert trials.learning_rate < advised / 5
    assert trials.learned == trials.starts
    again = try_starts(problem, 3, "xavier")
    assert again == trials
    run = dl.gradient_descent(problem, dl.Network(fresh("xavier", 3)), advised, 500)
    assert np.mean(run.status == "diverged") > 0.5


def test_units_of_the_loss_and_momentum_reach_the_trials():
    problem = problem_of(0.8)
    plain, half = (try_starts(problem, 2, "torch", TrainingSpec(half=h)) for h in (False, True))
    assert half.learning_rate == pytest.approx(2 * plain.learning_rate, rel=1e-12)
    heavy = try_starts(problem, 2, "torch", TrainingSpec(momentum=0.9))
    assert heavy.learned == heavy.starts
    assert heavy.learning_rate < dl.theory.critical_learning_rate(problem, 2, momentum=0.9)


def test_starts_are_those_of_pytorch():
    rng = np.random.default_rng(0)
    widths = (300, 200, 100)
    first, last = framework_layers("torch", rng, widths)
    assert np.abs(first).max() <= 300**-0.5
    assert last.var() == pytest.approx(1 / (3 * 200), rel=0.05)
    assert framework_layers("xavier", rng, widths)[0].var() == pytest.approx(2 / 500, rel=0.05)
    assert framework_layers("he", rng, widths)[1].var() == pytest.approx(2 / 200, rel=0.05)
    wide = framework_layers("orthogonal", rng, widths)[0]
    np.testing.assert_allclose(wide @ wide.T, np.eye(200), atol=1e-12)
    with pytest.raises(dl.InputError, match="init is 'ones'"):
        try_starts(problem_of(0.8), 2, "ones")
