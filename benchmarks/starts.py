"""Does the advised learning rate work from starts that the advice has not seen, with biases?

`python benchmarks/starts.py` takes twelve tables, scikit-learn's six and six seeded ones, advises a
rate for each from PyTorch's default start at depth 3, and trains 1024 new starts (fewer where that
takes minutes) at this rate in a loop of its own: plain JAX, weights and biases as `torch.nn.Linear`
draws them, gradients by `jax.grad`. It prints how many diverge, at the rate and at 1.5 times the
rate, and within how many steps 95 % learn, beside the best rate of a grid. Names of tables restrict
it to these; `--initialization`, `--depth` and `--seed` change the rest.
"""

from __future__ import annotations

import argparse
import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import deeplin as dl
from deeplin.networks.initialize import default_width, framework_layers
from deeplin.training import advise_start

STEPS = 2000
FRESH = 1024
PRODUCTS = 2e8
"""Products of all starts in one step, which limits the starts on large tables."""
GRID = 2.0 ** -np.arange(-1, 4.0, 0.5)
"""Rates that are tried, relative to the critical rate or to the advised one if there is none."""
LEARNED, SEPARABLE_LEARNED = 0.01, 0.1


class Table(NamedTuple):
    """Standardized inputs, and standardized targets or labels."""

    inputs: np.ndarray
    targets: np.ndarray
    classes: bool


def problem_of(explained: float) -> dl.Problem:
    """White inputs that explain this part of the variance of the target."""
    inputs, targets, _ = _white(explained)
    return dl.Problem.from_data(inputs, targets[:, 0])


def _white(explained: float, inputs: int = 8, samples: int = 200) -> Table:
    rng = np.random.default_rng(int(1000 * explained))
    X = rng.normal(size=(samples, inputs))
    X -= X.mean(axis=0)
    signal, noise = X @ rng.normal(size=inputs), rng.normal(size=samples)
    y = np.sqrt(explained) * signal / signal.std() + np.sqrt(1 - explained) * noise / noise.std()
    return Table(X, (y - y.mean())[:, None], False)


