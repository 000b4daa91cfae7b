"""Experiments on a grid: a unit for each cell, which depends on its own coordinates alone."""

from dataclasses import dataclass, replace

import pandas as pd

from deeplin.papers.figures import define_study
from deeplin.sweep.experiment import name_units


@dataclass(frozen=True)
class Config:
    depths: tuple[int, ...] = (2, 3)
    draws: int = 2
    rates: tuple[float, ...] = (0.1, 0.2, 0.3)
    steps: int = 10
    seed: int = 0


def run_cell(config, kind, depth, draw):
    return {"rate": config.rates, "value": [depth * rate for rate in config.rates]}


GRID = {"kind": ("a", "b"), "depth": "depths", "draw": "draws"}
STUDY = define_study(
    "cells", run_cell, GRID, paper=Config(), quick={"draws": 1}, runs="rates", steps="steps"
)
EXPERIMENT = STUDY.experiment
PLAIN = define_study(
    "plain", lambda config: [{"value": 1}], {}, paper=Config(), quick={}
).experiment


def test_every_combination_is_a_unit_and_its_coordinates_are_columns():
    units = EXPERIMENT.units(Config())
    assert len(units) == 2 * 2 * 2
    assert units[1].coordinates == {"kind": "a", "depth": 2, "draw": 1}
    assert {(unit.runs, unit.steps) for unit in units} == {(3, 30)}
    table = pd.DataFrame(EXPERIMENT.run_unit(Config(), units[-1]))
    assert list(table) == ["kind", "depth", "draw", "rate", "value"]
    assert table["value"].tolist() == [3 * rate for rate in Config().rates]
    assert set(table["kind"]) == {"b"}


def test_a_change_of_any_field_makes_every_unit_a_new_one():
    """A field that changes rows but no coordinates would let old rows pass for new ones."""
    changes = ({}, {"depths": (2, 3, 4)}, {"draws": 3}, {"steps": 11}, {"seed": 1})
    configs = [replace(Config(), **change) for change in changes]
    ids = [name_units(EXPERIMENT.identity(it), EXPERIMENT.units(it)) for it in configs]
    assert len(set().union(*ids)) == sum(map(len, ids))
