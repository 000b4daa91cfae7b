"""The advised rate works from the starts people have, also from those that were not simulated."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import deeplin as dl
from deeplin.networks.initialize import framework_layers
from deeplin.training import TrainingSpec, try_starts

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def starts():
    """The experiment with three kinds of starts, `benchmarks/starts.py`."""
    found = spec_from_file_location("starts", FOLDER / "starts.py")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_of_288_new_starts_at_most_three_diverge_and_the_rate_is_no_smaller_than_needed(starts):
    """The corners of the experiment, with four times as many starts in each."""
    found = [
        starts.compare(starts.problem_of(explained), depth, kind, new=24)
        for explained in (0.8, 0.02)
        for depth in (2, 10)
        for kind in starts.KINDS
    ]
    assert sum(diverged for _, diverged, _ in found) <= 3
    assert min(share for _, _, share in found) >= 1 / 3


def test_a_weak_signal_needs_a_far_smaller_rate_than_small_starts_do(starts):
    problem = starts.problem_of(0.02)
    advised = dl.training.advise(problem, 3).learning_rate
    trials = try_starts(problem, 3, "xavier")
    assert trials.learning_rate < advised / 5
    assert trials.learned == trials.starts
    again = try_starts(problem, 3, "xavier")
    assert again == trials
    run = dl.gradient_descent(problem, dl.Network(starts.fresh("xavier", 3, 24)), advised, 500)
    assert np.mean(run.status == "diverged") > 0.5


def test_units_of_the_loss_and_momentum_reach_the_trials(starts):
    problem = starts.problem_of(0.8)
    plain, half = (try_starts(problem, 2, "torch", TrainingSpec(half=h)) for h in (False, True))
    assert half.learning_rate == pytest.approx(2 * plain.learning_rate, rel=1e-12)
    heavy = try_starts(problem, 2, "torch", TrainingSpec(momentum=0.9))
    assert heavy.learned == heavy.starts
    assert heavy.learning_rate < dl.theory.critical_learning_rate(problem, 2, momentum=0.9)


def test_the_rate_is_one_that_was_tried_even_if_no_rate_will_do(starts, monkeypatch):
    """With a learning rate of Adam that never makes all starts learn, the search gives up."""
    tried = []

    def never_learns(problem, nets, rates, steps, **options):
        run = dl.gradient_descent(problem, nets, rates, min(steps, 20), **options)
        tried.append(float(rates[0]))
        return run

    monkeypatch.setattr(dl.training.advice, "gradient_descent", never_learns)
    trials = try_starts(starts.problem_of(0.8), 2, "torch", TrainingSpec(optimizer="adam"))
    assert trials.learned < trials.starts
    assert trials.learning_rate == tried[-1]
    assert tried[-1] < tried[-2]


def test_starts_are_those_of_pytorch(starts):
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
        try_starts(starts.problem_of(0.8), 2, "ones")
