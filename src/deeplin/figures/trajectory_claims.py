"""What the papers claim about single trainings, judged for every repetition."""

from __future__ import annotations

import numpy as np

from deeplin.figures.claims import POSITIVE, Claim, number
from deeplin.figures.statistics import mean_interval
from deeplin.figures.tables import Table
from deeplin.figures.trajectories import Trajectories


def _runs(values) -> dict[str, float]:
    """One part for each repetition."""
    return {f"run {int(repetition)}": value for repetition, value in values.items()}


def stable_claims(table: Table, learning_rate: float) -> list[Claim]:
    """A small rate does not meet the edge of stability and reaches w*."""
    runs = table[table["learning_rate"] == learning_rate]
    last = runs[runs["step"] == runs["step"].max()].set_index("repetition")
    height = runs["sharpness"] * learning_rate / 2
    late = height[runs["step"] >= 2 / 3 * runs["step"].max()].max()
    return [
        Claim(
            f"η = {number(learning_rate)} does not enter the edge of stability: largest sharpness "
            "of a run at any step, in units of 2/η",
            _runs(height.groupby(runs["repetition"]).max()),
            upper=1.0,
            name="below the edge",
            reason="The printed threshold, for the whole run.",
            explanation=f"Over the last third of all runs the largest is {number(late)}.",
            known="K-8",
        ),
        Claim(
            f"η = {number(learning_rate)} reaches w*: final squared distance of each run",
            _runs(last["distance"]),
            upper=1e-6,
            name="reaches w*",
            reason="A millionth of ‖w*‖², first set before the runs; it stood at 1e-3 for a while.",
            known="K-10",
        ),
    ]


def edge_of_stability_claims(table: Table, learning_rate: float) -> list[Claim]:
    """A larger rate oscillates around 2/η."""
    runs = table[(table["learning_rate"] == learning_rate) & (table["status"] != "diverged")]
    height = runs.assign(height=runs["sharpness"] * learning_rate / 2)
    late = height[height["step"] >= 2 / 3 * height["step"].max()]
    # A run that settles at the edge stops crossing: count crossings over the whole run.
    crossings = {
        repetition: np.count_nonzero(np.diff(run["height"].to_numpy() > 1))
        for repetition, run in height.groupby("repetition")
    }
    return [
        Claim(
            f"η = {number(learning_rate)} enters the edge of stability: how often the sharpness of "
            "a run crosses 2/η",
            _runs(crossings),
            lower=10,
            name="enters the edge",
            reason="An oscillation, not a passage: ten crossings in 400 steps.",
        ),
        Claim(
            f"η = {number(learning_rate)} oscillates around it: mean of a run's sharpness over its "
            "last third, in units of 2/η",
            _runs(late.groupby("repetition")["height"].mean()),
            lower=0.9,
            upper=1.1,
            name="stays around 2/η",
            reason="A tenth on either side.",
        ),
    ]


def conservation_claims(config: Trajectories, table: Table) -> list[Claim]:
    """What flow conserves descent moves in proportion to η, and strongly at the edge."""
    slow, middle, fast = sorted(rate.learning_rate for rate in config.rates)
    drift = table.groupby(["learning_rate", "repetition"])["conservation"].max()
    return [
        Claim(
            "Flow conserves W_{k+1}ᵀW_{k+1} − W_kW_kᵀ (FM-L1); below the edge the drift of descent "
            f"is proportional to η: drift at {number(middle)} over that at {number(slow)}, divided "
            "by the ratio of the rates",
            _runs(drift[middle] / drift[slow] / (middle / slow)),
            lower=0.8,
            upper=1.25,
            name="drift like η",
            reason="A quarter, where the rates differ by ten; the next order is η².",
        ),
        Claim(
            f"At the edge (η = {number(fast)}) descent leaves the conserved surface: drift "
            f"relative to that at η = {number(middle)}, divided by the ratio of the rates",
            _runs(drift[fast] / drift[middle] / (fast / middle)),
            lower=2.0,
            name="drift at the edge",
            reason="Twice what proportionality gives.",
        ),
    ]


def alignment_claims(config: Trajectories, table: Table) -> list[Claim]:
    """Neighbouring layers align during training."""
    slow, middle, _ = sorted(rate.learning_rate for rate in config.rates)
    parts = {}
    for rate in (slow, middle):
        runs = table[table["learning_rate"] == rate].set_index("repetition")
        ends = [runs.loc[runs["step"] == step, "alignment"] for step in (0, runs["step"].max())]
        mean, half = mean_interval((ends[1] - ends[0]).to_numpy())
        parts[f"η = {number(rate)}"] = mean - half
    return [
        Claim(
            "Layers align (FM-L2 c): growth of ⟨v_{k+1}, u_k⟩² over training, mean over layers, "
            "lower end of its paired 95% interval",
            parts,
            lower=POSITIVE,
            name="layers align",
            reason="A paired interval that excludes no growth.",
            explanation="The guarantee 1 − ε/σ² of FM-L2 c is about small initialisations and "
            "says nothing at this scale, where ε is larger than σ²; alignment grows all the same.",
        )
    ]
