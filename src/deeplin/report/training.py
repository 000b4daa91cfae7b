"""A finished training in words: what was learned first, then whether the theory was right."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

SHOWN = 12
"""Coefficients of a target that are printed."""


def as_text(report: Mapping[str, Any], width: int = 80) -> str:
    """The report of `deeplin train` for a terminal."""
    parts = [textwrap.fill(_headline(report), width)]
    parts += [textwrap.fill(line, width, subsequent_indent="    ") for line in _equations(report)]
    notes = [
        *report["advice"],
        *report["data"],
        f"Prediction: {report['prediction']}.",
        f"After training, {report['verdict']}.",
    ]
    parts.append("\n".join(textwrap.fill(f"- {n}", width, subsequent_indent="  ") for n in notes))
    parts.append(
        f"Kept in {report['run']}. Check the theorems on it: deeplin certify {report['run']}\n"
        f"Predict new rows: deeplin predict {report['run']} TABLE"
    )
    return "\n\n".join(parts)


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
    if report["status"] == "diverged":
        return (
            f"{text} Use a smaller learning rate (above {report['critical_learning_rate']:.3g} "
            "nothing can settle)."
        )
    for name, value in report["r_squared"].items():
        text += f" It explains {max(value, 0):.1%} of the variance of {name}"
        left_out = report["r_squared_left_out"].get(name)
        text += "." if left_out is None else f" (R² on rows left out: {left_out:.3g})."
    return text


def _equations(report: Mapping[str, Any]) -> list[str]:
    """Each target as a formula of the table's columns, the largest coefficients only."""
    lines = []
    names = report["inputs"]
    for k, target in enumerate(report["targets"]):
        weights = report["coefficients"][k]
        largest = sorted(range(len(names)), key=lambda j, w=weights: -abs(w[j]))[:SHOWN]
        terms = [f"{report['intercepts'][k]:.4g}"] if report["intercepts"][k] else []
        terms += [f"{weights[j]:.4g}·{names[j]}" for j in sorted(largest)]
        formula = " + ".join(terms).replace("+ -", "− ")
        more = len(names) - len(largest)
        lines.append(f"{target} = {formula}" + (f" + {more} smaller terms" if more else ""))
    return lines
