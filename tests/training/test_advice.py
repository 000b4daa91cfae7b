"""The advised learning rate trains and none above the critical one settles, for every optimizer.

The oracle is a plain NumPy loop on the rows of the data, for 36 problems side by side: six data
sets, three depths, two starts. It shares nothing with the library.
"""

import itertools
from itertools import pairwise

import numpy as np
import pytest
from dense_network import descend, gradients, product

import deeplin as dl
from deeplin.theory.balanced import balanced_network
from deeplin.training import TrainingSpec, advise

SAMPLES, INPUTS, WIDTH = 12, 3, 4
DEPTHS = (2, 3, 4)


def data_set(seed, noise):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(SAMPLES, INPUTS)) * rng.uniform(0.5, 1.5, size=INPUTS)
    y = X @ rng.normal(size=INPUTS)
    y = y / np.linalg.norm(np.linalg.lstsq(X, y, rcond=None)[0])
    return X, y + noise * rng.normal(size=SAMPLES)


def start(depth, seed, size):
    """A small Gaussian start, near the size of the solution."""
    rng = np.random.default_rng([depth, seed])
    widths = [INPUTS, *[WIDTH] * (depth - 1), 1]
    return [size * rng.normal(size=(m, n)) for n, m in pairwise(widths)]


def plain_loop(X, y, weights, rate, optimizer, steps, seed=0):
    """Train as `optimizer` says; the weights at the end."""
    rng = np.random.default_rng(seed)
    batch = optimizer.batch_size or len(y)
    factor = (len(y) if optimizer.reduction == "sum" else 1) * (0.5 if optimizer.half else 1)
    velocity = [np.zeros_like(weight) for weight in weights]
    beta = optimizer.momentum
    for _ in range(steps):
        rows = rng.choice(len(y), batch, replace=False) if batch < len(y) else slice(None)
        at = weights
        if optimizer.nesterov:
            at = [w + beta * v for w, v in zip(weights, velocity, strict=True)]
        slopes = gradients(X[rows], y[rows, None], at, optimizer.weight_decay / factor)
        velocity = [beta * v - rate * factor * g for v, g in zip(velocity, slopes, strict=True)]
        weights = [w + v for w, v in zip(weights, velocity, strict=True)]
        if not np.isfinite(weights[0]).all() or np.abs(weights[0]).max() > 1e6:
            return None
    return weights


CASES = {
    "descent": TrainingSpec(),
    "heavy ball": TrainingSpec(momentum=0.9),
    "Nesterov": TrainingSpec(momentum=0.5, nesterov=True),
    "sum of halves": TrainingSpec(reduction="sum", half=True),
    "weight decay": TrainingSpec(weight_decay=0.02),
    "batches": TrainingSpec(batch_size=4),
}


def objective(X, y, weights, decay):
    """Mean of squares plus decay·Σ‖W‖²."""
    fit = np.mean((X @ product(weights)[0] - y) ** 2)
    return fit + decay * sum(np.sum(weight**2) for weight in weights)


def least_objective(X, y, optimizer, depth):
    """Its minimum: least squares, or with weight decay the value that X-9 gives."""
    if optimizer.weight_decay:
        problem = dl.Problem.from_data(X, y)
        return dl.theory.decayed_minimum(problem, depth, optimizer.weight_decay).objective
    return np.mean((X @ np.linalg.lstsq(X, y, rcond=None)[0] - y) ** 2)