def tables() -> dict[str, Table]:
    """The twelve tables."""
    from sklearn import datasets

    found = {}
    for name in ("diabetes", "linnerud", "iris", "wine", "breast_cancer", "digits"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        found[name] = (X, y, name not in ("diabetes", "linnerud"))
    rng = np.random.default_rng(4)
    chain = [rng.normal(size=300)]
    for _ in range(5):
        chain.append(0.9 * chain[-1] + 0.4 * rng.normal(size=300))
    X = np.stack(chain, axis=1)
    found["correlated"] = (X, X @ [1, -1, 1, 0, 2, 0] + rng.normal(size=300), False)
    X = np.exp(2 * rng.normal(size=(150, 4)))
    found["heavy tails"] = (X, X.sum(axis=1) + 5 * rng.normal(size=150), False)
    X = rng.normal(size=(20, 30))
    found["few rows"] = (X, X[:, 0] + 0.1 * rng.normal(size=20), False)
    X = rng.normal(size=(100, 5))
    found["three targets"] = (X, X @ rng.normal(size=(5, 3)) + rng.normal(size=(100, 3)), False)
    scaled = {name: _standardized(*table) for name, table in found.items()}
    return scaled | {"white, 30 %": _white(0.3), "white, 2 %": _white(0.02)}


def _standardized(X: np.ndarray, y: np.ndarray, classes: bool) -> Table:
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    if classes:
        return Table(X, y, True)
    Y = y.reshape(len(y), -1)
    return Table(X, (Y - Y.mean(axis=0)) / Y.std(axis=0), False)


def problem_with_intercept(table: Table) -> dl.Problem:
    """The problem as `deeplin diagnose` reads it: classes have a constant input."""
    if not table.classes:
        return dl.Problem.from_data(table.inputs, table.targets)
    rows = np.column_stack([table.inputs, np.ones(len(table.inputs))])
    several = len(np.unique(table.targets)) > 2
    return dl.Problem.from_data(rows, table.targets, loss="softmax" if several else "logistic")


def fresh(kind: str, widths: tuple[int, ...], count: int, seed: int, *, biases: bool) -> list:
    """New starts: a list of (weights, biases) for each layer, stacked."""
    rng = np.random.default_rng([seed, 77])
    drawn = [framework_layers(kind, rng, widths) for _ in range(count)]
    weights = [np.stack(layer) for layer in zip(*drawn, strict=True)]
    ends = [1 / math.sqrt(w.shape[2]) * biases for w in weights]
    return [(w, rng.uniform(-b, b, size=w.shape[:2])) for w, b in zip(weights, ends, strict=True)]


def risk(layers: list, rows: tuple, targets: jax.Array, classes: bool) -> jax.Array:
    """The mean loss of one network; rows are inputs and the values of a constant 1 beside them."""
    hidden, ones = rows
    for weight, bias in layers:
        hidden = hidden @ weight.T + ones[:, None] * bias
    if not classes:
        return jnp.sum((targets - hidden) ** 2)
    if hidden.shape[1] == 1:
        return jnp.mean(jax.nn.softplus(-targets[:, 0] * hidden[:, 0]))
    return jnp.mean(jax.nn.logsumexp(hidden, axis=1) - jnp.sum(targets * hidden, axis=1))


@partial(jax.jit, static_argnames=("classes", "biases", "steps"))
def run(layers, rates, rows, targets, goal, classes: bool, biases: bool, steps: int):
    """Train every start at its rate; the last risk, and the step at which it reached the goal."""
    value = jax.vmap(partial(risk, rows=rows, targets=targets, classes=classes))
    slope = jax.vmap(jax.grad(partial(risk, rows=rows, targets=targets, classes=classes)))

    def step(k, state):
        layers, first = state
        first = jnp.where((first == steps) & (value(layers) <= goal), k, first)
        moved = [
            (w - rates[:, None, None] * dw, b - rates[:, None] * db if biases else b)
            for (w, b), (dw, db) in zip(layers, slope(layers), strict=True)
        ]
        return moved, first

    end, first = jax.lax.fori_loop(0, steps, step, (layers, jnp.full(len(rates), steps)))
    return value(end), first


def compare(
    table: Table,
    depth: int = 3,
    kind: str = "torch",
    *,
    biases: bool = True,
    count: int = FRESH,
    seed: int = 0,
    grid: bool = True,
) -> dict[str, float]:
    """Advise a rate, and train new starts at it, at 1.5 times it, and at the rates of a grid."""
    problem = problem_with_intercept(table)
    rate = advise_start(problem, depth, kind, biases=biases, seed=seed).learning_rate
    d = table.inputs.shape[1]
    widths = (d, *[default_width(problem)] * (depth - 1), problem.outputs)
    count = int(min(count, max(16, PRODUCTS // (len(table.inputs) * d * problem.outputs))))
    part = LEARNED if problem.has_minimizer else SEPARABLE_LEARNED
    goal = problem.minimal_risk + part * problem.zero_gap
    layers = fresh(kind, widths, count, seed, biases=biases)
    rows, targets = table.inputs, problem.target_columns
    ones = np.ones(len(rows))
    if not table.classes:  # a triangle of as many rows as columns has the same sum of squares
        both = np.column_stack([rows, ones, targets]) / math.sqrt(len(rows))
        square = np.linalg.qr(both, mode="r")
        rows, ones, targets = square[:, :d], square[:, d], square[:, d + 1 :]

    def at(rate: float) -> tuple[float, float]:
        """The share that diverges, and the steps in which 95 % learn."""
        rates = jnp.full(count, rate)
        found = run(layers, rates, (rows, ones), targets, goal, table.classes, biases, STEPS)
        last, first = found
        lost = ~np.isfinite(np.asarray(last)) | (np.asarray(last) > 1e6 * problem.zero_risk)
        return float(lost.mean()), float(np.quantile(np.asarray(first), 0.95))

    lost, needed = at(rate)
    faster, _ = at(1.5 * rate)
    best = min(at(rate * share)[1] for share in GRID) if grid else math.nan
    return {
        "rate": rate,
        "starts": count,
        "diverged": lost,
        "diverged_at_1.5": faster,
        "steps": needed,
        "best_steps": best,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--initialization", default="torch")
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-bias", action="store_true")
    parser.add_argument("--no-grid", action="store_true")
    given = parser.parse_args()
    print("table          rate      starts  diverged  at 1.5 x  95 % learn in  at best")
    for name, table in tables().items():
        if given.names and name not in given.names:
            continue
        found = compare(
            table,
            given.depth,
            given.initialization,
            biases=not given.no_bias,
            seed=given.seed,
            grid=not given.no_grid,
        )
        print(
            f"{name:<15}{found['rate']:<10.3g}{found['starts']:<8}{found['diverged']:<10.2%}"
            f"{found['diverged_at_1.5']:<10.2%}{found['steps']:<15.0f}{found['best_steps']:.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
