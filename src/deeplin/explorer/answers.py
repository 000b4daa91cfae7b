"""What the page asks of the library: certificates of runs, moments of tables too large for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import deeplin as dl
from deeplin.certificates.certificate import certify
from deeplin.certificates.statements import STATEMENTS
from deeplin.explorer.build import inputs, presets
from deeplin.explorer.draws import data_of, network_of
from deeplin.tables.table import open_table

MOST_WORK = 2e9
"""Weight updates (times samples for GELU and ReLU) of one certified run: some ten seconds."""
MOST_NUMBERS = 2_000_000
MOST_INPUTS = 50
RECORDS = 160
FLOW_TIMES, FLOW_STEPS = 61, 20_000
UNRELATED = "not applicable"
XMLNS = ' xmlns="http://www.w3.org/1998/Math/MathML"'
CHARACTER = re.compile("&#x([0-9A-Fa-f]+);")
SHOWN = ("id", "part", "verdict", "left", "right", "margin", "tolerance", "hypotheses")


def rows_of(problem: dl.Problem, network: dl.Network, request: Mapping[str, Any]) -> list[dict]:
    """The certificate of a run: a row for each statement, as JSON values."""
    rate, steps = float(request["learning_rate"]), int(request["steps"])
    if request.get("dynamics") == "flow":
        times = np.linspace(0, rate * steps, FLOW_TIMES)
        run = dl.gradient_flow(problem, network, until=times[-1], at=times, max_steps=FLOW_STEPS)
    else:
        run = dl.gradient_descent(
            problem,
            network,
            rate,
            steps,
            momentum=float(request.get("momentum", 0.0)),
            record_every=-(-steps // RECORDS) | 1,
        )
    return [_short(row) for row in certify(problem, run).records()]


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows of a row: six digits, and nothing that is empty."""
    shown = {name: row[name] for name in SHOWN if row[name] not in (None, "")}
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in shown.items()
    }


def statements() -> dict[str, dict[str, str]]:
    """Title and formula (as MathML, which browsers draw without any script) of every statement."""
    from latex2mathml.converter import convert

    def formula(latex: str) -> str:
        mathml = convert(latex, display="inline").replace(XMLNS, "")
        return CHARACTER.sub(lambda match: _character(int(match[1], 16)), mathml)

    return {
        name: {"title": known.title, "formula": formula(known.formula)}
        for name, known in STATEMENTS.items()
    }


def _character(code: int) -> str:
    """The character itself instead of its number, except those that HTML reads as marks."""
    return f"&#{code};" if chr(code) in "<>&" else chr(code)


def preset_certificates(report: Callable[[str], None] = lambda _: None) -> dict[str, dict]:
    """The certificates of every preset of the training page, for descent and for flow."""
    default = {name: given["default"] for name, given in inputs().items()}
    found = {}
    for name, preset in presets().items():
        state = default | preset["state"]
        if state["tab"] != "training" or state["loss"] != "squared":
            continue
        report(preset["title"])
        X, Y = data_of(state)
        problem, network = dl.Problem.from_data(X, Y[:, 0]), network_of(state)
        found[name] = {
            dynamics: [
                # Why a statement does not apply is long, and the same for nearly every run.
                {"id": row["id"], "verdict": row["verdict"]} if row["verdict"] == UNRELATED else row
                for row in rows_of(problem, network, state | {"dynamics": dynamics})
            ]
            for dynamics in ("descent", "flow")
        }
    return found


def certified(request: Any) -> dict[str, Any]:
    """The answer to a page that asks for a certificate; raises InputError for what cannot be."""
    if not isinstance(request, dict):
        raise dl.InputError("the request is not an object; ask from the page.")
    problem = _problem(request)
    network = _network(request)
    steps = request.get("steps")
    if not isinstance(steps, int) or not 1 <= steps <= 100_000:
        raise dl.InputError(f"steps is {steps!r}; pass a whole number from 1 to 100000.")
    rows = 1 if network.activation == "linear" else problem.samples
    work = steps * rows * sum(layer.size for layer in network.weights)
    if work > MOST_WORK:
        raise dl.InputError(
            f"this certificate needs {work:.1e} weight updates, more than {MOST_WORK:.0e}; choose "
            "fewer steps or a smaller network."
        )
    return {"rows": rows_of(problem, network, request), "statements": statements()}


def _problem(request: dict[str, Any]) -> dl.Problem:
    if "moments" in request:
        given = request["moments"]
        if not isinstance(given, dict):
            raise dl.InputError("moments is not an object; read the file again.")
        moments = [_array(name, given) for name in ("covariance", "cross", "target_moment")]
        return dl.Problem.from_moments(*moments, samples=int(_array("samples", given)))
    X, y = _array("X", request), _array("y", request)
    return dl.Problem.from_data(X, y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y)


def _network(request: dict[str, Any]) -> dl.Network:
    layers = request.get("weights")
    if not isinstance(layers, list) or not 1 <= len(layers) <= 40:
        raise dl.InputError("weights is not a list of 1 to 40 layers; ask from the page.")
    weights = [_array("a layer", {"a layer": layer}) for layer in layers]
    readout = None if request.get("readout") is None else _array("readout", request)
    activation = request.get("activation", "linear")
    return dl.Network(weights, readout, activation=activation)


def _array(name: str, given: dict[str, Any]) -> np.ndarray:
    """A finite array of numbers of bounded size."""
    try:
        array = np.asarray(given[name], dtype=float)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise dl.InputError(f"{name} is missing or not numbers; ask from the page.") from None
    if array.size > MOST_NUMBERS or not np.all(np.isfinite(array)):
        raise dl.InputError(
            f"{name} has {array.size} numbers; pass at most {MOST_NUMBERS}, all finite."
        )
    return array


def moments_of(path: Path, name: str) -> dict[str, Any]:
    """Σ̂, Xᵀy/n and ‖y‖²/n of a CSV file: inputs standardized, target (the last column) centered."""
    try:
        names = list(open_table(path).columns)
        if not 2 <= len(names) <= MOST_INPUTS + 1:
            raise dl.InputError(
                f"{name} has {len(names)} column(s); pass a CSV file with a line of names, at most "
                f"{MOST_INPUTS} inputs first and the target last."
            )
        prepared = {"standardize": True, "intercept": True, "missing": "drop"}
        reading = dl.read_problem(path, names[-1], task="regression", **prepared)
    except dl.InputError as error:
        raise dl.InputError(str(error).replace(str(path), name)) from None
    problem = reading.problem
    return {
        "covariance": problem.covariance.tolist(),
        "cross": problem.cross_moment.tolist(),
        "target_moment": problem.target_moment,
        "samples": problem.samples,
        "inputs": problem.dimension,
        "target": names[-1].strip(),
    }