def settles(X, y, weights, rate, optimizer, least, most):
    """Whether training gets to the minimum and is there at the end of a piece of 200 steps."""
    for piece in range(most // 200):
        weights = plain_loop(X, y, weights, rate, optimizer, 200, seed=piece)
        if weights is None:
            return False
        if objective(X, y, weights, optimizer.weight_decay) - least < 1e-6:
            return True
    return False


@pytest.mark.parametrize("name", CASES)
def test_every_run_trains_at_the_advised_rate_and_none_settles_above_the_critical_one(name):
    optimizer = CASES[name]
    noise = 0.0 if optimizer.batch_size else 0.1  # on batches only interpolated data settle
    trained = kept = 0
    for seed in range(6):
        X, y = data_set(seed, noise)
        problem = dl.Problem.from_data(X, y)
        for depth in DEPTHS:
            advice = advise(problem, depth, optimizer)
            least = least_objective(X, y, optimizer, depth)
            too_fast = 1.1 * advice.critical_learning_rate
            for draw in range(2):
                begin = start(depth, draw, 0.4)
                trained += settles(X, y, begin, advice.learning_rate, optimizer, least, 4000)
                kept += settles(X, y, begin, too_fast, optimizer, least, 600)
    assert trained == 36
    if optimizer.batch_size:
        # The threshold on batches is that of the mean square: a single run may settle above it
        # because the rare excursions that carry the mean do not come in time.
        assert not advise(problem, 2, optimizer).certain
    else:
        assert kept == 0


def test_loss_conventions_only_change_the_unit():
    X, y = data_set(0, 0.1)
    problem = dl.Problem.from_data(X, y)
    mean, total, half = (
        advise(problem, 3, optimizer)
        for optimizer in (TrainingSpec(), TrainingSpec(reduction="sum"), TrainingSpec(half=True))
    )
    assert total.learning_rate == pytest.approx(mean.learning_rate / SAMPLES, rel=1e-14)
    assert half.critical_learning_rate == pytest.approx(2 * mean.critical_learning_rate, rel=1e-14)
    batches = (advise(problem, 3, TrainingSpec(batch_size=4, reduction=r)) for r in ("mean", "sum"))
    mean, total = (advice.learning_rate for advice in batches)
    assert total == pytest.approx(mean / 4, rel=1e-14)  # the sum is over the batch


def test_what_has_no_exact_answer_says_so():
    X, y = data_set(0, 0.1)
    problem = dl.Problem.from_data(X, y)
    noisy = advise(problem, 3, TrainingSpec(batch_size=4))
    assert not noisy.settles
    assert "does not settle" in noisy.remarks[0]
    strong = advise(problem, 3, TrainingSpec(weight_decay=10.0))
    assert "zero network" in strong.remarks[0]
    both = advise(problem, 3, TrainingSpec(batch_size=4, momentum=0.9, weight_decay=0.01))
    assert not both.certain
    assert not both.settles
    assert "no critical rate is known" in both.remarks[1]
    whole = advise(problem, 3, TrainingSpec(momentum=0.9, weight_decay=0.01))
    assert np.isnan(both.critical_learning_rate)
    assert both.learning_rate < whole.learning_rate
    assert "all 12 samples" in advise(problem, 3, TrainingSpec(batch_size=50)).remarks[0]
    with pytest.raises(dl.InputError, match="'mean' or 'sum'"):
        TrainingSpec(reduction="max")


@pytest.mark.parametrize("spread", [1.0, 4.0], ids=["two outputs", "layer-wise, two outputs"])
def test_several_outputs_and_layerwise_rates_train_as_advised(spread):
    """The advised rate is that of all layers, or the geometric mean of theirs (X-7, X-11)."""

    def settles(X, Y, weights, rates, least, steps):
        for _ in range(steps // 200):
            with np.errstate(over="ignore", invalid="ignore"):
                weights = descend(X, Y, weights, rates, 200)
                risk = np.sum((X @ product(weights).T - Y) ** 2) / len(X)
            if not risk - least > 1e-6 or not np.isfinite(risk):
                return bool(risk - least < 1e-6)
        return False

    trained = kept = 0
    for seed in range(6):
        X, y = data_set(seed, 0.1)
        Y = np.stack([y, data_set(seed + 10, 0.1)[1]], axis=1)
        problem = dl.Problem.from_data(X, Y)
        for depth in DEPTHS:
            advice = advise(problem, depth)
            shape = spread ** np.linspace(-0.5, 0.5, depth)  # of geometric mean one
            for draw in range(2):
                begin = start(depth, draw, 0.4)
                begin[-1] = np.random.default_rng(draw).normal(size=(2, WIDTH)) * 0.4
                rest = problem.minimal_risk
                trained += settles(X, Y, begin, advice.learning_rate * shape, rest, 4000)
                too_fast = 1.1 * advice.critical_learning_rate
                kept += settles(X, Y, begin, too_fast * shape, rest, 600)
    assert (trained, kept) == (36, 0)


def test_batches_with_momentum_have_the_rate_of_the_enumerated_second_moment():
    """Not that of the full batch, which is several times larger."""
    X, y = data_set(0, 0.0)
    problem, beta, batch = dl.Problem.from_data(X, y), 0.9, 2
    advice = advise(problem, 2, TrainingSpec(momentum=beta, batch_size=batch))
    end = balanced_network(problem, 2)
    first, last = (np.asarray(weight) for weight in end.weights)
    kernel = float(np.sum(last**2)) * np.eye(problem.dimension) + first.T @ first
    eye = np.eye(problem.dimension)

    def radius(rate):
        total = 0.0
        pairs = list(itertools.combinations(range(len(X)), batch))
        for rows in pairs:
            push = 2 * rate * kernel @ X[list(rows)].T @ X[list(rows)] / batch
            step = np.block([[eye - push, beta * eye], [-push, beta * eye]])
            total = total + np.kron(step, step) / len(pairs)
        return np.abs(np.linalg.eigvals(total)).max()

    critical = advice.critical_learning_rate
    assert radius(critical) == pytest.approx(1, abs=1e-9)
    assert radius(1.01 * critical) > 1 > radius(0.99 * critical)
    assert critical < 0.5 * dl.theory.critical_learning_rate(problem, 2, momentum=beta)
    assert advice.learning_rate < critical
    nesterov = advise(problem, 2, TrainingSpec(momentum=beta, nesterov=True, batch_size=batch))
    assert np.isnan(nesterov.critical_learning_rate)
    assert "no critical rate is known" in nesterov.remarks[-1]
