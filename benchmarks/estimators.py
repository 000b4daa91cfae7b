"""What the scikit-learn estimators promise: a start that generalizes, and cheap workers.

`python benchmarks/estimators.py` prints the R² on new rows of tables with fewer rows than inputs,
beside the solution of minimal norm, and how long a grid search takes with two workers and without.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV

from deeplin.sklearn import DeepLinearRegressor

ROWS, INPUTS, NEW = 40, 100, 1000
TABLES = range(5)


def table(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Few rows of many inputs of decreasing size, noise, and new rows of the same kind."""
    rng = np.random.default_rng(seed)
    sizes = 1 / np.sqrt(1 + np.arange(INPUTS))
    truth = rng.normal(size=INPUTS)
    X, new = (rng.normal(size=(n, INPUTS)) * sizes for n in (ROWS, NEW))
    y, later = (rows @ truth + rng.normal(size=len(rows)) for rows in (X, new))
    return X, y, new, later


def few_rows() -> None:
    print("table  start     R² on new rows  minimal norm")
    for seed in TABLES:
        X, y, new, later = table(seed)
        least = LinearRegression().fit(X, y).score(new, later)
        for start in ("auto", "gaussian", "torch"):
            model = DeepLinearRegressor(2, initialization=start, random_state=0).fit(X, y)
            print(f"{seed:<7}{start:<10}{model.score(new, later):<16.3f}{least:.3f}")


def searches() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 10))
    y = X @ rng.normal(size=10) + rng.normal(size=200)
    grid = {"depth": [2, 3], "weight_decay": [0.0, 1e-3]}
    print("workers  solver       seconds, first search and second")
    for solver in ("descent", "closed_form"):
        for workers in (1, 2):
            times = []
            for _ in range(2):
                begin = time.perf_counter()
                model = DeepLinearRegressor(solver=solver, random_state=0)
                GridSearchCV(model, grid, cv=3, n_jobs=workers).fit(X, y)
                times.append(time.perf_counter() - begin)
            print(f"{workers:<9}{solver:<13}{times[0]:.2f}  {times[1]:.2f}")


if __name__ == "__main__":
    few_rows()
    searches()
