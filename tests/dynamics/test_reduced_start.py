"""The initial state drawn without the network has the distribution of the network's (X-5)."""

import dense_network
import jax
import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest

import deeplin as dl
from deeplin.dynamics import simulate_wide
from deeplin.dynamics.minibatches import key_words
from deeplin.dynamics.wide_run import ReducedStart

DRAWS = 400
SURE = 1e-4
"""A correct sampler fails a Kolmogorov-Smirnov test at this level once in ten thousand times."""


@pytest.fixture
def data():
    rng = np.random.default_rng(5)
    return dl.Problem.from_data(rng.normal(size=(4, 9)), rng.normal(size=(4, 2)))


def _explicit(problem, width, alpha, beta, rng):
    """W_1(0) and W_L(0) in full."""
    first = alpha * rng.normal(size=(width, problem.dimension))
    return first, beta * rng.normal(size=(problem.outputs, width))


def _drawn(problem, width, alpha, beta, draws):
    keys = jax.random.split(jax.random.key(11), draws)
    return [
        ReducedStart.draw(problem, words, width=width, depth=3, alpha=alpha, beta=beta)
        for words in key_words(keys)
    ]


@pytest.mark.parametrize("width", [6, 7, 20])
def test_singular_values_of_the_drawn_state_are_distributed_as_those_of_the_network(data, width):
    rng = np.random.default_rng(1)
    Q = data.spectrum.vectors
    ours, theirs = [], []
    for start in _drawn(data, width, 0.7, 1.3, DRAWS):
        first, last = start.layers[0], start.layers[-1]
        ours.append(_statistics(first, last))
    for _ in range(DRAWS):
        first, last = _explicit(data, width, 0.7, 1.3, rng)
        theirs.append(_statistics(first @ Q, last))
    for name in ours[0]:
        outcome = ks_2samp([row[name] for row in ours], [row[name] for row in theirs])
        assert outcome.pvalue > SURE, name


def _statistics(first, last):
    """Quantities that do not depend on the basis of the hidden space."""
    a, b = np.linalg.svd(first)[1], np.linalg.svd(last)[1]
    joint = np.linalg.svd(np.concatenate([first, last.T], axis=1))[1]
    return {
        "σ_max(W_1Q)": a[0],
        "σ_min(W_1Q)": a[-1],
        "σ_max(W_L)": b[0],
        "σ_min(W_L)": b[-1],
        "‖W_L W_1 Q‖": np.linalg.norm(last @ first),
        "σ_min of both": joint[-1],
    }


def test_entries_below_the_reduced_width_are_plain_gaussian(data):
    starts = _drawn(data, 3, 0.7, 1.3, DRAWS)
    assert all(start.width == 3 for start in starts)
    entries = np.concatenate([start.layers[0].ravel() / 0.7 for start in starts])
    assert kstest(entries, "norm").pvalue > SURE


def test_the_outside_part_is_gaussian_beside_the_data_and_independent_of_the_inside(data):
    starts = _drawn(data, 50, 0.5, 1.0, DRAWS)
    null = np.linalg.svd(data.inputs)[2][data.rank :]
    parts = [start.outside() for start in starts]
    assert max(np.abs(part @ data.inputs.T).max() for part in parts) < 1e-12
    entries = np.concatenate([(part @ null.T).ravel() / 0.5 for part in parts])
    assert kstest(entries, "norm").pvalue > SURE
    inside = np.array([start.layers[0][0, 1] for start in starts])
    beside = np.array([(part @ null.T)[0, 0] for part in parts])
    assert abs(np.corrcoef(inside, beside)[0, 1]) < 5 / np.sqrt(DRAWS)


def test_the_final_risk_is_distributed_as_that_of_full_networks(data):
    runs, width, rate, steps = 150, 20, 0.02, 300
    rng = np.random.default_rng(3)
    population = dl.problems.Population(rng.normal(size=(2, 9)), rng.uniform(0.1, 1, 9))
    keys = jax.random.split(jax.random.key(4), runs)
    wide = simulate_wide(
        data,
        width,
        3,
        0.3,
        0.4,
        keys,
        learning_rate=rate,
        max_steps=steps,
        loss_target=0,
        population=population,
    )
    full = []
    for _ in range(runs):
        first, last = _explicit(data, width, 0.3, 0.4, rng)
        weights = dense_network.descend(
            data.inputs, data.targets, [first, np.eye(width), last], rate / 2, steps
        )
        full.append(population.risk(dense_network.product(weights)))
    assert ks_2samp(wide.risk, full).pvalue > SURE


def test_widths_beyond_memory_have_the_moments_they_should(data):
    width = 10**9
    starts = _drawn(data, width, 1.0, 1.0, 200)
    squares = np.array([np.sum(start.layers[0] ** 2) for start in starts]) / width
    # ‖W_1Q‖² is chi-squared with m·rank degrees of freedom.
    spread = np.sqrt(2 * data.rank / width)
    assert abs(squares.mean() - data.rank) < 5 * spread / np.sqrt(200)
    assert squares.std() == pytest.approx(spread, rel=0.3)


def test_each_draw_depends_on_its_own_key_alone(data):
    keys = jax.random.split(jax.random.key(0), 3)
    batch = [
        ReducedStart.draw(data, w, width=20, depth=3, alpha=1, beta=1) for w in key_words(keys)
    ]
    alone = ReducedStart.draw(data, key_words(keys[1]), width=20, depth=3, alpha=1, beta=1)
    assert np.array_equal(batch[1].layers[0], alone.layers[0])
    assert np.array_equal(batch[1].outside(), alone.outside())
    assert not np.array_equal(batch[0].outside(), alone.outside())


def test_old_style_keys_are_keys_too(data):
    old, new = jax.random.PRNGKey(3), jax.random.key(3)
    assert np.array_equal(key_words(old), key_words(new))


@pytest.mark.parametrize("key", [3, None, "seed", np.zeros((2, 2, 2), np.uint32), 1.5])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(dl.InputError, match=r"jax\.random"):
        key_words(key)


def test_the_quick_curvature_is_the_gauss_newton_one(data):
    start = _drawn(data, 20, 0.7, 1.3, 1)[0]
    root = np.diag(np.sqrt(data.spectrum.eigenvalues))
    first, last = start.layers[0], start.layers[-1]
    outer, inner = last @ last.T, first.T @ first
    blocks = (outer, np.eye(4)), (outer, inner), (np.eye(2), inner)
    matrix = sum(np.kron(a, root @ b @ root) for a, b in blocks)
    exact = 2 * np.linalg.eigvalsh(matrix)[-1]
    assert start.curvature() <= exact * (1 + 1e-12)
    assert start.curvature() == pytest.approx(exact, rel=1e-3)
