"""A sentence of a paper, our reading of it in numbers, and how a run judges it."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deeplin.errors import InputError
from deeplin.papers import recorded
from deeplin.papers.figures import Study
from deeplin.papers.statistics import mean_interval, number, share_interval

REPRODUCED, DIFFERS, UNDECIDED = recorded.VERDICTS
ELISION = "[…]"
"""Mark of an omission in a quote."""


class Part(NamedTuple):
    """A measured number with its 95% interval, and the limits that our reading gives it."""

    name: str
    value: float
    low: float
    high: float
    lower: float = -math.inf
    upper: float = math.inf
    runs: int = 0
    """Number of runs behind the interval; 0 if nothing is random."""

    @property
    def verdict(self) -> str:
        """Whether the interval lies within the limits, outside of them, or on both sides."""
        if self.lower <= self.low and self.high <= self.upper:
            return REPRODUCED
        return DIFFERS if self.high < self.lower or self.low > self.upper else UNDECIDED

    @property
    def text(self) -> str:
        """Name, value, interval and limits in one line."""
        name = f"{self.name}: " if self.name else ""
        spread = f" [{number(self.low)}, {number(self.high)}]" if self.low < self.high else ""
        if math.isinf(self.lower):
            limits = f"at most {number(self.upper)}"
        elif math.isinf(self.upper):
            limits = f"at least {number(self.lower)}"
        else:
            limits = f"{number(self.lower)} to {number(self.upper)}"
        return f"{name}{number(self.value)}{spread} ({limits})"

    @property
    def decided_by(self) -> int | None:
        """Approximate number of runs that would move the interval to one side of the nearest
        limit."""
        half = (self.high - self.low) / 2
        apart = min(abs(self.value - self.lower), abs(self.value - self.upper))
        if self.verdict != UNDECIDED or not self.runs or not 0 < apart < half:
            return None
        return math.ceil(self.runs * (half / apart) ** 2)


def exactly(name: str, value: Any, lower: float = -math.inf, upper: float = math.inf) -> Part:
    """Return a number without an interval."""
    return Part(name, float(value), float(value), float(value), lower, upper)


def mean_of(name: str, values: Any, lower: float = -math.inf, upper: float = math.inf) -> Part:
    """Return a mean with its 95% interval (Student)."""
    mean, half = mean_interval(values)
    return Part(name, mean, mean - half, mean + half, lower, upper, len(np.asarray(values)))


def share_of(name: str, flags: Any, lower: float = -math.inf, upper: float = math.inf) -> Part:
    """Return a share with Wilson's 95% interval, judged by its value alone where it is 0 or 1.

    The interval of "20 of 20" reaches down to 0.84, which would leave every sentence about all runs
    undecided, although no run contradicts it.
    """
    flags = np.asarray(flags, dtype=bool)
    value = float(flags.mean()) if flags.size else math.nan
    if not flags.size or value in (0.0, 1.0):
        return Part(name, value, value, value, lower, upper, flags.size)
    low, high = share_interval(int(flags.sum()), flags.size)
    return Part(name, value, low, high, lower, upper, flags.size)


@dataclass(frozen=True, eq=False)
class Quote:
    """A verbatim sentence with its place, our reading, and the measurement that judges it."""

    name: str
    """Short and unique name under which the verdict is recorded."""
    paper: str
    """FM, BO or Talk."""
    place: str
    """Section, figure or caption."""
    text: str
    """Verbatim; `[…]` marks what is left out."""
    reading: str
    """Our reading: what is measured, and what the hedges of the sentence mean in numbers."""
    panel: str
    """The panel that shows it."""
    studies: tuple[Study, ...]
    measure: Callable[..., Sequence[Part]]
    """`measure(config, table)` of the first study, followed by the tables of the others."""
    why: str = ""
    """If the full protocol differs: the part, and the erratum or note that explains it."""

    @property
    def verdict(self) -> str:
        """The recorded verdict of the full protocol, or of the quick preset before it was run."""
        return recorded.quote(self.name).get("verdict", "not run")

    @property
    def value(self) -> str:
        """The recorded measurement behind the verdict."""
        return recorded.quote(self.name).get("value", "")

    def judge(self, config: Any, *tables: Any, preset: str = "paper") -> dict[str, Any]:
        """Measure the tables and return the verdict with all data for the page."""
        parts = [part for part in self.measure(config, *tables) if not math.isnan(part.value)]
        verdicts = {part.verdict for part in parts} or {UNDECIDED}
        found = DIFFERS if DIFFERS in verdicts else UNDECIDED
        found = REPRODUCED if verdicts == {REPRODUCED} else found
        found = recorded.verdict(self.name, preset, found)
        known = recorded.quote(self.name, "paper").get("verdict", "")
        decided = [part.decided_by for part in parts if part.decided_by]
        return {
            **{key: getattr(self, key) for key in ("name", "paper", "place")},
            **{key: getattr(self, key) for key in ("text", "reading", "panel")},
            "verdict": found,
            "value": _value(parts, found),
            "parts": [part.text for part in parts],
            "runs": max(decided, default=0) if found == UNDECIDED else 0,
            "full": known,
            "why": self.why if DIFFERS in (found, known) else "",
        }


def _value(parts: Sequence[Part], verdict: str) -> str:
    """Return the part that decides; of several that agree, the one nearest to its limits."""
    if not parts:
        return "nothing to measure"

    def margin(part: Part) -> float:
        size = max(abs(part.value), 1e-12)
        return min(part.low - part.lower, part.upper - part.high) / size

    deciding = [part for part in parts if part.verdict == verdict] or list(parts)
    shown = min(deciding, key=margin)
    more = f", of {len(parts)} numbers" if len(parts) > 1 else ""
    return shown.text + more


class LeftOutSentence(NamedTuple):
    """A sentence about experiments that is not judged."""

    paper: str
    place: str
    text: str
    reason: str


_LIGATURES = re.compile(r"ff[il]?|f[il]")


def letters(text: str) -> str:
    """Reduce a text to the letters that every extraction from a PDF keeps.

    ASCII letters in lower case; letters that extractions lose (Greek, ligatures) become `*`.
    """
    kept = "".join(
        char.lower() if char.isascii() and char.isalpha()
        else "*" if char == "\ufffd" or unicodedata.category(char).startswith("L")
        else ""
        for char in unicodedata.normalize("NFC", text)
    )  # fmt: skip
    return re.sub(r"\*+", "*", _LIGATURES.sub("*", kept))


APART, PIECE = 4_000, 15
"""Maximum number of letters of an interruption by a figure or footnote, and minimum on each side of
it."""


def missing(quotes: Iterable[Any], folder: Path) -> list[Any]:
    """Return the quotes that do not stand in any text of a folder, by their letters alone.

    Pieces between elisions must follow one another in the same file. A page break may put a figure
    or a footnote into a sentence once.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; pass one with the texts of the papers.")
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".txt", ".md"))
    if not paths:
        raise InputError(f"{folder} holds no .txt or .md file; pass a folder with the texts.")
    texts = [letters(path.read_text(encoding="utf-8", errors="replace")) for path in paths]
    return [quote for quote in quotes if not any(_stands(quote.text, text) for text in texts)]


def _stands(quote: str, text: str) -> bool:
    place = 0
    for piece in map(letters, quote.split(ELISION)):
        place = _after(piece, text, place)
        if place < 0:
            return False
    return True


def _after(piece: str, text: str, place: int) -> int:
    """Return where a piece ends in the text, with at most one interruption; −1 if not found."""
    found = text.find(piece, place)
    if found >= 0:
        return found + len(piece)
    for cut in range(len(piece) - PIECE, PIECE - 1, -1):
        first = text.find(piece[:cut], place)
        if first >= 0:
            rest = text.find(piece[cut:], first + cut, first + cut + APART)
            return -1 if rest < 0 else rest + len(piece) - cut
    return -1
