"""What the project asks beyond the papers, with no pass or fail, and how answers are written."""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias


class Question(NamedTuple):
    """A question of our own and what was measured.

    The answer is a sentence with its numbers and their intervals. It is recorded, so that a change
    is noticed.
    """

    name: str
    """Short, and unique in its panel."""
    text: str
    answer: str


Answers: TypeAlias = dict[str, dict[str, Any]]
"""For each question of a panel the values with which its answer in `figures.toml` is filled."""


def answered(name: str, words: Mapping[str, str], **values: Any) -> Question:
    """Fill a question and its answer, or the answer for another `case` that the values name."""
    answer = words[values.pop("case", "answer")]
    return Question(name, *(_WRITER.format(text, **values) for text in (words["text"], answer)))


def number(value: Any) -> str:
    """Write a number for people: four significant digits, powers of ten as ×10ⁿ."""
    if not math.isfinite(value):
        return "none" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"  # also for −0
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:.4g}".replace("-", "−") if abs(value) < 1e4 else f"{value:.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}×10{raised}".replace("-", "−")


def extent(values: Iterable[Any]) -> str:
    """Write the smallest and the largest of some numbers: `0.97 to 1.03`."""
    found = [float(value) for value in values if not math.isnan(value)]
    if not found:
        return "none"
    low, high = number(min(found)), number(max(found))
    return low if low == high else f"{low} to {high}"


def each(text: str, values: Mapping[Any, float] | Any) -> str:
    """Write a number for each key: `each("depth {}", means)` is `0.97 (depth 5), …`."""

    def name(key: Any) -> str:
        words = key if isinstance(key, tuple) else (key,)
        return text.format(*(word if isinstance(word, str) else number(word) for word in words))

    return ", ".join(f"{number(value)} ({name(key)})" for key, value in values.items())


def percent(share: float) -> str:
    """Write a share as a percentage, with more digits close to none and to all."""
    digits = 0 if share in (0, 1) or 0.1 <= share <= 0.9 else 1
    text = f"{share:.{digits}%}"
    return {"100.0%": "almost all", "0.0%": "almost none"}.get(text, text)


def interval(value: tuple[float, float]) -> str:
    """Write a number and the half-width of its interval: `0.97 ± 0.02`."""
    return " ± ".join(map(number, value))


_KINDS = {
    "": number, "extent": extent, "percent": percent, "interval": interval, "count": len
}  # fmt: skip


class _Writer(string.Formatter):
    """Write `{x}` as a number, `{x:extent}`, `{x:percent}`, … by the functions of this module."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Write one value; a text or a whole number is written as it is."""
        kind, _, name = format_spec.partition(" ")
        if kind == "each":
            return each(name.replace("%", "{}"), value)
        plain = kind == "" and isinstance(value, str | Integral)
        return str(value if plain else _KINDS[kind](value))


_WRITER = _Writer()
