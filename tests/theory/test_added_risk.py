"""X-35: what the start adds to the risk."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.theory import added_risk


def setting(scale, runs=256, outputs=1, **options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 20))
    truth = rng.normal(size=(outputs, 20)) / np.sqrt(20)
    problem = dl.Problem.from_data(X, X @ truth.T + 0.3 * rng.normal(size=(8, outputs)))
    widths = (20, 10, 10, outputs)
    starts = dl.initialize.gaussian(jax.random.split(jax.random.key(1), runs), widths, scale)
    run = dl.gradient_descent(problem, starts, learning_rate=0.02, steps=1500, **options)
    population = dl.Population(truth if outputs > 1 else truth[0], np.ones(20))
    return added_risk(problem, run, population)


@pytest.mark.parametrize(("scale", "outputs"), [(0.15, 1), (0.3, 1), (0.3, 2)])
def test_the_mean_over_starts_is_the_law_and_below_both_bounds(scale, outputs):
    found = setting(scale, outputs=outputs)
    error = np.std(found.measured - found.law) / np.sqrt(len(found.law))
    assert abs(np.mean(found.measured) - np.mean(found.law)) < 3.5 * error
    assert error < 0.1 * np.mean(found.law)
    assert found.scale == pytest.approx(scale, rel=0.02)
    assert np.all(found.law <= found.by_sharpness * (1 + 1e-6))
    assert np.all(found.by_sharpness <= found.by_rate * (1 + 1e-6))


def test_weight_decay_and_full_rank_are_refused():
    with pytest.raises(dl.InputError, match="weight decay"):
        setting(0.1, runs=2, weight_decay=0.1)
