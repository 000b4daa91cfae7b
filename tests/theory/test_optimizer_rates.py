"""X-22 to X-24: parallel paths, sharpness-aware minimization, Adam."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin import theory


def _problem(noise: float) -> dl.Problem:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(20, 3)) * [1, 0.5, 1.4]
    return dl.Problem.from_data(X, X @ [1, -0.7, 0.4] + noise * rng.normal(size=20))


PATHS = [  # depth, norms, S_min
    (3, [1], 12.03114102),
    (3, 2, 9.54912296),
    (3, 3, 8.34192727),
    (2, 2, 8.10409258),
    (2, [1, 0.6], 4.86245555),
    (3, [1, 0.5], 7.03585395),
    (4, [1, 0.5], 9.26580087),
]


@pytest.mark.parametrize(("depth", "norms", "value"), PATHS)
def test_parallel_paths_have_the_reference_sharpness(depth, norms, value):
    problem = _problem(0.2)
    assert theory.parallel_sharpness(problem, depth, norms) == pytest.approx(value, abs=6e-9)
    rate = theory.critical_learning_rate(problem, depth, paths=norms)
    assert rate == pytest.approx(2 / value, rel=1e-8)


def test_paths_of_several_outputs_gain_the_same_factor():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3)) * [1, 0.5, 1.5]
    problem = dl.Problem.from_data(X, X @ rng.normal(size=(2, 3)).T)
    for m, value in {1: 16.0854822, 2: 12.7670557, 3: 11.1530505}.items():
        assert theory.parallel_sharpness(problem, 3, m) == pytest.approx(value, abs=6e-8)
        assert theory.parallel_sharpness(problem, 2, m) == pytest.approx(8.8765249, abs=6e-8)


SAM = {
    2: (0.2446582368, 0.2261696199, 0.1736724861, 0.0928517615),
    3: (0.1628765950, 0.1450638624, 0.1009172582, 0.0471307307),
    5: (0.0964145684, 0.0798505644, 0.0473272888, 0.0187258183),
}


@pytest.mark.parametrize("depth", SAM)
def test_sam_has_the_reference_rates(depth):
    problem = _problem(0.0)
    for radius, rate in zip((0.0, 0.01, 0.05, 0.2), SAM[depth], strict=True):
        found = theory.critical_learning_rate(problem, depth, sam_radius=radius)
        assert found == pytest.approx(rate, abs=6e-11)
        limit = theory.bounds.sam_sharpness_limit(found, radius)
        assert limit == pytest.approx(theory.minimal_sharpness(problem, depth).exact, rel=1e-12)


def _near_flattest(problem: dl.Problem, depth: int):
    """The gradient of the plain loss, and weights 1e-3 beside the flattest minimizer."""
    X, y = jnp.asarray(problem.inputs), jnp.asarray(problem.target_columns)[:, 0]

    def risk(weights):
        hidden = X
        for weight in weights:
            hidden = hidden @ weight.T
        return jnp.mean((hidden[:, 0] - y) ** 2)

    rng = np.random.default_rng(0)
    flattest = theory.minimal_sharpness(problem, depth).attaining(3)
    start = [jnp.asarray(w + 1e-3 * rng.normal(size=w.shape)) for w in flattest.weights]
    return risk, jax.grad(risk), start


def test_sam_settles_below_its_rate_and_not_above():
    problem, radius = _problem(0.0), 0.05
    critical = theory.critical_learning_rate(problem, 3, sam_radius=radius)
    risk, gradient, start = _near_flattest(problem, 3)

    @jax.jit
    def run(rate):
        def step(_, weights):
            ahead = jax.tree.map(lambda w, g: w + radius * g, weights, gradient(weights))
            return jax.tree.map(lambda w, g: w - rate * g, weights, gradient(ahead))

        return risk(jax.lax.fori_loop(0, 20_000, step, start))

    assert float(run(0.97 * critical)) < 1e-20
    assert not float(run(1.03 * critical)) < 1e-6


@pytest.mark.parametrize(
    ("beta1", "beta2", "epsilon"), [(0.9, 0.999, 0.1), (0.9, 0.99, 0.01), (0.0, 0.99, 0.1)]
)
def test_adam_settles_below_its_rate_and_not_above(beta1, beta2, epsilon):
    """Without bias correction, whose first steps are no part of the statement."""
    problem = _problem(0.0)
    critical = theory.adam_critical_learning_rate(problem, 3, beta1=beta1, epsilon=epsilon)
    _, gradient, start = _near_flattest(problem, 3)
    zeros = jax.tree.map(jnp.zeros_like, start)

    @jax.jit
    def steepest(rate):
        def step(carry, _):
            weights, m, v = carry
            g = gradient(weights)
            m = jax.tree.map(lambda a, b: beta1 * a + (1 - beta1) * b, m, g)
            v = jax.tree.map(lambda a, b: beta2 * a + (1 - beta2) * b**2, v, g)
            weights = jax.tree.map(
                lambda w, a, b: w - rate * a / (jnp.sqrt(b) + epsilon), weights, m, v
            )
            return (weights, m, v), jnp.sqrt(sum(jnp.sum(part**2) for part in g))

        norms = jax.lax.scan(step, (start, zeros, zeros), None, length=80_000)[1]
        return jnp.max(norms[-20_000:])

    # Bursts are rare events of the order of 1e-3 and more; between them the gradient is tiny.
    assert float(steepest(0.97 * critical)) < 1e-10
    assert float(steepest(1.03 * critical)) > 1e-5


def test_adam_has_the_reference_rate():
    found = theory.adam_critical_learning_rate(_problem(0.0), 3, epsilon=0.1)
    assert found == pytest.approx(0.3094655, abs=6e-8)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"paths": 0}, "paths is 0"),
        ({"paths": [1.0, -1.0]}, "norm"),
        ({"paths": 2, "batch_size": 5}, "full batch"),
        ({"paths": [1.0, 2.0], "readout": [1.0]}, "readout=None"),
        ({"sam_radius": -1.0}, "sam_radius is -1"),
        ({"sam_radius": 0.1, "batch_size": 5}, "sam_radius"),
    ],
)
def test_what_is_not_known_is_refused(arguments, words):
    with pytest.raises(dl.InputError, match=words):
        theory.critical_learning_rate(_problem(0.0), 3, **arguments)
    with pytest.raises(dl.InputError, match="beta1"):
        theory.adam_critical_learning_rate(_problem(0.0), 3, beta1=1.0)
