"""What the project asks beyond the papers: a question and its answer, with no pass or fail."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Question(NamedTuple):
    """A question of our own and what was measured.

    The answer is a sentence with its numbers and their intervals. It is recorded, so that a change
    is noticed.
    """

    name: str
    """Short, and unique in its panel."""
    text: str
    answer: str


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
