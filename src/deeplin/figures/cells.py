"""Experiments on a grid of config fields: a unit for each cell, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pandas as pd

from deeplin.sweep import Experiment, Unit


def cells(
    name: str,
    config: type,
    run_cell: Callable[..., Any],
    *,
    runs: str = "",
    steps: str = "",
    bucket: str = "",
    **axes: str | Sequence[Any],
) -> Experiment:
    """An experiment with a unit for each combination of coordinates.

    Each of the `axes` names a coordinate and gives its values, or the config field that holds them
    (a whole number counts from 0); a sweep can grow in such a field. `run_cell(config,
    **coordinates)` returns rows or columns, to which the coordinates are added. `runs` and `steps`
    name the fields that say how many runs a unit has, and how many steps each of them; units alike
    in the coordinate `bucket` share a compile.
    """

    def values(config: Any, axis: str | Sequence[Any]) -> Sequence[Any]:
        given = getattr(config, axis) if isinstance(axis, str) else axis
        return range(given) if isinstance(given, int) else given

    def units(config: Any) -> list[Unit]:
        count = len(values(config, runs)) if runs else 1
        each = getattr(config, steps) if steps else 0
        points = product(*(values(config, axis) for axis in axes.values()))
        found = [dict(zip(axes, point, strict=True)) for point in points]
        return [Unit(cell, count, count * each, str(cell.get(bucket, ""))) for cell in found]

    def run_unit(config: Any, unit: Unit) -> pd.DataFrame:
        rows = pd.DataFrame(run_cell(config, **unit.coordinates))
        for place, (coordinate, value) in enumerate(unit.coordinates.items()):
            rows.insert(place, coordinate, value)
        return rows

    grid = tuple(axis for axis in axes.values() if isinstance(axis, str))
    return Experiment(name, config, units, run_unit, grid, home=run_cell.__module__)
