"""In words, for a terminal or a log: a diagnosis, a finished training and a certificate.

`diagnosis_page` has the picture and the page of a diagnosis.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from deeplin.certificates.certificate import Certificate
    from deeplin.training.diagnosis import Diagnosis

HEADINGS = {
    "minimal_sharpness": "S_min",
    "balanced_sharpness": "S_bal",
    "critical_learning_rate": "critical rate",
    "suggested_learning_rate": "rate to use",
    "largest_scale": "FM-A2 scale",
}
SHOWN = 12
"""Coefficients of a target that are printed."""
SPEAKING = ("violated", "holds", "measured")
"""Verdicts that say something about the run, in the order in which they are shown."""


def diagnosis_text(diagnosis: Diagnosis, width: int = 80) -> str:
    """The diagnosis: the answer first, wrapped at words."""
    answer, *others = diagnosis.summary
    lists = {"": others, "About the data": diagnosis.notes, "Details": details(diagnosis)}
    parts = [textwrap.fill(answer, width)]
    parts += [f"{name}\n{_bullets(them, width)}".lstrip() for name, them in lists.items() if them]
    parts += [f"{name}\n{table.to_string(index=False)}" for name, table in tables(diagnosis)]
    return "\n\n".join(parts)


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


def tables(diagnosis: Diagnosis) -> list[tuple[str, pd.DataFrame]]:
    """Every table with its heading, numbers to four digits."""
    depth = diagnosis.advice[-1].depth
    named = {
        "By depth": diagnosis.depths.dropna(axis="columns", how="all").rename(columns=HEADINGS),
        f"Each target alone, at depth {depth}": _targets(diagnosis),
        "Largest coefficients of w*": _coefficients(diagnosis),
        "Interpolation": _interpolation(diagnosis),
    }
    return [(heading, _shown(table)) for heading, table in named.items() if len(table)]


def _targets(diagnosis: Diagnosis) -> pd.DataFrame:
    """Each of several targets with a network of its own, at the greatest depth."""
    rows = []
    for name, value in diagnosis.r_squared.items() if len(diagnosis.targets) > 1 else ():
        row = {"target": name, "R²": value}
        if name in diagnosis.alone:
            advice = diagnosis.alone[name][-1]
            row["critical rate"] = advice.critical_learning_rate
            row["rate to use"] = advice.learning_rate
        rows.append(row)
    return pd.DataFrame(rows)


def _coefficients(diagnosis: Diagnosis) -> pd.DataFrame:
    """The largest coefficients of w*."""
    columns = ("coefficient",) if len(diagnosis.targets) == 1 else diagnosis.targets
    rows = [(name, np.atleast_1d(w)) for name, w in diagnosis.optimum.items()]
    largest = sorted(rows, key=lambda row: -np.abs(row[1]).max())[:SHOWN]
    return pd.DataFrame(
        [{"input": name, **dict(zip(columns, w, strict=True))} for name, w in largest]
    )


def _interpolation(diagnosis: Diagnosis) -> pd.DataFrame:
    """Effective ranks, errors and bounds for d > n."""
    over = diagnosis.overfitting
    if over is None:
        return pd.DataFrame()
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
    return pd.DataFrame({"quantity": list(rows), "value": list(rows.values())})


def training_text(report: Mapping[str, Any], width: int = 80) -> str:
    """The report of `deeplin train`: what was learned, then whether the theory was right."""
    notes = [
        *report["advice"],
        *report["data"],
        f"Prediction: {report['prediction']}.",
        f"After training, {report['verdict']}.",
    ]
    return "\n\n".join(
        [
            textwrap.fill(_headline(report), width),
            *(textwrap.fill(it, width, subsequent_indent="    ") for it in _equations(report)),
            _bullets(notes, width),
            f"Kept in {report['run']}. Check the theorems on it: deeplin certify {report['run']}\n"
            f"Predict new rows: deeplin predict {report['run']} TABLE",
        ]
    )


def _headline(report: Mapping[str, Any]) -> str:
    status = report["status"]
    if status == "stopped" and report["done"]:
        status = "on batches"
    did = {
        "converged": "Trained: the network settled",
        "on batches": "Trained on batches",
        "stopped": "Not finished: the network was still moving",
        "diverged": "Not trained: the network diverged",
    }[status]
    targets = len(report["targets"])
    summed = f" (summed over the {targets} targets)" if targets > 1 else ""
    text = (
        f"{did} after {report['steps']} steps of {report['optimizer']}{summed}, at learning rate "
        f"{report['learning_rate']:.3g}."
    )
    if status == "diverged":
        critical = f"above {report['critical_learning_rate']:.3g} nothing can settle"
        return f"{text} Use a smaller learning rate ({critical})."
    for name, value in report["r_squared"].items():
        text += f" It explains {max(value, 0):.1%} of the variance of {name}"
        left_out = report["r_squared_left_out"].get(name)
        text += "." if left_out is None else f" (R² on rows left out: {left_out:.3g})."
    return text


def _equations(report: Mapping[str, Any]) -> Iterable[str]:
    """Each target as a formula of the table's columns, the largest coefficients only."""
    names = report["inputs"]
    rows = zip(report["targets"], report["coefficients"], report["intercepts"], strict=True)
    for target, weights, intercept in rows:
        largest = np.argsort(-np.abs(weights), kind="stable")[:SHOWN]
        terms = [f"{intercept:.4g}"] if intercept else []
        terms += [f"{weights[j]:.4g}·{names[j]}" for j in sorted(largest)]
        formula = " + ".join(terms).replace("+ -", "− ")
        more = len(names) - len(largest)
        yield f"{target} = {formula}" + (f" + {more} smaller terms" if more else "")


