"""A diagnosis as text and as tables; `diagnosis_page` has its picture and its page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from deeplin.training.diagnosis import Diagnosis

HEADINGS = {
    "depth": "depth",
    "lower": "lower",
    "minimal_sharpness": "S_min",
    "upper": "upper",
    "balanced_sharpness": "S_bal",
    "critical_learning_rate": "critical rate",
    "suggested_learning_rate": "rate to use",
    "largest_scale": "FM-A2 scale",
}
SHOWN_WEIGHTS = 12


def depth_table(diagnosis: Diagnosis) -> pd.DataFrame:
    """The depths with short headings, numbers to four digits."""
    shown = diagnosis.depths.dropna(axis="columns", how="all")
    table = shown.rename(columns=HEADINGS)
    shown = {name: table[name].map(_number) for name in table if name != "depth"}
    return table.assign(**shown)


def weight_table(diagnosis: Diagnosis) -> pd.DataFrame:
    """The largest coefficients of w*."""
    rows = [(name, np.atleast_1d(w)) for name, w in diagnosis.optimum.items()]
    largest = sorted(rows, key=lambda row: -np.abs(row[1]).max())[:SHOWN_WEIGHTS]
    single = len(diagnosis.targets) == 1
    columns = ("coefficient",) if single else diagnosis.targets
    return pd.DataFrame(
        [{"input": name, **dict(zip(columns, map(_number, w), strict=True))} for name, w in largest]
    )


def target_table(diagnosis: Diagnosis) -> pd.DataFrame | None:
    """Each of several targets with a network of its own, at the greatest depth."""
    if len(diagnosis.targets) == 1:
        return None
    rows = []
    for name, value in diagnosis.r_squared.items():
        row = {"target": name, "R²": _number(value)}
        if name in diagnosis.alone:
            advice = diagnosis.alone[name][-1]
            row["critical rate"] = _number(advice.critical_learning_rate)
            row["rate to use"] = _number(advice.learning_rate)
        rows.append(row)
    return pd.DataFrame(rows)


def overfitting_table(diagnosis: Diagnosis) -> pd.DataFrame | None:
    """Effective ranks, errors and bounds for d > n."""
    over = diagnosis.overfitting
    if over is None:
        return None
    rows = {
        "k (estimated)": over.tail.index,
        "s_k (estimated)": over.tail.tail_sum,
        "r_0 (estimated)": over.total_rank,
        "r_k (estimated)": over.tail.small_rank,
        "R_k (estimated)": over.tail.large_rank,
        "norm of the minimum-norm interpolant": over.interpolant_norm,
        "its leave-one-out error": over.leave_one_out,
        "error of predicting zero": over.zero_error,
        "cost of fitting the noise, k/n + n/R_k": over.noise_cost,
        "bias term of BO-T3.1 (c = 1)": over.bias,
        "variance term of BO-T3.1 (c = 1)": over.variance,
    }
    return pd.DataFrame({"quantity": list(rows), "value": [_number(v) for v in rows.values()]})


def tables(diagnosis: Diagnosis) -> list[tuple[str, pd.DataFrame]]:
    """Every table with its heading."""
    depth = diagnosis.advice[-1].depth
    named = [
        ("By depth", depth_table(diagnosis)),
        (f"Each target alone, at depth {depth}", target_table(diagnosis)),
        ("Largest coefficients of w*", weight_table(diagnosis)),
        ("Interpolation", overfitting_table(diagnosis)),
    ]
    return [(heading, table) for heading, table in named if table is not None]


def details(diagnosis: Diagnosis) -> list[str]:
    """What the answer rests on, with the symbols of the tables."""
    eigenvalues = f"rank {diagnosis.rank}, Λ/λ = {diagnosis.condition_number:.3g}"
    facts = [
        f"Σ̂ = XᵀX/n: {eigenvalues}; ‖w*‖ = {diagnosis.optimum_norm:.4g}; "
        f"R_min = {diagnosis.minimal_risk:.4g}, R_0 = {diagnosis.zero_risk:.4g}."
    ]
    if diagnosis.scale_obstacle is not None and len(diagnosis.targets) == 1:
        facts.append(
            "The theory of small initialisation (FM-A2) does not cover these data: "
            f"{diagnosis.scale_obstacle}. Training is not affected."
        )
    return facts


def as_text(diagnosis: Diagnosis, width: int = 80) -> str:
    """The diagnosis for a terminal or a log: the answer first, wrapped at words."""
    answer, *others = diagnosis.summary
    parts = [textwrap.fill(answer, width), *_bullets("", others, width)]
    parts += _bullets("About the data", diagnosis.notes, width)
    parts += _bullets("Details", details(diagnosis), width)
    parts += [f"{name}\n{table.to_string(index=False)}" for name, table in tables(diagnosis)]
    return "\n\n".join(parts)


def _bullets(heading: str, sentences: Iterable[str], width: int) -> list[str]:
    lines = [textwrap.fill(f"- {it}", width, subsequent_indent="  ") for it in sentences]
    return ["\n".join([heading, *lines] if heading else lines)] if lines else []


def _number(value: Any) -> str:
    return "–" if pd.isna(value) else f"{value:.4g}"
