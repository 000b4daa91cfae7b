"""The verdicts as they were last recorded, so that a change is noticed and a known failure is not.

`verdicts/quick.json` and `verdicts/paper.json` hold a verdict for each claim of seed 0, under
`panel/name`. Runs at the edge of stability are chaotic: where kernels that differ in the last bit
gave several verdicts, all are recorded, the weakest first and counted, as `fails or holds in part`.
`deeplin reproduce` compares with them. `verdicts/seconds.json` holds the time that
each study took when it was recorded, for the time left.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from deeplin.figures.claims import FAILS, HOLDS, IN_PART

FOLDER = files("deeplin.figures").joinpath("verdicts")
OR = " or "
WEAKEST_FIRST = (FAILS, IN_PART, HOLDS)


class Change(NamedTuple):
    """A verdict that is not the recorded one."""

    claim: str
    recorded: str
    found: str


def read(preset: str) -> dict[str, str]:
    """Claim → recorded verdict; empty where nothing was recorded."""
    return _load(FOLDER.joinpath(f"{preset}.json"))


def seconds(preset: str) -> dict[str, float]:
    """Study → seconds that it took when it was recorded."""
    return _load(FOLDER.joinpath("seconds.json")).get(preset, {})


def claims(outcomes: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The claims of the outcomes of figures, by the name under which their verdict is recorded."""
    return {
        f"{panel['name']}/{claim['name']}": claim
        for outcome in outcomes
        for panel in outcome["panels"]
        for claim in panel["claims"]
    }


def verdicts(outcomes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Claim → verdict of the outcomes of figures."""
    return {name: claim["verdict"] for name, claim in claims(outcomes).items()}


def changes(found: Mapping[str, str], known: Mapping[str, str]) -> list[Change]:
    """The claims whose verdict is not the recorded one, or that were never recorded."""
    rows = ((claim, known.get(claim, "not recorded"), verdict) for claim, verdict in found.items())
    return [Change(*row) for row in rows if row[2] not in row[1].split(OR)]


def counted(preset: str, panels: Collection[str]) -> str:
    """The recorded verdicts of these panels, as `tally` says it, or `not recorded`."""
    mine = [verdict for claim, verdict in read(preset).items() if claim.split("/")[0] in panels]
    return tally(mine) if mine else "not recorded"


def tally(found: Iterable[str]) -> str:
    """`3 of 6 claims hold, 2 in part, 1 fails`, leaving out what there is none of."""
    counts = Counter(verdict.split(OR)[0] for verdict in found)
    text = f"{counts[HOLDS]} of {sum(counts.values())} claims hold"
    if counts[IN_PART]:
        text += f", {counts[IN_PART]} in part"
    if counts[FAILS]:
        text += f", {counts[FAILS]} {'fails' if counts[FAILS] == 1 else 'fail'}"
    return text


def record_seconds(preset: str, outcomes: Iterable[Mapping[str, Any]], folder: Path) -> None:
    """Write the times of the studies of a preset, keeping the others."""
    path = folder / "seconds.json"
    known = _load(path)
    found = {d["study"]: float(f"{d['seconds']:.2g}") for o in outcomes for d in o["data"]}
    _save(path, known | {preset: dict(sorted((known.get(preset, {}) | found).items()))})


def record(preset: str, found: Mapping[str, str], folder: Path, *, also: bool = False) -> None:
    """Write the verdicts of a preset, keeping those of claims that were not judged now.

    With `also` they are recorded beside what stands there, for claims about chaotic runs.
    """
    path = folder / f"{preset}.json"
    old = _load(path)
    if also:
        both = {
            name: {verdict, *old.get(name, verdict).split(OR)} for name, verdict in found.items()
        }
        found = {
            name: OR.join(v for v in WEAKEST_FIRST if v in seen) for name, seen in both.items()
        }
    folder.mkdir(exist_ok=True)
    _save(path, {**old, **found})


def _load(source: Any) -> dict[str, Any]:
    return json.loads(source.read_text(encoding="utf-8")) if source.is_file() else {}


def _save(path: Path, entries: Mapping[str, Any]) -> None:
    text = json.dumps(dict(sorted(entries.items())), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
