"""Verdicts: of a number, a quote and a panel; the record of them, and the three summary lines.

`recorded.json` holds, for each preset at seed 0, the figures that were run, the verdict and value
of every quote, the answer to every question, the count of theorems and the seconds of every study,
with the commit that ran a figure and the one whose reading judged a quote.
`docs/record.py` writes it from finished reports; `deeplin reproduce` compares with it. A figure
whose full protocol has not been run has only a record of its quick preset (`latest`, `provenance`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import stats

from deeplin.papers.statistics import LEVEL, mean_interval, number, percent, share_interval

if TYPE_CHECKING:
    from deeplin.papers.figures import Study

VERDICTS = REPRODUCED, DIFFERS, UNDECIDED = ("reproduced", "differs", "undecided")
KINDS = ("figures", "quotes", "questions", "panels", "theorems", "seconds")
SOURCE = "recorded.json"


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
    share: bool = False
    """Whether it is a share of the runs, which is written as a percentage."""

    @property
    def judged(self) -> bool:
        """Whether the number has a limit; others are shown beside those that have."""
        return self.lower > -math.inf or self.upper < math.inf

    @property
    def verdict(self) -> str:
        """Whether the interval lies within the limits, outside of them, or on both sides."""
        if self.lower <= self.low and self.high <= self.upper:
            return REPRODUCED
        return DIFFERS if self.high < self.lower or self.low > self.upper else UNDECIDED

    @property
    def text(self) -> str:
        """Name, value, interval and limits in one line."""
        write = percent if self.share else number
        name = f"{self.name}: " if self.name else ""
        spread = f" [{write(self.low)}, {write(self.high)}]" if self.low < self.high else ""
        found = f"{name}{write(self.value)}{f' of {self.runs} runs' if self.share else ''}{spread}"
        if not self.judged:
            return found
        if self.share and 1 in (self.lower, 1 - self.upper):
            limits = "asked: all" if self.lower == 1 else "asked: none"
        elif math.isinf(self.lower):
            limits = f"at most {write(self.upper)}"
        elif math.isinf(self.upper):
            limits = f"at least {write(self.lower)}"
        else:
            limits = f"{write(self.lower)} to {write(self.upper)}"
        return f"{found} ({limits})"

    @property
    def decided_by(self) -> int | None:
        """Approximate number of runs that would move the interval to one side of the nearest
        limit."""
        half = (self.high - self.low) / 2
        if math.isinf(half):
            return FEWEST
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


FEWEST = 6
"""Smallest number of runs whose median has a 95% interval."""


def median_of(name: str, values: Any, lower: float = -math.inf, upper: float = math.inf) -> Part:
    """Return a median with the 95% interval of its order statistics, whatever the law.

    Fewer than six values have no such interval: it reaches from −∞ to ∞.
    """
    values = np.sort(np.asarray(values, float))
    count = len(values)
    if count < FEWEST:
        low, high = -math.inf, math.inf
    else:  # P(fewer than k of n values below the median) ≤ 0.025 on each side
        k = int(stats.binom.ppf((1 - LEVEL) / 2, count, 0.5))
        low, high = values[k - 1], values[count - k]
    middle = float(np.median(values)) if count else math.nan
    return Part(name, middle, float(low), float(high), lower, upper, count)


def share_of(name: str, flags: Any, lower: float = -math.inf, upper: float = math.inf) -> Part:
    """Return a share with Wilson's 95% interval, judged by its value alone where it is 0 or 1.

    The interval of "20 of 20" reaches down to 0.84, which would leave every sentence about all runs
    undecided, although no run contradicts it.
    """
    flags = np.asarray(flags, dtype=bool)
    value = float(flags.mean()) if flags.size else math.nan
    if not flags.size or value in (0.0, 1.0):
        return Part(name, value, value, value, lower, upper, flags.size, share=True)
    low, high = share_interval(int(flags.sum()), flags.size)
    return Part(name, value, low, high, lower, upper, flags.size, share=True)


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
        return recorded_quote(self.name).get("verdict", "not run")

    @property
    def value(self) -> str:
        """The recorded measurement behind the verdict."""
        return recorded_quote(self.name).get("value", "")

    def runs(self, preset: str) -> int:
        """Return the number of runs of its studies in a preset."""
        return sum(study.runs(study.presets[preset]) for study in self.studies)

    def judge(self, config: Any, *tables: Any, preset: str = "paper") -> dict[str, Any]:
        """Measure the tables and return the verdict with all data for the page.

        A measurement is never overruled: beside the verdict of the quick preset stands the recorded
        one of the full protocol, each with its number of runs.
        """
        parts = [part for part in self.measure(config, *tables) if not math.isnan(part.value)]
        found = combined(part.verdict for part in parts if part.judged)
        known = recorded_quote(self.name, "paper")
        return {
            **{key: getattr(self, key) for key in ("name", "paper", "place")},
            **{key: getattr(self, key) for key in ("text", "reading", "panel")},
            "verdict": found,
            "value": _value(parts, found),
            "parts": [part.text for part in parts],
            "of_runs": self.runs(preset),
            "decides": _decides(parts) if found == UNDECIDED else "",
            "full": known | {"of_runs": self.runs("paper")} if preset == "quick" and known else {},
            "why": self.why if DIFFERS in (found, known.get("verdict")) else "",
        }


def combined(verdicts: Iterable[str]) -> str:
    """Return the verdict on what has several parts, as a sentence or a panel.

    It is reproduced if all parts are, differs if one does, and is undecided otherwise, also without
    any part.
    """
    found = set(verdicts)
    if DIFFERS in found:
        return DIFFERS
    return REPRODUCED if found == {REPRODUCED} else UNDECIDED


def _decides(parts: Sequence[Part]) -> str:
    """Return how many runs would decide, taken from the number that is decided first."""
    needed = [part.decided_by for part in parts if part.decided_by]
    if not needed:
        return ""
    first = f" the first of {len(needed)} open numbers" if len(needed) > 1 else ""
    return f"About {min(needed)} runs would decide{first}."


def _value(parts: Sequence[Part], verdict: str) -> str:
    """Return the part that decides; of several that agree, the one nearest to its limits."""
    if not parts:
        return "nothing to measure"

    def margin(part: Part) -> float:
        size = max(abs(part.value), 1e-12)
        return min(part.low - part.lower, part.upper - part.high) / size

    limited = [part for part in parts if part.judged] or list(parts)
    deciding = [part for part in limited if part.verdict == verdict] or limited
    shown = min(deciding, key=margin)
    more = f", of {len(limited)} numbers" if len(limited) > 1 else ""
    return shown.text + more


class Change(NamedTuple):
    """A verdict that contradicts the recorded one."""

    quote: str
    recorded: str
    found: str


@cache
def everything() -> dict[str, dict[str, Any]]:
    """Read the records by preset."""
    source = files("deeplin.papers").joinpath(SOURCE)
    return json.loads(source.read_text(encoding="utf-8")) if source.is_file() else {}


def read(preset: str, kind: str) -> dict[str, Any]:
    """Return the records of one of `KINDS`."""
    return everything().get(preset, {}).get(kind, {})


def latest() -> dict[str, dict[str, Any]]:
    """Return the record of each figure: of the full protocol, or else of the quick preset."""
    return {kind: read("quick", kind) | read("paper", kind) for kind in KINDS}


def recorded_quote(name: str, preset: str = "") -> dict[str, str]:
    """Return the recorded verdict and value of a quote, by default of the full protocol."""
    presets = (preset,) if preset else ("paper", "quick")
    return next((found for p in presets if (found := read(p, "quotes").get(name))), {})


def collect(outcomes: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the outcomes of figures in the form in which they are recorded."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for outcome in outcomes:
        commit = outcome["environment"]["commit"] or ""
        found["figures"][outcome["name"]] = {"preset": outcome["preset"], "commit": commit[:12]}
        for quote in outcome["quotes"]:
            judged = {key: quote[key] for key in ("verdict", "value")}
            found["quotes"][quote["name"]] = judged | {"commit": commit[:12]}
        for panel in outcome["panels"]:
            if not panel["ours"]:
                found["panels"][panel["name"]] = panel_verdict(panel["name"], outcome["quotes"])
            for question in panel["questions"]:
                key = f"{panel['name']}/{question['name']}"
                found["questions"][key] = question["answer"]
        found["theorems"] |= outcome["theorems"]
        for study in outcome["data"]:
            found["seconds"][study["study"]] = float(f"{study['seconds']:.2g}")
    return found


def panel_verdict(name: str, quotes: Iterable[Mapping[str, Any]]) -> str:
    """Return the verdict on a panel: that of all quotes about it together."""
    return combined(quote["verdict"] for quote in quotes if quote["panel"] == name)


def summary(found: Mapping[str, Mapping[str, Any]]) -> tuple[str, str, str]:
    """Return the three lines that README, report, documentation and command print.

    `found` is the result of `collect` or `latest`, or the record of a preset.
    """
    panels, theorems = found.get("panels", {}), found.get("theorems", {})
    quotes = [entry["verdict"] for entry in found.get("quotes", {}).values()]
    named = (
        f"{len(names)} {word}{'s' if verdict == DIFFERS and len(names) == 1 else ''} "
        f"({', '.join(names)})"
        for verdict, word in ((DIFFERS, "differ"), (UNDECIDED, "undecided"))
        if (names := [name for name, known in panels.items() if known == verdict])
    )
    first = f"{list(panels.values()).count(REPRODUCED)} of {len(panels)} reproduced"
    return (
        f"Panels: {', '.join([first, *named])}." if panels else "Panels: none of a paper here.",
        f"Quotes: {counted(quotes)}." if quotes else "Quotes: none here.",
        f"Theorems: {theorem_count(theorems) if theorems else 'none judged here'}.",
    )


def counted(verdicts: Sequence[str]) -> str:
    """Return how many there are of each verdict."""
    reproduced, different, open_ = (verdicts.count(verdict) for verdict in VERDICTS)
    verb = "differs" if different == 1 else "differ"
    return f"{reproduced} reproduced, {different} {verb}, {open_} undecided"


def provenance(figures: Mapping[str, Mapping[str, str]]) -> str:
    """Return which figures were run with the full protocol, and which with the quick preset.

    `figures` has the preset of each, as in `latest()["figures"]`.
    """
    full, few = (
        [name for name, run in figures.items() if run["preset"] == preset]
        for preset in ("paper", "quick")
    )
    if not few:
        return "Full protocol of the papers."
    if not full:
        return "Quick preset (few runs)."
    if len(few) <= len(full):
        return f"Full protocol; quick preset (few runs) for {', '.join(few)}."
    return f"Quick preset (few runs); full protocol for {', '.join(full)}."


def theorem_count(theorems: Mapping[str, Any]) -> str:
    """Return how many of the papers' theorems were judged, and what was checked beside them."""
    judged, unmet = theorems["theorems"], theorems["unmet"]
    violated = ", ".join(theorems["violated"]) or "none"
    missing = f" (no run meets the hypotheses of {', '.join(unmet)})" if unmet else ""
    return (
        f"judged {len(judged)} of the papers' {len(judged) + len(unmet)} theorems{missing} on "
        f"{theorems['runs']} runs, {violated} violated; apart from these {theorems['lemmas']} "
        f"lemmas, definitions and other statements and {theorems['exact']} exact results"
    )


def changes(outcomes: Iterable[Mapping[str, Any]]) -> list[Change]:
    """Return the quotes that are recorded as reproduced and differ now, or conversely.

    Undecided is not a contradiction: an interval may touch its limit on another processor. Only
    seed 0 is recorded, so other seeds are not compared.
    """
    found = []
    for outcome in (outcome for outcome in outcomes if outcome["seed"] == 0):
        known = read(outcome["preset"], "quotes")
        for quote in outcome["quotes"]:
            before = known.get(quote["name"], {}).get("verdict")
            if {before, quote["verdict"]} == {"reproduced", "differs"}:
                found.append(Change(quote["name"], before, quote["verdict"]))
    return found


def record(preset: str, found: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Write the results of a preset, keeping those that were not computed now."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    mine = known.get(preset, {})
    merged = mine | {kind: mine.get(kind, {}) | dict(rows) for kind, rows in found.items()}
    text = json.dumps(known | {preset: merged}, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")
