"""What a figure claims: a sentence, a measured number, and the limits it must stay within."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from deeplin.checks import InputError


@dataclass(frozen=True)
class Claim:
    """A sentence about data that holds when `lower ≤ measured ≤ upper`, and fails on NaN.

    The verdict is derived and cannot be set. `printed` gives the paper's own wording where the
    claim measured here differs from it, and how that wording fares; `explanation` says why a
    number is as it is, and is required reading where a claim fails.

    ```python
    from deeplin.figures import Claim
    assert Claim("η = 0.02 stays below 2/η", measured=0.31, upper=1.0).verdict == "holds"
    ```
    """

    sentence: str
    measured: float
    lower: float = -math.inf
    upper: float = math.inf
    explanation: str = ""
    printed: str = ""

    def __post_init__(self):
        object.__setattr__(self, "measured", float(self.measured))
        if not self.lower <= self.upper or (math.isinf(self.lower) and math.isinf(self.upper)):
            raise InputError(
                f"claim {self.sentence!r} has limits {self.lower} and {self.upper}, which no data "
                "can break or keep; pass a finite lower or upper limit."
            )

    @property
    def holds(self) -> bool:
        """Whether the measured number is within its limits; NaN is not."""
        return self.lower <= self.measured <= self.upper

    @property
    def verdict(self) -> str:
        """`holds` or `fails`."""
        return "holds" if self.holds else "fails"

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
            "sentence": self.sentence,
            "verdict": self.verdict,
            **{k: v if math.isfinite(v) else None for k, v in limits.items()},
            "shown": number(self.measured),
            "tolerance": self.tolerance,
            "explanation": self.explanation,
            "printed": self.printed,
        }


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
