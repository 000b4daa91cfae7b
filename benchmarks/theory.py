"""What certificates cost: 200 runs against one; minimal sharpness with many inputs and outputs."""

from __future__ import annotations

import statistics
import time
from functools import partial

import jax
import numpy as np

import deeplin as dl
from deeplin.certificates.certificate import certify
from deeplin.theory import minimal_sharpness

RUNS = 200
REPETITIONS = 7


def _descent(start: str, runs: int):
    """Runs of the FM setting (d = 5, L = 10) with 51 records each."""
    problem = dl.problems.synthetic.flat_minima(seed=0).problem
    keys = jax.random.split(jax.random.key(0), runs)
    if start == "residual":
        readout = dl.initialize.unit_readout(jax.random.key(1), 5)
        nets = dl.initialize.residual(keys, 5, 10, 0.25, readout)
    else:
        nets = dl.initialize.gaussian(keys, (5,) * 10 + (1,), 0.35)
    run = dl.gradient_descent(problem, nets, 0.02, 2050, record_every=41, record=("gap",))
    return problem, run


def _seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _many_against_one(start: str) -> dict:
    """Certify 200 runs and one, in turns; both are compiled before the clock starts."""
    many, one = _descent(start, RUNS), _descent(start, 1)
    pairs = []
    for _ in range(REPETITIONS + 1):
        pairs.append((_seconds(lambda: certify(*many)), _seconds(lambda: certify(*one))))
    pairs = pairs[1:]
    return {
        "ratio": statistics.median(a / b for a, b in pairs),
        "target": 5.0,
        "at_most": True,
        "details": {
            "runs": RUNS,
            "seconds_many": statistics.median(a for a, _ in pairs),
            "seconds_one": statistics.median(b for _, b in pairs),
        },
    }


def _inputs_against_inputs() -> dict:
    """Minimal sharpness with 30 000 inputs against 300, same number of samples."""
    rng = np.random.default_rng(0)
    problems = [
        dl.Problem.from_data(rng.normal(size=(20, d)), rng.normal(size=20)) for d in (30_000, 300)
    ]
    return _minimal_sharpness_ratio(problems, target=3.0)


def _outputs_against_one() -> dict:
    """Minimal sharpness with ten outputs against one, a hundred inputs (X-7)."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 100)) * np.geomspace(1, 0.1, 100)
    problems = []
    for q in (10, 1):
        Y = X @ rng.normal(size=(100, q)) + rng.normal(size=(300, q))
        problems.append(dl.Problem.from_data(X, Y))
    return _minimal_sharpness_ratio(problems, target=10.0)


def _minimal_sharpness_ratio(problems, target: float) -> dict:
    """Seconds on the first of two problems over those on the second, in turns.

    The decomposition of the data is done once, before the clock starts.
    """
    calls = [partial(minimal_sharpness, problem, 10) for problem in problems]
    for call in calls:
        call()
    pairs = [[_seconds(call) for call in calls] for _ in range(5 * REPETITIONS)]
    return {
        "ratio": statistics.median(a / b for a, b in pairs),
        "target": target,
        "at_most": True,
        "details": {"seconds": [statistics.median(column) for column in zip(*pairs, strict=True)]},
    }


def _logistic_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 100))
    signal = X @ rng.normal(size=100) / 5
    return X, signal + rng.logistic(size=len(X)) > 0


def _logistic_against_squared() -> dict:
    """Minimal sharpness of logistic loss against squared loss, once the optimum is known (X-14)."""
    X, y = _logistic_data()

    def seconds(targets, loss: str) -> float:
        problem = dl.Problem.from_data(X, targets, loss)
        _ = problem.optimum
        return _seconds(partial(minimal_sharpness, problem, 10))

    pairs = [(seconds(y, "logistic"), seconds(y.astype(float), "squared")) for _ in range(3)]
    return {
        "ratio": statistics.median(a / b for a, b in pairs),
        "target": 10.0,
        "at_most": True,
        "details": {"seconds": [statistics.median(column) for column in zip(*pairs, strict=True)]},
    }


def _optimum_against_scikit_learn() -> dict:
    """The optimum of logistic loss against LogisticRegression without penalty.

    Its tolerance leaves a gradient of 1e-8 at most; ours ends at rounding.
    """
    from sklearn.linear_model import LogisticRegression

    X, y = _logistic_data()
    other = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-8, max_iter=1000)
    pairs = [
        (
            _seconds(lambda: dl.Problem.from_data(X, y, "logistic").optimum),
            _seconds(lambda: other.fit(X, y)),
        )
        for _ in range(3)
    ]
    return {
        "ratio": statistics.median(a / b for a, b in pairs),
        "target": 3.0,
        "at_most": True,
        "details": {"seconds": [statistics.median(column) for column in zip(*pairs, strict=True)]},
    }


def measure() -> dict[str, dict]:
    """Ratios measured in one run; every target is an upper limit."""
    return {
        "certify_200_runs_gaussian": _many_against_one("gaussian"),
        "certify_200_runs_residual": _many_against_one("residual"),
        "minimal_sharpness_many_inputs": _inputs_against_inputs(),
        "minimal_sharpness_ten_outputs": _outputs_against_one(),
        "minimal_sharpness_logistic": _logistic_against_squared(),
        "optimum_logistic": _optimum_against_scikit_learn(),
    }
