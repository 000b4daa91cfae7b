"""A visitor's table that is too large for the page: its moments, which is all training needs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

import deeplin as dl

MOST_INPUTS = 50
LONGEST_LINE = 100_000


def moments_of(path: Path, name: str) -> dict[str, Any]:
    """Σ̂, Xᵀy/n and ‖y‖²/n of a CSV file: inputs standardised, target (the last column) centred."""
    with path.open("rb") as file:
        first = file.readline(LONGEST_LINE).decode("utf-8", "replace")
    separator = max(",;\t", key=first.count)
    header = next(csv.reader([first], delimiter=separator), [])
    if not 2 <= len(header) <= MOST_INPUTS + 1:
        raise dl.InputError(
            f"{name} has {len(header)} column(s); pass a CSV file with a line of names, at most "
            f"{MOST_INPUTS} inputs first and the target last."
        )
    try:
        reading = dl.read_problem(
            path, header[-1].strip(), standardize=True, intercept=True, missing="drop"
        )
    except dl.InputError as error:
        raise dl.InputError(str(error).replace(str(path), name)) from None
    problem = reading.problem
    covariance = np.asarray(problem.covariance)
    return {
        "covariance": covariance.tolist(),
        "cross": (covariance @ np.asarray(problem.optimum).reshape(-1)).tolist(),
        "target_moment": float(problem.target_moment),
        "samples": int(problem.samples),
        "inputs": int(problem.dimension),
        "target": header[-1].strip(),
    }
