"""FM-7: a network with GELU activations, on noiseless data; and the unreported noisy variant."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from deeplin.papers.figures import Figure, Panel, Table, our_panel
from deeplin.papers.question import Question, each, number
from deeplin.papers.scale_sweep import ScaleSweep, plot_sharpness, scale_study
from deeplin.papers.setting import Setting

GELU = Setting(activation="gelu", noise=0.0)
# Small scales leave their plateau only after a time ηt of some hundreds, so the quick preset keeps
# the steps and leaves out the slowest rate, which needs most of them.
QUICK = ((0.02, 40_000, 3), (0.07, 16_000, 3))
NOISELESS = scale_study("fm-7-scales", GELU, "FM-7", QUICK)
NOISY = scale_study("fm-7-noisy-scales", replace(GELU, noise=1.0), "FM-7", QUICK)
DEAD = 1e-3
"""Final sharpness, in units of 2/η, below which no unit of a network is on any more."""


def dead_questions(config: ScaleSweep, table: Table) -> list[Question]:
    """How many networks the first steps switch off."""
    settled = table[table["status"] != "diverged"]
    height = settled["sharpness"] * settled["learning_rate"] / 2
    start = settled["initial_sharpness"] * settled["learning_rate"] / 2 > 1
    dead = (height < DEAD)[start]
    alive = height[start & (height >= DEAD)].groupby(settled["learning_rate"]).mean()
    return [
        Question(
            "switched off",
            "What happens to runs that start above 2/η?",
            f"{len(dead)} start there and do not diverge. In {int(dead.sum())} of them the first "
            "steps switch every unit off: the sharpness is then 0 and the network stays constant. "
            f"The others end at {each('η = {}', alive)} of 2/η on average; the largest of all runs "
            f"ends at {number(height.max())}.",
        )
    ]


PLOT = partial(plot_sharpness, upper_bound=True, linear=False)
PRINTED = (
    "GELU after every layer but the last, noiseless data y_0 = Xw_true, scale from 0.428 to 0.7 (8 "
    "values), 20 repetitions. Steps: 160 000 (η = 0.005), 40 000 (0.02), 16 000 (0.07). "
)
AS_RUN = (
    "The authors' own data and starts, in float64. GELU in its tanh approximation. The bounds are "
    "those of the linear network on the same data. The quick preset leaves out η = 0.005. "
)

FM_7 = Figure(
    "FM-7",
    "A nonlinear network (GELU)",
    (
        Panel(
            "FM-7",
            "Sharpness at initialization and after training. Dashed: 2/η. Dotted: S_min and 8LΛ of "
            "the linear network.",
            NOISELESS,
            PLOT,
            dead_questions,
        ),
    ),
    printed=PRINTED,
    as_run=AS_RUN,
)

FM_7_NOISY = Figure(
    "FM-7-noisy",
    "A nonlinear network (GELU) on noisy data",
    (
        our_panel(
            "FM-7-noisy",
            "The variant that the paper mentions without a plot.",
            NOISY,
            PLOT,
        ),
    ),
    printed=PRINTED + "Noisy variant: y_0 = Xw_true + ζ, no plot reported.",
    as_run=AS_RUN,
)
