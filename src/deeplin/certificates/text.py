"""A certificate as text for a terminal: in words, and with ids and numbers on request."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Mapping
from typing import Any

from deeplin.certificates.certificate import (
    HOLDS,
    MEASURED,
    NOT_APPLICABLE,
    UNMET,
    VIOLATED,
    Certificate,
    Facts,
)
from deeplin.certificates.statements import STATEMENTS

ERRATA = "false as printed, as is known (errata)"
"""Label of an erratum that is violated: no reason to doubt the run."""
ABOUT_THE_RUN = (VIOLATED, HOLDS, MEASURED, ERRATA)
"""Labels of what concerns the run, in the order in which they are shown."""
REASONS = 3
"""Number of missing hypotheses that the first screen names."""


def certificate_text(
    certificate: Certificate, *, width: int = 80, details: bool = False, everything: bool = False
) -> str:
    """Return a certificate in words.

    Args:
        certificate: The certificate; for several runs the text is a table of verdicts.
        width: Width of the text in columns.
        details: Whether to list each statement with its id, its two sides or its constant.
        everything: Whether to list statements that say nothing about this run, too, with reasons.

    Returns:
        The text, without a newline at its end.
    """
    table: Any = certificate.table
    if len(set(table["run"])) > 1:
        return repr(certificate)
    rows = [row | {"label": _label(row)} for row in table.to_dict("records")]
    parts = [_headline(rows)]
    if details or everything:
        parts[0] += f" {_counted(rows)}"
        shown = [UNMET, NOT_APPLICABLE] if everything else []
        for label in (*ABOUT_THE_RUN, *shown):
            lines = [_sentence(row, width) for row in rows if row["label"] == label]
            parts += ["\n".join([label.capitalize(), *lines])] if lines else []
        if not everything:
            parts.append("The statements that say nothing about this run, and why: --all")
    else:
        parts += _in_words(certificate.facts, rows, width)
    parts[0] = textwrap.fill(parts[0], width)
    return "\n\n".join(parts)


def _label(row: Mapping[str, Any]) -> str:
    """Return the verdict, or that a printed statement is known to be false."""
    return ERRATA if row["verdict"] == VIOLATED and row["kind"] == "erratum" else row["verdict"]


def _headline(rows: list[dict[str, Any]]) -> str:
    """Return whether a statement is violated, in a sentence."""
    broken = sum(row["label"] == VIOLATED for row in rows)
    holding = sum(row["verdict"] == HOLDS for row in rows)
    if broken:
        verb = "statement is" if broken == 1 else "statements are"
        return f"{broken} {verb} VIOLATED on this run."
    held = {0: "", 1: " 1 statement holds."}.get(holding, f" {holding} statements hold.")
    return f"No statement is violated on this run.{held}"


def _counted(rows: list[dict[str, Any]]) -> str:
    """Return how many statements have each verdict."""
    counts = Counter(row["label"] for row in rows)
    named = {HOLDS: "hold" if counts[HOLDS] != 1 else "holds"}
    shown = (f"{count} {named.get(verdict, verdict)}" for verdict, count in counts.most_common())
    return f"Of {len(rows)}: {', '.join(shown)}."


def _in_words(facts: Facts | None, rows: list[dict[str, Any]], width: int) -> list[str]:
    """Return the paragraphs of the first screen: the end, what holds, what was not judged."""
    parts = []
    broken = [_sentence(row, width) for row in rows if row["label"] == VIOLATED]
    if broken:
        parts.append("\n".join(["Violated", *broken]))
    if facts is not None:
        parts.append(textwrap.fill(_about_the_end(facts), width))
    sentences = dict.fromkeys(
        STATEMENTS[row["id"]].meaning for row in rows if row["verdict"] == HOLDS
    )
    lines = [
        textwrap.fill(sentence, width, initial_indent="  • ", subsequent_indent="    ")
        for sentence in sentences
        if sentence
    ]
    parts += ["\n".join(["What holds, and what it means", *lines])] if lines else []
    unmet = [row for row in rows if row["verdict"] == UNMET and row["unmet"]]
    if unmet:
        parts.append(textwrap.fill(_not_judged(unmet), width))
    measured = sum(row["verdict"] == MEASURED for row in rows)
    more = "Ids, both sides of each statement"
    if measured:
        constants = "constant" if measured == 1 else "constants"
        more += f" and {measured} measured {constants}"
    parts.append(f"{more}: --details")
    return parts


def _about_the_end(facts: Facts) -> str:
    """Return where the run ended, and what that means for its learning rate."""
    S, least = _number(facts.sharpness), _number(facts.minimal)
    if not facts.minimizer:
        return (
            "The run did not end in a minimizer, so what is known about minimizers does not speak "
            "about it."
        )
    found = f"The run ended in a minimizer of sharpness {S}; the smallest possible is {least}."
    if math.isnan(facts.threshold):
        rate = _number(2 / facts.minimal)
        return f"{found} Gradient descent can stay at the flattest up to the learning rate {rate}."
    top, stays = _number(facts.threshold), facts.sharpness <= facts.threshold
    verdict = "so it stays there" if stays else "so a longer run would leave it"
    return f"{found} At its learning rate descent is stable up to sharpness {top}, {verdict}."


def _not_judged(unmet: list[dict[str, Any]]) -> str:
    """Return how many statements assume what the run does not have, and what that is."""
    names = [row["unmet"][0].hypothesis.split(", ")[-1] for row in unmet]  # without FM-A2
    common = Counter(names).most_common(REASONS)
    missing = "; ".join(f"{name} ({count})" for name, count in common)
    more = "; others" if len(set(names)) > REASONS else ""
    if len(unmet) == 1:
        return f"1 statement was not judged, because it assumes what is not true here: {names[0]}."
    why = "they assume what is not true here"
    return f"{len(unmet)} statements were not judged, because {why}: {missing}{more}."


def _sentence(row: Mapping[str, Any], width: int) -> str:
    """Return a statement with its two sides; a margin within rounding is 0, with its tolerance."""
    text, left, right = f"{row['id']}: {row['title']}", _number(row["left"]), _number(row["right"])
    if row["verdict"] in (HOLDS, VIOLATED) and not math.isnan(row["left"]):
        equal = abs(row["margin"]) <= row["tolerance"]
        sign = "against" if row["verdict"] == VIOLATED else "≈" if equal else "≤"
        part = f" ({row['part']})" if row["part"] else ""
        within = f", margin 0 within {row['tolerance']:.1g}" if equal else ""
        text += f"{part}: {left} {sign} {right}{within}"
    elif row["verdict"] == MEASURED:
        part = f" ({row['part']})" if row["part"] else ""
        text += f"{part}: {left}"
        if math.isfinite(row["allowed"]):
            text += f"; the run meets the hypotheses up to {_number(row['allowed'])}"
    if row["hypotheses"]:
        text += f" — {row['hypotheses']}"
    return textwrap.fill(text, width, initial_indent="  ", subsequent_indent="      ")


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4g}"
