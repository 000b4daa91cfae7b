"""What the papers claim about single trainings, measured over all repetitions."""

from __future__ import annotations

import numpy as np

from deeplin.figures.claims import Claim, number
from deeplin.figures.tables import Table
from deeplin.figures.trajectories import Trajectories


def stable_claims(table: Table, learning_rate: float) -> list[Claim]:
    """A small rate does not stay at the edge of stability and reaches w*.

    A random start may lie above 2/η: such runs are counted and told, but the edge of stability is
    where training stays, so the claim looks at the last third, as for rates that do enter it.
    """
    runs = table[table["learning_rate"] == learning_rate]
    last = runs[runs["step"] == runs["step"].max()]
    height = runs["sharpness"] * learning_rate / 2
    highest = height.groupby(runs["repetition"]).max()
    return [
        Claim(
            f"η = {number(learning_rate)} does not enter the edge of stability: largest sharpness "
            "of all runs over their last third, in units of 2/η",
            height[runs["step"] >= 2 / 3 * runs["step"].max()].max(),
            upper=1.0,
            explanation=f"Above 2/η at any step, the start included: {(highest > 1).sum()} of "
            f"{len(highest)} runs; the highest point of all is {number(highest.max())} times 2/η.",
        ),
        Claim(
            f"η = {number(learning_rate)} reaches w*: largest final squared distance",
            last["distance"].max(),
            upper=1e-3,
        ),
    ]


def edge_of_stability_claims(table: Table, learning_rate: float) -> list[Claim]:
    """A larger rate oscillates around 2/η."""
    runs = table[(table["learning_rate"] == learning_rate) & (table["status"] != "diverged")]
    height = runs.assign(height=runs["sharpness"] * learning_rate / 2)
    late = height[height["step"] >= 2 / 3 * height["step"].max()]
    # A run that settles at the edge stops crossing: count crossings over the whole run.
    crossings = [
        int(np.count_nonzero(np.diff(run["height"].to_numpy() > 1)))
        for _, run in height.groupby("repetition")
    ]
    means = late.groupby("repetition")["height"].mean()
    return [
        Claim(
            f"η = {number(learning_rate)} enters the edge of stability: fewest times the sharpness "
            "of a run crosses 2/η",
            min(crossings, default=0),
            lower=10,
        ),
        Claim(
            f"η = {number(learning_rate)} stays around it: farthest mean of a run's sharpness over "
            "its last third, in units of 2/η",
            means.iloc[(means - 1).abs().argmax()] if len(means) else np.nan,
            lower=0.9,
            upper=1.1,
        ),
    ]


def conservation_claims(config: Trajectories, table: Table) -> list[Claim]:
    """What flow conserves descent moves in proportion to η, and strongly at the edge."""
    slow, middle, fast = sorted(rate.learning_rate for rate in config.rates)
    drift = table.groupby(["learning_rate", "repetition"])["conservation"].max()
    ratio = (drift[middle] / drift[slow]).to_numpy() / (middle / slow)
    return [
        Claim(
            "Flow conserves W_{k+1}ᵀW_{k+1} − W_kW_kᵀ (FM-L1); below the edge the drift of descent "
            f"is proportional to η: drift at {number(middle)} over that at {number(slow)}, divided "
            "by the ratio of the rates (the run farthest from 1)",
            ratio[np.abs(np.log(ratio)).argmax()],
            lower=0.8,
            upper=1.25,
        ),
        Claim(
            f"At the edge (η = {number(fast)}) descent leaves the conserved surface: smallest "
            f"drift relative to that at η = {number(middle)}, divided by the ratio of the rates",
            (drift[fast] / drift[middle]).min() / (fast / middle),
            lower=2.0,
        ),
    ]


def alignment_claims(config: Trajectories, table: Table) -> list[Claim]:
    """Neighbouring layers align during training."""
    slow, middle, _ = sorted(rate.learning_rate for rate in config.rates)
    runs = table[table["learning_rate"].isin((slow, middle))]
    first = runs[runs["step"] == 0].groupby(["learning_rate", "repetition"])["alignment"].mean()
    steps = runs.groupby("learning_rate")["step"].transform("max")
    last = runs[runs["step"] == steps].groupby(["learning_rate", "repetition"])["alignment"].mean()
    return [
        Claim(
            "Layers align (FM-L2 c): growth of ⟨v_{k+1}, u_k⟩² over training, mean over layers and "
            "runs below the edge",
            (last - first).mean(),
            lower=0.05,
            explanation="The guarantee 1 − ε/σ² of FM-L2 c is about small initialisations and "
            "says nothing at this scale, where ε is larger than σ²; alignment grows all the same.",
        )
    ]
