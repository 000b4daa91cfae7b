"""Compare predicted and measured critical learning rates on common data sets.

`python examples/own_data_table.py` writes the table of docs/own-data.md (takes some minutes).
"""

import argparse
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes, load_digits
from sklearn.preprocessing import StandardScaler

import deeplin as dl
from deeplin.hessian import sharpness
from deeplin.training.measured_rate import SETTLED

PAGE = Path(__file__).parent.parent / "docs" / "own-data.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
DEPTHS, WIDTH, SEEDS, STEPS = (2, 5, 10), 8, 8, 40_000


def houses(samples: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Eight skewed, correlated inputs and a price, in the manner of the California census."""
    rng = np.random.default_rng(0)
    income = rng.lognormal(1.2, 0.45, samples)
    age = rng.uniform(1, 52, samples)
    rooms = 3 + 0.6 * income + rng.normal(0, 0.8, samples)
    bedrooms = 0.2 * rooms + rng.normal(0, 0.1, samples)
    population = rng.lognormal(7, 0.7, samples)
    occupation = rng.lognormal(1.05, 0.25, samples)
    latitude = 35.5 + rng.choice([-1.5, 2.0], samples) + rng.normal(0, 0.7, samples)
    longitude = -119.5 - 0.85 * (latitude - 35.5) + rng.normal(0, 0.6, samples)
    X = [income, age, rooms, bedrooms, population, occupation, latitude, longitude]
    price = 0.4 * income + 0.01 * age - 0.4 * (latitude - 35.5) - 0.4 * (longitude + 119.5)
    return np.stack(X, axis=1), price + rng.normal(0, 0.6, samples)


def problems() -> dict[str, dl.Problem]:
    """Inputs standardized, targets centered; once also in raw units, to see what that costs."""
    tables = {
        "diabetes": load_diabetes(return_X_y=True),
        "houses (synthetic)": houses(),
        "digits": load_digits(return_X_y=True),
    }
    X, y = tables["houses (synthetic)"]
    raw = dl.Problem.from_data(X - X.mean(axis=0), y - y.mean())
    standardized = {name: prepared(X, y) for name, (X, y) in tables.items()}
    return standardized | {"houses, raw units": raw}


def prepared(X: np.ndarray, y: np.ndarray) -> dl.Problem:
    """Inputs of mean zero and variance one (constant ones left out), target of mean zero."""
    X = X[:, X.std(axis=0) > 0]
    return dl.Problem.from_data(StandardScaler().fit_transform(X), y - y.mean())


def gaussian_starts(problem: dl.Problem, depth: int):
    """Gaussian weights near the size of the solution: keys to a batch of networks."""
    widths = (problem.dimension, *[WIDTH] * (depth - 1), 1)
    scale = 0.5 * problem.optimum_norm ** (1 / depth) / np.sqrt(WIDTH)
    return lambda keys: dl.initialize.gaussian(keys, widths, scale)


def row(name: str, problem: dl.Problem, depth: int, seeds: int = SEEDS, steps: int = STEPS) -> dict:
    """One line of the table: the prediction, the bisection, and descent just below and above."""
    starts = gaussian_starts(problem, depth)
    measured = dl.training.empirical_critical_rate(
        problem, depth, initialization=starts, seeds=seeds, steps=steps, resolution=0.02
    )
    networks = starts(jax.random.split(jax.random.key(0), seeds))
    goal = SETTLED * problem.zero_gap
    below, above = (
        dl.gradient_descent(problem, networks, factor * measured.predicted, steps).evidence["gap"]
        <= goal
        for factor in (0.9, 1.1)
    )
    found = np.isfinite(measured.rates).any()
    low, high = measured.interval if found else (np.nan, np.nan)
    return {
        "data": name,
        "n": problem.samples,
        "d": problem.dimension,
        "Λ/λ": f"{problem.condition_number:.3g}",
        "depth": depth,
        "predicted 2/S_min": f"{measured.predicted:.4g}",
        "measured": f"{measured.value:.4g} [{low:.4g}, {high:.4g}]" if found else "none",
        "measured / predicted": f"{measured.ratio:.3f}" if found else "–",
        "settled at 0.9": f"{np.sum(below)} of {seeds}",
        "settled at 1.1": f"{np.sum(above)} of {seeds}",
        "start, S·η/2": starting_ratio(problem, networks, 0.9 * measured.predicted, below),
    }


def starting_ratio(
    problem: dl.Problem, networks: dl.Network, rate: float, settled: np.ndarray
) -> str:
    """How far beyond the edge of stability the starts are; those that did not settle apart."""
    ratio = np.asarray(sharpness(problem, networks).value) * rate / 2
    parts = [f"up to {ratio[settled].max():.2g}"] if settled.any() else []
    if not settled.all():
        parts.append(f"not settled: from {ratio[~settled].min():.2g}")
    return "; ".join(parts)


def markdown(rows: list[dict]) -> str:
    """The rows as a Markdown table."""
    table = pd.DataFrame(rows).astype(str)
    lines = [table.columns, ["---"] * len(table.columns), *table.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS)
    depths = parser.parse_args().depths
    rows = []
    for name, problem in problems().items():
        for depth in depths:
            rows.append(row(name, problem, depth))
            print(rows[-1], flush=True)
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{markdown(rows)}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