def certificate_text(certificate: Certificate, *, width: int = 80, everything: bool = False) -> str:
    """A summary, what speaks about this run (a sentence for each statement), the rest if asked for.

    Several runs: a table that counts the verdicts of each statement.
    """
    table: Any = certificate.table
    if len(set(table["run"])) > 1:
        return repr(certificate)
    counts = table["verdict"].value_counts()
    broken = counts.get("violated", 0)
    first = "No statement is violated" if not broken else f"{broken} statement(s) are VIOLATED"
    shown = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    parts = [textwrap.fill(f"{first} on this run, out of {len(table)}: {shown}.", width)]
    silent = [verdict for verdict in table["verdict"].unique() if verdict not in SPEAKING]
    for verdict in (*SPEAKING, *(silent if everything else ())):
        rows = table[table["verdict"] == verdict].to_dict("records")
        lines = [_sentence(row, width) for row in rows]
        parts += ["\n".join([verdict.capitalize(), *lines])] if lines else []
    if silent and not everything:
        parts.append("The statements that do not speak about this run, and why: --all")
    return "\n\n".join(parts)


def _sentence(row: Mapping[str, Any], width: int) -> str:
    """A statement with its two sides: one that holds within its tolerance only is an equality."""
    text, left, right = f"{row['id']}: {row['title']}", _number(row["left"]), _number(row["right"])
    if row["verdict"] in ("holds", "violated"):
        sign = "≤" if row["left"] <= row["right"] else "≈"
        part = f" ({row['part']})" if row["part"] else ""
        text += f"{part}: {left} {sign if row['verdict'] == 'holds' else 'against'} {right}"
    elif row["verdict"] == "measured":
        text += f": {left}"
    if row["hypotheses"]:
        text += f" — {row['hypotheses']}"
    return textwrap.fill(text, width, initial_indent="  ", subsequent_indent="      ")


def _bullets(sentences: Iterable[str], width: int) -> str:
    return "\n".join(textwrap.fill(f"- {it}", width, subsequent_indent="  ") for it in sentences)


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    return table.map(lambda cell: cell if isinstance(cell, str | int) else _number(cell))


def _number(value: Any) -> str:
    return "–" if pd.isna(value) else f"{value:.4g}"
