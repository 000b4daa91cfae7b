"""Answers to requests of the page: certificates of runs, moments of large tables.

Certificates of presets are computed here and shown there, so both sides must train the same
network: the page's random numbers are drawn in Python, number for number. `page/random.js` and
`page/start.js` are the originals; a test compares them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import deeplin as dl
from deeplin.certificates.certificate import certify
from deeplin.certificates.statements import STATEMENTS
from deeplin.explorer.build import inputs, presets
from deeplin.tables.table import open_table

MOST_WORK = 2e9
"""Maximum number of weight updates (times samples for GELU and ReLU) of one certified run, which
takes about ten seconds."""
MOST_NUMBERS = 2_000_000
MOST_INPUTS = 50
RECORDS = 160
FLOW_TIMES, FLOW_STEPS = 61, 20_000
UNRELATED = "not applicable"
XMLNS = ' xmlns="http://www.w3.org/1998/Math/MathML"'
CHARACTER = re.compile("&#x([0-9A-Fa-f]+);")
SHOWN = ("id", "part", "verdict", "left", "right", "margin", "tolerance", "hypotheses")


def rows_of(problem: dl.Problem, network: dl.Network, request: Mapping[str, Any]) -> list[dict]:
    """Return the certificate of a run: a row for each statement, as JSON values."""
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
    """Return what the page shows of a row: six digits, without empty entries."""
    shown = {name: row[name] for name in SHOWN if row[name] not in (None, "")}
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in shown.items()
    }


def statements() -> dict[str, dict[str, str]]:
    """Return the title and the formula (as MathML) of every statement."""
    from latex2mathml.converter import convert

    def formula(latex: str) -> str:
        mathml = convert(latex, display="inline").replace(XMLNS, "")
        return CHARACTER.sub(lambda match: _character(int(match[1], 16)), mathml)

    return {
        name: {"title": known.title, "formula": formula(known.formula)}
        for name, known in STATEMENTS.items()
    }


def _character(code: int) -> str:
    """Return the character of a numeric reference, unless it has a meaning in HTML."""
    return f"&#{code};" if chr(code) in "<>&" else chr(code)


def preset_certificates(report: Callable[[str], None] = lambda _: None) -> dict[str, dict]:
    """Return the certificates of every preset of the training page, for descent and for flow."""
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
                # The reason why a statement does not apply is long and the same for most runs.
                {"id": row["id"], "verdict": row["verdict"]} if row["verdict"] == UNRELATED else row
                for row in rows_of(problem, network, state | {"dynamics": dynamics})
            ]
            for dynamics in ("descent", "flow")
        }
    return found


def certified(request: Any) -> dict[str, Any]:
    """Return the certificate that a page requests, or raise InputError."""
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
    """Return a finite array of numbers of bounded size."""
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
    """Return Σ̂, Xᵀy/n and ‖y‖²/n of a CSV file with standardized inputs and a centered target."""
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


WORD = 0xFFFFFFFF
DATA, READOUT, WEIGHTS = 1, 2, 3
"""Random streams: every seed gives independent numbers for each purpose."""


class Random:
    """The generator of `page/random.js`: three words and a counter of 32 bits, normals in pairs."""

    def __init__(self, seed: int, stream: int):
        self.a, self.b, self.c, self.count = seed & WORD, stream & WORD, 0x9E3779B9, 1
        self.spare: float | None = None
        for _ in range(20):
            self.word()

    def word(self) -> int:
        """Return 32 random bits."""
        total = (self.a + self.b + self.count) & WORD
        self.count = (self.count + 1) & WORD
        self.a = self.b ^ (self.b >> 9)
        self.b = (self.c + (self.c << 3)) & WORD
        self.c = ((((self.c << 21) | (self.c >> 11)) & WORD) + total) & WORD
        return total

    def uniform(self) -> float:
        """Return a uniform number on (0, 1)."""
        return (self.word() + 0.5) / 4294967296

    def normal(self) -> float:
        """Return a standard normal number."""
        if self.spare is not None:
            value, self.spare = self.spare, None
            return value
        radius = math.sqrt(-2 * math.log(self.uniform()))
        angle = 2 * math.pi * self.uniform()
        self.spare = radius * math.sin(angle)
        return radius * math.cos(angle)

    def normals(self, *shape: int) -> np.ndarray:
        """Return an array of normals, row by row."""
        return np.array([self.normal() for _ in range(math.prod(shape))]).reshape(shape)


def data_of(state: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return X and Y of synthetic data, scaled to ‖Θ*‖_F = 1."""
    random = Random(state["data_seed"], DATA)
    n, d, q = state["samples"], state["dimension"], state["outputs"]
    spread = float(state["condition_number"]) ** (-np.arange(d) / (2 * max(d - 1, 1)))
    X = random.normals(n, d) * spread
    Y = X @ random.normals(d, q)
    Y += state["noise"] * random.normals(n, q)
    return X, Y / np.linalg.norm(dl.Problem.from_data(X, Y).optimum)


def network_of(state: Mapping[str, Any]) -> dl.Network:
    """Return the initial network of the first run."""
    d, q, L, scale = state["dimension"], state["outputs"], state["depth"], state["scale"]
    residual = state["architecture"] == "residual"
    widths = [d] * (L + 1) if residual else [d, *[state["width"]] * (L - 1), q]
    random = Random(state["seed"], WEIGHTS)
    layers = [random.normals(m, n) for n, m in pairwise(widths)]
    if residual:
        readout = Random(state["data_seed"], READOUT).normals(q, d)[0]
        noise = scale / math.sqrt(L * d)
        return dl.Network(
            [np.eye(d) + noise * layer for layer in layers], readout / np.linalg.norm(readout)
        )
    if state["initialization"] == "rank_one":
        raise dl.InputError("presets start from Gaussian layers, not rank_one.")
    if state["initialization"] == "zero_layer":
        layers[0] = np.zeros_like(layers[0])
    return dl.Network([scale * layer for layer in layers])
