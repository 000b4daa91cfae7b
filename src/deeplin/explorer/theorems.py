"""The theorems page: the certificate of the present run, row by row, formulas as MathML."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from html import escape

import numpy as np
import pandas as pd
from bokeh.layouts import column
from latex2mathml.converter import convert

from deeplin.explorer.compute import flow, problem_of, train
from deeplin.explorer.state import DATA, DESCENT, NETWORK, State
from deeplin.explorer.tab import Stage, Tab, text
from deeplin.problems import Problem
from deeplin.theory import STATEMENTS, certify

MARKS = {
    "holds": "✓",
    "violated": "✗",
    "measured": "=",
    "hypotheses not met": "–",
    "not applicable": "·",
}
WORDS = {"holds": "hold"}
CLASSES = {
    "holds": "good",
    "violated": "bad",
    "measured": "dim",
    "hypotheses not met": "warn",
    "not applicable": "dim",
}


def certificate(state: State, upload: Problem | None = None) -> pd.DataFrame:
    """Every statement evaluated on the first run of the state (descent or flow)."""
    return _certificate(state.only(*DATA, *NETWORK, *DESCENT, "theorems_of"), upload)


@lru_cache(maxsize=8)
def _certificate(state: State, upload: Problem | None) -> pd.DataFrame:
    problem = problem_of(state, upload)
    if state.theorems_of == "flow":
        return certify(problem, flow(state, upload).run).table
    return certify(problem, train(state.change(seeds=1), upload).run).table


@lru_cache(maxsize=256)
def mathml(formula: str) -> str:
    """A LaTeX formula as MathML, which browsers draw without any script."""
    return convert(formula, display="inline")


class TheoremsTab(Tab):
    """One table."""

    def __init__(self, open_run):
        super().__init__(open_run)
        self.rows = text("certificate")
        self.layout = column(self.rows, sizing_mode="stretch_width")

    def stages(self, _state: State) -> list[Stage]:
        """One stage: the certificate."""
        return [certificate]

    def show(self, state: State, result: pd.DataFrame) -> str:
        """Write the rows; what applies comes first."""
        self.shown = result
        order = {verdict: place for place, verdict in enumerate(("violated", "holds"))}
        rows = result.assign(
            place=[order.get(v, 2) + (v == "not applicable") for v in result.verdict]
        )
        body = "".join(
            _row(entry) for entry in rows.sort_values("place", kind="stable").to_dict("records")
        )
        head = "".join(f"<th>{name}</th>" for name in ("", "statement", "left ≤ right", "margin"))
        self.rows.text = f'<table class="certificate"><tr>{head}</tr>{body}</table>'
        counts = Counter(result["verdict"])
        broken = counts["violated"]
        words = ", ".join(f"{counts[v]} {WORDS.get(v, v)}" for v in MARKS if v in counts)
        of = "gradient flow" if state.theorems_of == "flow" else "gradient descent"
        level = "bad" if broken else "good"
        return (
            f'<p class="{level}"><b>{len(result)} statements on this run of {of}:</b> {words}.</p>'
        )

    def table(self) -> pd.DataFrame:
        """The certificate."""
        return self.shown


def _row(entry: dict) -> str:
    known = STATEMENTS[entry["id"]]
    verdict = entry["verdict"]
    remark = f"<br><small>{escape(str(entry['hypotheses']))}</small>" if entry["hypotheses"] else ""
    part = f" ({escape(str(entry['part']))})" if entry["part"] else ""
    return (
        f'<tr class="{CLASSES[verdict]}"><td title="{verdict}">{MARKS[verdict]}</td>'
        f"<td><b>{escape(entry['id'])}</b> {escape(entry['title'])}{part}"
        f'<div class="formula">{mathml(known.formula)}</div><small>{verdict}</small>{remark}</td>'
        f"<td>{_number(entry['left'])} ≤ {_number(entry['right'])}</td>"
        f"<td>{_number(entry['margin'])}</td></tr>"
    )


def _number(value: float) -> str:
    return "" if value is None or not np.isfinite(value) else f"{value + 0.0:.4g}"  # no minus zero
