"""Figures of a toy experiment, in a module of their own so that the sweep engine finds it."""

from dataclasses import dataclass

import pandas as pd

from deeplin.papers.figures import Figure, Panel, Study
from deeplin.papers.sentences import LeftOutSentence
from deeplin.plot_style import series
from deeplin.sweep import Experiment, Unit

LEFT_OUT = (LeftOutSentence("FM", "Section 1", "Squares are drawn.", "It says what is drawn."),)
"""A sentence that is no quote about the figures."""
COMPUTED = []
"""The numbers that were computed, in their order."""


@dataclass(frozen=True)
class Toy:
    numbers: tuple[int, ...]
    broken: bool = False
    seed: int = 0


def units(config):
    return [Unit({"number": number}) for number in config.numbers]


def run_unit(config, unit):
    if config.broken:
        raise RuntimeError("this unit breaks")
    number = unit.coordinates["number"]
    COMPUTED.append(number)
    return pd.DataFrame({"number": [number], "square": [float(number**2)], "seed": config.seed})


TOY = Experiment("toy", Toy, units, run_unit)


def plot(config, table, ax):
    ax.plot(table["number"], table["square"], label="squares", **series(0))
    ax.set(xlabel="number", ylabel="square")
    ax.legend()


def study(name="toy", **options):
    return Study(name, TOY, paper=Toy((1, 2, 3), **options), quick=Toy((1, 2), **options))


def figure(name, study, questions=()):
    """A figure of two panels; `questions` is a list, or a function of config and table."""
    asked = questions if callable(questions) else lambda config, table: questions
    panel = Panel(f"{name}a", "Squares of numbers.", study, plot, asked)
    other = Panel(f"{name}b", "The same again.", study, plot, ours=True)
    return Figure(name, "Squares", (panel, other), "As it is printed.", "As it is run.")
