"""What a figure claims: a sentence, what was measured, and the limits it must stay within."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deeplin.errors import InputError

HOLDS, IN_PART, FAILS = "holds", "holds in part", "fails"
VERDICTS = (HOLDS, IN_PART, FAILS)
"""From the best to the worst."""
POSITIVE = 1e-12
"""Lower limit of intervals that must exclude zero: above it, beyond rounding."""
NAMED = 6
"""Parts that are named one by one; more of them are counted."""


@dataclass(frozen=True)
class Claim:
    """A sentence about data, judged by `lower ≤ measured ≤ upper` for each of its parts.

    `measured` is one number, or one for each part of the range the sentence speaks about (every η,
    every scale, every data set). The verdict is derived and cannot be set: `holds` if all parts are
    within the limits, `holds in part` if some are, `fails` if none is; NaN is never within.

    ```python
    from deeplin.papers.claims import Claim
    claim = Claim("ends at 2/η", {"η = 0.02": 0.79, "η = 0.07": 0.99}, lower=0.9)
    assert claim.verdict == "holds in part"
    ```
    """

    sentence: str
    """The paper's own sentence, and which number is measured."""
    measured: Any
    lower: float = -math.inf
    upper: float = math.inf
    name: str = ""
    """Short, and unique in its panel: under it the verdict is recorded."""
    reason: str = ""
    """Where the limits come from."""
    explanation: str = ""
    """Why a number is as it is, and how many runs it stands for."""
    known: str = ""
    """The erratum or explanation (`deeplin.papers.recorded`) of an understood failure."""
    parts: Mapping[str, float] = field(init=False)

    def __post_init__(self):
        given = self.measured if isinstance(self.measured, Mapping) else {"": self.measured}
        parts = {str(name): float(number) for name, number in given.items()} or {"": math.nan}
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "measured", parts[self._worst()])
        if not self.lower <= self.upper or (math.isinf(self.lower) and math.isinf(self.upper)):
            raise InputError(
                f"claim {self.sentence!r} has limits {self.lower} and {self.upper}, which no data "
                "can break or keep; pass a finite lower or upper limit."
            )

    def _within(self, number: float) -> bool:
        return self.lower <= number <= self.upper

    def _worst(self) -> str:
        """The part farthest outside the limits, or nearest to them."""

        def excess(number: float) -> float:
            return math.inf if math.isnan(number) else max(self.lower - number, number - self.upper)

        return max(self.parts, key=lambda name: excess(self.parts[name]))

    @property
    def holds(self) -> bool:
        """Whether every part is within the limits."""
        return self.verdict == HOLDS

    @property
    def verdict(self) -> str:
        """`holds`, `holds in part` or `fails`."""
        within = [self._within(number) for number in self.parts.values()]
        return HOLDS if all(within) else (IN_PART if any(within) else FAILS)

    @property
    def part(self) -> str:
        """Where a claim holds in part it holds, and where it does not, with the numbers."""
        if self.verdict != IN_PART:
            return ""
        kept = [name for name, number in self.parts.items() if self._within(number)]
        lost = [f"{n} ({number(v)})" for n, v in self.parts.items() if not self._within(v)]
        good = ", ".join(kept) if len(kept) <= NAMED else f"{len(kept)} of {len(self.parts)} parts"
        bad = ", ".join(lost[:NAMED]) + (", …" if len(lost) > NAMED else "")
        return f"holds for {good}; not for {bad}"

    @property
    def worst(self) -> str:
        """Which of several parts `measured` is the number of."""
        return f"worst of {len(self.parts)}: {self._worst()}" if len(self.parts) > 1 else ""

    @property
    def tolerance(self) -> str:
        """The limits in words."""
        if math.isinf(self.lower):
            return f"at most {number(self.upper)}"
        if math.isinf(self.upper):
            return f"at least {number(self.lower)}"
        return f"{number(self.lower)} to {number(self.upper)}"

    def to_plain(self) -> dict[str, Any]:
        """The claim with its verdict as JSON can hold it; infinities and NaN become None."""
        limits = {"measured": self.measured, "lower": self.lower, "upper": self.upper}
        return {
            "name": self.name,
            "sentence": self.sentence,
            "verdict": self.verdict,
            "part": self.part,
            **{k: v if math.isfinite(v) else None for k, v in limits.items()},
            "shown": number(self.measured),
            "worst": self.worst,
            "tolerance": self.tolerance,
            "reason": self.reason,
            "explanation": self.explanation,
            "known": self.known if self.verdict != HOLDS else "",
        }


def parts(text: str, values: Any) -> dict[str, float]:
    """The parts of a claim from a series or mapping, named by its keys: `parts("depth {}", means)`.

    Numbers are written for people; a key of several words fills several places.
    """

    def name(key: Any) -> str:
        words = key if isinstance(key, tuple) else (key,)
        return text.format(*(word if isinstance(word, str) else number(word) for word in words))

    return {name(key): value for key, value in values.items()}


def on_data_sets(
    sentence: str,
    values: Mapping[Any, float] | Any,
    text: str = "",
    *,
    lower: float = -math.inf,
    upper: float = math.inf,
    explanation: str = "",
    **rest: str,
) -> Claim:
    """A general sentence, judged on every data set, which says on how many of them it holds.

    The last word of each key of `values` is a data set; `text` names what stands before it. What
    is missing on a data set that others have is not a number, and so never within the limits.

    ```python
    from deeplin.papers.claims import on_data_sets
    found = {(5, 9): 0.1, (5, 10): 0.1, (40, 9): 0.1, (40, 10): 0.3}
    claim = on_data_sets("is small", found, "depth {}", upper=0.2)
    told = "Data sets on which it holds: 2 of 2 (depth 5), 1 of 2 (depth 40)."
    assert claim.explanation == told
    ```
    """
    given = {key if isinstance(key, tuple) else (key,): value for key, value in values.items()}
    groups, sets = (dict.fromkeys(key[side] for key in given) for side in (slice(-1), -1))
    full = {(*group, s): given.get((*group, s), math.nan) for group in groups for s in sets}
    held = {group: sum(lower <= full[*group, s] <= upper for s in sets) for group in groups}
    told = f"Holds on {next(iter(held.values()), 0)} of {len(sets)} data sets."
    if len(held) > 1 and {*held.values()} not in ({0}, {len(sets)}):
        counts = (f"{count} of {len(sets)} ({name})" for name, count in parts(text, held).items())
        told = f"Data sets on which it holds: {', '.join(counts)}."
    return Claim(
        sentence,
        parts(f"{text} on data set {{}}" if text else "data set {}", full),
        lower,
        upper,
        explanation=f"{told} {explanation}".strip(),
        **rest,
    )


def number(value: float) -> str:
    """A number for people: four significant digits, powers of ten written ×10ⁿ."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"  # also for −0
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:.4g}".replace("-", "−") if abs(value) < 1e4 else f"{value:.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}×10{raised}".replace("-", "−")
