"""A certificate for people: what speaks about this run first, one sentence for each statement."""

from __future__ import annotations

import textwrap
from typing import Any

import pandas as pd

from deeplin.theory.certificate import Certificate

SPEAKING = ("violated", "holds", "measured")
"""Verdicts that say something about the run, in the order in which they are shown."""


def as_text(certificate: Certificate, *, width: int = 80, everything: bool = False) -> str:
    """One line of summary, then the statements that speak about this run, then (if asked) the rest.

    Several runs: a table that counts the verdicts of each statement.
    """
    table = certificate.table
    if len(set(table["run"])) > 1:
        return repr(certificate)
    parts = [textwrap.fill(_summary(table), width)]
    for verdict in SPEAKING:
        parts += _section(table, verdict, width)
    silent = [name for name in table["verdict"].unique() if name not in SPEAKING]
    if everything:
        for verdict in silent:
            parts += _section(table, verdict, width)
    elif silent:
        parts.append("The statements that do not speak about this run, and why: --all")
    return "\n\n".join(parts)


def _summary(table: pd.DataFrame) -> str:
    counts = table["verdict"].value_counts()
    shown = ", ".join(f"{counts[name]} {name}" for name in counts.index)
    broken = list(table["verdict"]).count("violated")
    first = "No statement is violated" if not broken else f"{broken} statement(s) are VIOLATED"
    return f"{first} on this run, out of {len(table)}: {shown}."


def _section(table: pd.DataFrame, verdict: str, width: int) -> list[str]:
    rows = table[table["verdict"] == verdict]
    if rows.empty:
        return []
    lines = [_sentence(row, verdict, width) for _, row in rows.iterrows()]
    return ["\n".join([verdict.capitalize(), *lines])]


def _sentence(row: Any, verdict: str, width: int) -> str:
    text = f"{row['id']}: {row['title']}"
    if verdict in ("holds", "violated"):
        part = f" ({row['part']})" if row["part"] else ""
        text += f"{part}: {_number(row['left'])} {_sign(row, verdict)} {_number(row['right'])}"
    elif verdict == "measured":
        text += f": {_number(row['left'])}"
    if row["hypotheses"]:
        text += f" — {row['hypotheses']}"
    return textwrap.fill(text, width, initial_indent="  ", subsequent_indent="      ")


def _sign(row: Any, verdict: str) -> str:
    """How the sides compare: a claim that holds within its tolerance only is an equality."""
    if verdict == "violated":
        return "against"
    return "≤" if row["left"] <= row["right"] else "≈"


def _number(value: object) -> str:
    return "–" if pd.isna(value) else f"{value:.4g}"  # pyright: ignore
