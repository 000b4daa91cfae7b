"""A visitor's CSV file: limited in size, read by the same reader as everywhere, scaled to fit."""

from __future__ import annotations

import csv
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from deeplin.checks import InputError
from deeplin.problems import Problem
from deeplin.problems.reading import read_problem

MOST_BYTES = 2_000_000
MOST_INPUTS = 50
MOST_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class Upload:
    """The problem in a file, and a sentence about what was read."""

    problem: Problem
    note: str


def read_upload(message: str) -> Upload:
    """The problem of a message `{"name": …, "text": …}`; the last column is the target.

    Inputs are standardised, means are subtracted, and the target is scaled to ‖w*‖ = 1 as in FM,
    so that the sliders fit every file.
    """
    name, text = _parts(message) if len(message) <= 2 * MOST_BYTES else ("the file", message)
    if len(text) > MOST_BYTES:
        raise InputError(
            f"{name} has {len(text):,} characters; at most {MOST_BYTES:,} can be uploaded. "
            "Use `deeplin diagnose` for larger ones."
        )
    header = next(csv.reader(text.splitlines()), [])
    if len(header) < 2:
        raise InputError(
            f"{name} has {len(header)} column(s); pass a CSV file with a line of names, inputs "
            "first and the target last."
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "upload.csv"
        path.write_text(text, encoding="utf-8")
        try:
            reading = read_problem(
                path, header[-1], standardize=True, intercept=True, missing="drop"
            )
        except InputError as error:
            raise InputError(str(error).replace(str(path), name)) from None
    inputs, targets = reading.problem.require_data("the explorer")
    if inputs.shape[1] > MOST_INPUTS or len(inputs) > MOST_ROWS:
        raise InputError(
            f"{name} has {len(inputs)} rows and {inputs.shape[1]} inputs; at most {MOST_ROWS} and "
            f"{MOST_INPUTS} fit here. Use `deeplin diagnose` for larger ones."
        )
    reading.problem.require_signal("training on this file")
    scaled = Problem.from_data(inputs, targets[:, 0] / reading.problem.optimum_norm)
    return Upload(
        scaled,
        f"{name}: {len(inputs)} rows, {inputs.shape[1]} inputs, target {header[-1]!r}; inputs "
        "standardised, target scaled to ‖w*‖ = 1.",
    )


def _parts(message: str) -> tuple[str, str]:
    try:
        document = json.loads(message)
        name, text = document["name"], document["text"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InputError("the upload could not be read; choose a CSV file again.") from None
    if not isinstance(name, str) or not isinstance(text, str):
        raise InputError("the upload is not text; choose a CSV file.")
    return Path(name).name[:60] or "file", text
