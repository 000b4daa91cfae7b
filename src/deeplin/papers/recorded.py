"""The verdicts as they were last recorded, so that a change is noticed and a known failure is not.

`verdicts/quick.json` and `verdicts/paper.json` hold a verdict for each claim of seed 0, under
`panel/name`. Runs at the edge of stability are chaotic: where kernels that differ in the last bit
gave several verdicts, all are recorded, the weakest first and counted, as `fails or holds in part`.
`deeplin reproduce` compares with them. `verdicts/seconds.json` holds the time that
each study took when it was recorded, for the time left. `EXPLANATIONS` say why some printed
sentences do not hold as they stand, each understood and with an id.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from deeplin.papers.claims import FAILS, HOLDS, IN_PART, VERDICTS

FOLDER = files("deeplin.papers").joinpath("verdicts")
OR = " or "


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
    known = _load(path)
    for name, verdict in found.items():
        seen = {verdict, *(known.get(name, verdict).split(OR) if also else ())}
        known[name] = OR.join(v for v in reversed(VERDICTS) if v in seen)
    folder.mkdir(exist_ok=True)
    _save(path, known)


def _load(source: Any) -> dict[str, Any]:
    return json.loads(source.read_text(encoding="utf-8")) if source.is_file() else {}


def _save(path: Path, entries: Mapping[str, Any]) -> None:
    text = json.dumps(dict(sorted(entries.items())), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


EXPLANATIONS = {
    "K-1": "Whether a run survives depends on its start: from a large scale the first steps throw "
    "it so far that it diverges (FM-3, FM-5). The critical rate 2/S_min is about where descent "
    "can settle, not about how many starts get there.",
    "K-2": "A catapult lands a run in a minimiser flatter than 2/η, and nothing drives the "
    "sharpness up again: the risk is already at its minimum. The smaller η, the wider the "
    "range between S_min and 2/η in which it may land.",
    "K-3": "Close to the edge of stability descent settles ever more slowly: with finitely many "
    "steps the measured critical rate stays below 2/S_min, and rises with the steps.",
    "K-4": "A catapult can throw a GELU network where every unit is off: the sharpness is zero and "
    "the network stays the zero predictor.",
    "K-5": "The sharpness still grows when training stops; the smaller η, the higher 2/η and the "
    "longer it takes to get there.",
    "K-6": "‖Θ_⊥‖² is α²(d−n)mq with m = 10(d + q): it grows like d², whatever α is.",
    "K-7": "The relation of sharpness and generalisation gap depends on the data set: its sign is "
    "the same on all we tried, its strength is not.",
    "K-8": "A random start may lie above 2/η; such a run leaves the edge at once and stays below.",
    "K-9": "Where no run diverges, or every run does, the probability is flat: it grows between.",
    "K-10": "A few runs contract slowly: after 450 steps they are on their way to w*, not there.",
    "K-11": "At the edge of stability the sharpness oscillates around 2/η: at the last step single "
    "runs are above it, their mean is not.",
    "K-12": "Among trained networks both effects are small; what the printed figure shows as the "
    "effect of α is mostly the untrained network at α = 0 (E-10). In the full protocol the "
    "difference of the two, 0.020, is as large as half its 95% interval: the last digits of "
    "single precision decided on which side of zero the lower end fell (4e-4, then −3e-4).",
    "K-14": "At the smallest rates 2/η is so high that no start of the sweep lies far above it.",
    "K-15": "A few data sets do not resolve an effect of some percent; the full protocol has "
    "twenty.",
    "K-16": "Both bounds on Ξ are far above what is measured. What Θ_⊥ gains in training grows "
    "with depth, faster than either factor of depth, from a very small value: they are bounds, "
    "not laws.",
    "K-17": "The proof of FM-L3 takes a union over a net of 5^d points. Its bounds hold, but only "
    "from a depth that grows nearly like s⁴, and they are orders of magnitude wider than what "
    "random layers do. Training converges far outside them.",
    "K-29": "From a small first layer some ReLU networks stall: 300 steps of the solver, or the "
    "last that helps, leave their loss above 1e-7. Looked at in one of them (loss 0.15 after 90 "
    "steps): every unit is alive, the Jacobian has full rank and the gradient is not zero, so it "
    "is no minimum and not rounding. But a step that would halve the linearised loss switches "
    "some 2000 of 50 000 activations and raises the true one; the steps that still help gain half "
    "a percent. The other claims take such networks as they ended.",
    "K-18": "The orbit of a mode (X-12) is judged by itself. In the whole network the singular "
    "vectors of modes close in size turn: errors that mix two modes grow from about half "
    "of the way between their thresholds on, and always when both oscillate.",
    "K-19": "The central flow leaves out terms of fourth order in the size of the oscillation: "
    "above the critical rate descent swings too widely for it. Below that rate the difference is "
    "there at step 10 and stays: the first steps are too long to follow the flow, and descent ends "
    "in a flatter minimiser. On three of these four data sets the model stays below the edge, "
    "where it is the flow; on one (10) the start lies above it.",
    "K-20": "Inferred, not tested: at many starts the sharpness lies in the blocks between layers, "
    "which are of the size of the gradient: it falls with the gap at first, and grows later.",
    "K-21": "The shares of two halves do not add up. Inferred, not tested: with half of the layers "
    "as at the start the gradient stays larger, and with it the blocks between layers; from small "
    "starts either half alone then makes up for all of the growth.",
    "K-22": "The theorem is about scalar layers. With matrices a step well below the edge moves "
    "the end of the flow by little, and in either direction; over a run at the edge it falls.",
    "K-30": "Above the critical rate a run may stay bounded and wander, and at the last step be "
    "passing by w*. Looked at where it was found (data set 11, one of some 18 000 pairs): the gap "
    "is below that of the start for a few steps around the last, and 10 steps later is 60 000 "
    "times as large. In FM-2 up to 3% of the runs of a depth and data set pass by, all of them at "
    "1.37 to 2.02 times the critical rate; none has converged.",
    "K-31": "Where the flow would end hardly sharper than the start (at most 0.02 of 2/η on the "
    "four data sets on which the sharpness falls) there is nothing to gain, and steps of 0.7 of "
    "the critical rate lead to a flatter minimiser than the flow does.",
}
"""A claim that fails names one of these, or an erratum (`deeplin.papers.errata`)."""
