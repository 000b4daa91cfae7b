"""FM-7: a nonlinear network (GELU), and the variant with noise that the paper does not plot."""

from __future__ import annotations

from dataclasses import replace

from deeplin.papers.figures import Answers, Table, define_figure
from deeplin.papers.scale_sweep import ScaleSweep, dead, scale_study, sharpness_panel
from deeplin.papers.setting import Setting

SETTING = Setting(activation="gelu", noise=0.0)
# Small scales leave their plateau only after a time ηt of some hundreds, so the quick preset keeps
# the steps and leaves out the slowest rate, which needs most of them.
QUICK = ((0.02, 40_000, 3), (0.07, 16_000, 3))
SWEEP = scale_study("fm-7-scales", SETTING, "FM-7", QUICK)
NOISY = scale_study("fm-7-noisy-scales", replace(SETTING, noise=1.0), "FM-7", QUICK)


def dead_answers(config: ScaleSweep, table: Table) -> Answers:
    """Answer how many networks the first steps switch off, and where typical ones end."""
    settled = table[table["status"] != "diverged"]
    edge = 2 / settled["learning_rate"]
    above = settled[settled["initial_sharpness"] > edge]
    height = (above["sharpness"] * above["learning_rate"] / 2).groupby(above["learning_rate"])
    return {
        "switched off": {
            "starts": len(above),
            "dead": dead(above).sum(),
            "median": height.median(),
            "mean": height.mean(),
            "most": (settled["sharpness"] / edge).max(),
        }
    }


FIGURE = define_figure(
    "FM-7",
    sharpness_panel("FM-7", SWEEP, dead_answers, upper_bound=True, linear=False),
)
FIGURE_NOISY = define_figure(
    "FM-7-noisy",
    sharpness_panel("FM-7-noisy", NOISY, ours=True, upper_bound=True, linear=False),
)
