"""What a training did, in words: converged or diverged, and on which side of 2/η."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape

import numpy as np

from deeplin.dynamics.run import CONVERGED, DIVERGED
from deeplin.explorer.compute import Training
from deeplin.explorer.state import BOUNDS, DATA, DESCENT, NETWORK, State

NEAR = (0.85, 1.15)
"""Sharpness times η/2 that counts as being at the edge."""
REGIMES = {
    "diverged": "Diverged",
    "edge": "Edge of stability: the sharpness hovers at 2/η",
    "catapult": "Catapult: the start is sharper than 2/η, the end is flatter",
    "sharpening": "Progressive sharpening, below 2/η",
    "calm": "The sharpness stays below 2/η: descent follows gradient flow",
    "crossing": "The sharpness crosses 2/η and settles below it",
    "above": "Still sharper than 2/η at the end: not settled",
}


@dataclass(frozen=True)
class Verdict:
    """A headline, the sentences after it, and how alarming it is: good, warn or bad."""

    headline: str
    sentences: tuple[str, ...]
    level: str

    def html(self) -> str:
        """The verdict as a paragraph."""
        rest = escape(" ".join(self.sentences))
        return f'<p class="{self.level}"><b>{escape(self.headline)}</b> {rest}</p>'


def regime(sharpness: np.ndarray, threshold: float, diverged: bool) -> str:
    """The kind of one run, from its sharpness along the way (a key of `REGIMES`)."""
    ratio = sharpness[~np.isnan(sharpness)] / threshold
    if diverged or len(ratio) == 0:
        return "diverged"
    tail = np.median(ratio[-max(1, len(ratio) // 4) :])
    if NEAR[0] <= tail <= NEAR[1] and ratio.max() > 0.97:
        return "edge"
    if tail > 1:
        return "above"
    if ratio[0] > 1:
        return "catapult"
    if ratio.max() > 1:
        return "crossing"
    return "sharpening" if ratio[-1] > 1.3 * ratio.min() else "calm"


def describe(state: State, training: Training) -> Verdict:
    """The verdict of a training."""
    status = np.atleast_1d(training.run.status)
    diverged = status == DIVERGED
    threshold = 2 / state.learning_rate
    kinds = Counter(
        regime(training.series["sharpness"][:, run], threshold, bool(diverged[run]))
        for run in range(len(status))
    )
    kind, count = kinds.most_common(1)[0]
    runs = len(status)
    share = "" if count == runs else f" ({count} of {runs} runs)"
    sentences = (*_rate(state, training), *_ends(state, training, diverged))
    settled = not diverged.any() and kind != "above"
    if "gap" in training.series:
        settled = settled and bool(np.all(status == CONVERGED))
    level = "bad" if diverged.all() else "good" if settled else "warn"
    headline = _outcome(status, diverged, training)
    if kind != "diverged":
        headline += f" {REGIMES[kind]}{share}."
    return Verdict(headline, sentences, level)


def _outcome(status: np.ndarray, diverged: np.ndarray, training: Training) -> str:
    runs, lost = len(status), int(diverged.sum())
    if lost:
        first = int(np.atleast_1d(training.run.steps)[diverged].min())
        who = "The run" if runs == 1 else "All runs" if lost == runs else f"{lost} of {runs} runs"
        return f"{who} diverged, the first at step {first}."
    if "gap" not in training.series:
        return "Training stayed finite."
    reached = int(np.sum(status == CONVERGED))
    if reached == runs:
        return "Converged." if runs == 1 else f"All {runs} runs converged."
    who = "The run" if runs == 1 else f"{runs - reached} of {runs} runs"
    return f"{who} had not converged after the last step."


def _rate(state: State, training: Training) -> tuple[str, ...]:
    if training.theory is None:
        return ("The theory lines are about linear networks and are left out.",)
    critical = training.theory.critical_rate
    times = state.learning_rate / critical
    if times > 1:
        return (
            f"η = {state.learning_rate:.3g} is {times:.2f} times the critical rate "
            f"2/S_min = {critical:.3g}: no minimiser is stable.",
        )
    return (
        f"η = {state.learning_rate:.3g} is {times:.0%} of the critical rate "
        f"2/S_min = {critical:.3g}.",
    )


def _ends(state: State, training: Training, diverged: np.ndarray) -> tuple[str, ...]:
    if diverged.all():
        return ()
    final = training.series["sharpness"][-1, ~diverged]
    middle = float(np.median(final))
    text = f"Final sharpness {middle:.3g} = {middle * state.learning_rate / 2:.2f} · 2/η"
    if training.theory is not None:
        text += f" = {middle / training.theory.exact:.2f} · S_min"
    return (text + ".",)


def compare(state: State, training: Training, kept: dict[str, Training]) -> str:
    """The kept runs beside the present one: the inputs that differ, and how each ended."""
    if not kept:
        return ""
    states = {"now": state} | {
        slot[-1].upper(): State.from_link(getattr(state, slot)) for slot in kept
    }
    runs = {"now": training} | {slot[-1].upper(): run for slot, run in kept.items()}
    rows = [
        (BOUNDS[name].label, [getattr(each, name) for each in states.values()])
        for name in (*DATA, *NETWORK, *DESCENT)
        if len({getattr(each, name) for each in states.values()}) > 1
    ]
    verdicts = [describe(states[name], runs[name]).headline for name in runs]
    finals = [np.nanmedian(run.series["sharpness"][-1:]) for run in runs.values()]
    rows += [("Outcome", verdicts), ("Final sharpness", [f"{value:.4g}" for value in finals])]
    head = "".join(f'<th class="run-{name}">{name}</th>' for name in states)
    body = "".join(
        f"<tr><th>{escape(label)}</th>"
        + "".join(f"<td>{escape(str(value))}</td>" for value in values)
        + "</tr>"
        for label, values in rows
    )
    return f"<table><tr><th></th>{head}</tr>{body}</table>"
