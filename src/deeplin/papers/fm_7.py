"""FM-7: a network with GELU activations, on noiseless data; and the unreported noisy variant."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from deeplin.papers.claims import Claim, number, parts
from deeplin.papers.figure import Figure, Panel, Table
from deeplin.papers.scale_claims import AT_THE_EDGE, RATE, edge_claims, plateau_claim
from deeplin.papers.scale_sweep import ScaleSweep, plot_sharpness, scale_study
from deeplin.papers.setting import Setting
from deeplin.papers.statistics import curve

GELU = Setting(activation="gelu", noise=0.0)
SCALES = tuple(np.linspace(0.428, 0.7, 8).tolist())
PAPER = ((0.005, 160_000, 20), (0.02, 40_000, 20), (0.07, 16_000, 20))
# Small scales leave their plateau only after a time ηt of some hundreds, so the quick preset keeps
# the steps and leaves out the slowest rate, which needs most of them.
QUICK = ((0.02, 40_000, 3), (0.07, 16_000, 3))
NOISELESS = scale_study("fm-7-scales", GELU, SCALES, PAPER, QUICK)
NOISY = scale_study("fm-7-noisy-scales", replace(GELU, noise=1.0), SCALES, PAPER, QUICK)


def noiseless_claims(config: ScaleSweep, table: Table) -> list[Claim]:
    """As for the linear network: small scales end below 2/η, large ones at it."""
    smallest = table[table["scale"] == table["scale"].min()]
    ends = curve(smallest, "learning_rate", "sharpness").set_index("learning_rate")
    low = config.setting.flattest.exact
    counts = ", ".join(f"{n} runs at η = {number(rate)}" for rate, n in ends["runs"].items())
    return [
        Claim(
            "From the smallest scale the sharpness ends below 2/η: mean in units of 2/η",
            parts(RATE, ends["mean"] * ends.index / 2),
            upper=AT_THE_EDGE,
            name="below 2/η",
            reason="Not at 2/η, as the plateau claim counts it.",
            explanation=f"{counts}.",
        ),
        Claim(
            "There it lies between the bounds of the linear network, S_min to 8LΛ: mean over S_min",
            parts(RATE, ends["mean"] / low),
            lower=1.0,
            upper=config.setting.upper_bound / low,
            name="linear bounds",
            reason="The bounds of FM-C2; for a nonlinear network they are a comparison.",
        ),
        *edge_claims(config, table, known="K-11"),
        plateau_claim(table),
    ]


def noisy_claims(config: ScaleSweep, table: Table) -> list[Claim]:
    """With noise the sharpness reaches 2/η everywhere."""
    settled = table[table["status"] != "diverged"]
    height = settled.assign(height=settled["sharpness"] * settled["learning_rate"] / 2)
    cells = height.groupby(["learning_rate", "scale"])["height"].mean()
    return [
        Claim(
            "With noisy data the sharpness reaches 2/η for every learning rate and scale: smallest "
            "mean final sharpness of a scale, in units of 2/η",
            parts(RATE, cells.groupby("learning_rate").min()),
            lower=AT_THE_EDGE,
            name="reaches 2/η",
            reason="The same as for the plateaus of the other figures; it stood at 0.85 here.",
            explanation=f"{len(settled)} of {len(table)} runs survive.",
            known="K-5",
        )
    ]


PLOT = partial(plot_sharpness, upper_bound=True, linear=False)
PRINTED = (
    "GELU after every layer but the last, noiseless data y_0 = Xw_true, scale from 0.428 to 0.7 (8 "
    "values), 20 repetitions. Steps: 160 000 (η = 0.005), 40 000 (0.02), 16 000 (0.07). "
)
AS_RUN = (
    "GELU in its tanh approximation. The bounds are those of the linear network on the same data. "
    "The quick preset leaves out η = 0.005. "
)

FM_7 = Figure(
    "FM-7",
    "A nonlinear network (GELU)",
    (
        Panel(
            "FM-7",
            "Sharpness at initialisation and after training. Dashed: 2/η. Dotted: S_min and 8LΛ of "
            "the linear network.",
            NOISELESS,
            PLOT,
            noiseless_claims,
        ),
    ),
    printed=PRINTED,
    as_run=AS_RUN,
)

FM_7_NOISY = Figure(
    "FM-7-noisy",
    "A nonlinear network (GELU) on noisy data",
    (
        Panel(
            "FM-7-noisy",
            "The variant the paper mentions without a plot: the sharpness reaches 2/η everywhere.",
            NOISY,
            PLOT,
            noisy_claims,
        ),
    ),
    printed=PRINTED + "Noisy variant: y_0 = Xw_true + ζ, no plot reported.",
    as_run=AS_RUN,
)
