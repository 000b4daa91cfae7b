"""The advised rate works from the starts people have, also from those that were not simulated."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import jax
import numpy as np
import pytest
from sklearn.datasets import load_diabetes

import deeplin as dl
from deeplin.networks.initialize import framework_layers
from deeplin.training import TrainingSpec, advise_start, starting_network

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def starts():
    """The experiment with three kinds of starts, `benchmarks/starts.py`."""
    found = spec_from_file_location("starts", FOLDER / "starts.py")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.extended
@pytest.mark.parametrize("name", ["diabetes"])
def test_of_1024_new_starts_at_most_one_in_a_hundred_diverges(starts, name):
    """And the rate is near the largest that does this, or nearly as fast as the best."""
    found = starts.compare(starts.tables()[name], 3, "torch", biases=True)
    assert found["diverged"] <= 0.01
    assert found["diverged_at_1.5"] > 0.01 or found["steps"] <= 2 * found["best_steps"]


def test_a_weak_signal_needs_a_far_smaller_rate_than_small_starts_do(starts):
    problem = starts.problem_of(0.02)
    advised = dl.training.advise(problem, 3).learning_rate
    found = advise_start(problem, 3, "xavier", biases=False)
    assert found.learning_rate < advised / 5
    assert found.trials.learned == found.trials.starts
    assert advise_start(problem, 3, "xavier", biases=False) == found
    keys = jax.random.split(jax.random.key(77), 24)
    new = starting_network(problem, keys, depth=3, initialization="xavier", biases=False)
    run = dl.gradient_descent(problem, new, advised, 500)
    assert np.mean(run.status == "diverged") > 0.5


def test_units_of_the_loss_and_momentum_reach_the_trials(starts):
    problem = starts.problem_of(0.8)
    plain, half = (
        advise_start(problem, 2, "torch", TrainingSpec(half=h), biases=False) for h in (False, True)
    )
    assert half.learning_rate == pytest.approx(2 * plain.learning_rate, rel=1e-12)
    heavy = advise_start(problem, 2, "torch", TrainingSpec(momentum=0.9), biases=False)
    assert heavy.trials.learned == heavy.trials.starts
    assert heavy.learning_rate < dl.theory.critical_learning_rate(problem, 2, momentum=0.9)


def test_the_rate_is_one_that_was_tried_even_if_no_rate_will_do(starts, monkeypatch):
    """With a learning rate of Adam that never makes all starts learn, the search gives up."""
    tried = []

    def never_learns(problem, nets, rates, steps, **options):
        run = dl.gradient_descent(problem, nets, rates, min(steps, 20), **options)
        tried.append(float(rates[0]))
        return run

    monkeypatch.setattr(dl.training.trials, "gradient_descent", never_learns)
    found = advise_start(starts.problem_of(0.8), 2, "torch", TrainingSpec(optimizer="adam"))
    assert found.trials.learned < found.trials.starts
    assert found.learning_rate == tried[-1]
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
    with pytest.raises(dl.InputError, match="initialization is 'ones'"):
        advise_start(starts.problem_of(0.8), 2, "ones")


@pytest.mark.extended
def test_the_rate_is_for_networks_with_biases(starts):
    """Raw diabetes: the rate of networks without biases lets all starts with biases diverge."""
    X, y = load_diabetes(return_X_y=True)
    X, Y = X - X.mean(axis=0), (y - y.mean())[:, None]
    problem = dl.Problem.from_data(X, Y[:, 0])
    rates = [advise_start(problem, 3, biases=biased).learning_rate for biased in (True, False)]
    widths = (10, 10, 10, 1)
    layers = starts.fresh("torch", widths, 64, seed=5, biases=True)
    rows = (X / len(X) ** 0.5, np.full(len(X), len(X) ** -0.5))
    assert rates[0] < 0.0007  # from this start 0.0007, 0.0015 and 0.0028 diverge
    lost = []
    for rate in rates:
        last, _ = starts.run(
            layers, np.full(64, rate), rows, Y / len(X) ** 0.5, 0.0, False, True, 300
        )
        lost.append(np.mean(~(np.asarray(last) < 1e3 * problem.zero_risk)))
    assert lost[0] == 0
    assert lost[1] > 0.9


@pytest.mark.parametrize("classes", [False, True])
def test_biases_are_drawn_as_pytorch_draws_them(classes):
    X = np.random.default_rng(0).normal(size=(40, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    if classes:
        problem = dl.Problem.from_data(np.c_[X, np.ones(40)], X[:, 0] > 0, loss="logistic")
    keys = jax.random.split(jax.random.key(1), 200)
    nets = starting_network(problem, keys, depth=2, width=30, initialization="xavier")
    first = nets.weights[0][:, :, 5] if classes else nets.biases[0]
    assert np.abs(first).max() == pytest.approx(5**-0.5, rel=1e-3)
    assert np.var(first) == pytest.approx(1 / 15, rel=0.05)
    assert np.abs(nets.biases[1]).max() == pytest.approx(30**-0.5, rel=2e-2)
    assert (nets.biases[0] is None) == classes
