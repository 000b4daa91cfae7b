"""Three kinds of starts, weak to strong signals: does the advised learning rate work from all?

`python benchmarks/starts.py` runs the whole experiment (about two minutes of one core) and ends
with the two numbers that count: how many of 288 starts which the advice did not simulate diverge
at the advised rate, and the smallest ratio of that rate to the largest that settles from 95 % of
100 starts. `--seed` draws all of them anew, those that the advice simulates too.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np

import deeplin as dl
from deeplin.networks.initialize import framework_layers
from deeplin.training import try_starts

KINDS = ("xavier", "orthogonal", "torch")
EXPLAINED = (0.8, 0.3, 0.1, 0.02)
DEPTHS = (2, 3, 5, 10)
INPUTS, SAMPLES, STEPS = 8, 200, 4000
FRESH, MANY = 6, 100
"""Starts that must not diverge, and those among which the largest rate that settles is found."""
HALVINGS = 10
"""Rates are tried down to 2^-10 of the critical one, in steps of √2."""


def problem_of(explained: float) -> dl.Problem:
    """White inputs that explain this part of the variance of the target."""
    rng = np.random.default_rng(int(1000 * explained))
    X = rng.normal(size=(SAMPLES, INPUTS))
    X -= X.mean(axis=0)
    signal, noise = X @ rng.normal(size=INPUTS), rng.normal(size=SAMPLES)
    y = np.sqrt(explained) * signal / signal.std() + np.sqrt(1 - explained) * noise / noise.std()
    return dl.Problem.from_data(X, y - y.mean())


def fresh(kind: str, depth: int, count: int, seed: int = 77) -> list[np.ndarray]:
    """Starts that no trial has drawn, stacked layer by layer."""
    rng = np.random.default_rng(seed)
    widths = (INPUTS,) * depth + (1,)
    drawn = [framework_layers(kind, rng, widths) for _ in range(count)]
    return [np.stack(layer) for layer in zip(*drawn, strict=True)]


def compare(
    problem: dl.Problem, depth: int, kind: str, new: int = FRESH, many: int = MANY, seed: int = 0
):
    """Advise a rate, run new starts at it, and find the largest that settles from 95 % of many."""
    trials = try_starts(problem, depth, kind, seed=seed)
    goal = {"gap": 0.01 * problem.zero_gap}
    starts = dl.Network(fresh(kind, depth, new, seed + 77))
    run = dl.gradient_descent(problem, starts, trials.learning_rate, STEPS, **goal)
    critical = dl.theory.critical_learning_rate(problem, depth)
    rates = critical * 2.0 ** -np.arange(0, HALVINGS, 0.5)
    others = fresh(kind, depth, many, seed + 78)
    repeated = [np.repeat(layer, len(rates), axis=0) for layer in others]
    tried = dl.gradient_descent(problem, dl.Network(repeated), np.tile(rates, many), STEPS, **goal)
    settled = (tried.status == "converged").reshape(many, -1).mean(axis=0)
    best = float(rates[np.argmax(settled >= 0.95)])
    return trials, int(np.sum(run.status == "diverged")), trials.learning_rate / best


def main(seed: int = 0) -> None:
    jax.config.update("jax_enable_x64", True)
    print("R²    depth  start       advised  of the largest  diverged  learned     steps")
    lost, shares = 0, []
    for explained in EXPLAINED:
        problem = problem_of(explained)
        for depth in DEPTHS:
            for kind in KINDS:
                trials, diverged, share = compare(problem, depth, kind, seed=seed)
                lost, shares = lost + diverged, [*shares, share]
                print(
                    f"{explained:<6}{depth:<7}{kind:<12}{trials.learning_rate:<9.3g}"
                    f"{share:<16.2f}{diverged} of {FRESH}    "
                    f"{trials.learned} of {trials.starts}  {trials.steps}",
                    flush=True,
                )
    runs = len(shares) * FRESH
    print(f"{lost} of {runs} diverge at the advised rate (at most 3)")
    print(f"it is at least {min(shares):.2f} of the largest that settles (at least 0.33)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args().seed)
