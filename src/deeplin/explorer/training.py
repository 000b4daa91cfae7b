"""The training page: the whole trajectory of every seed, its sharpness, and the theory lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, HoverTool
from bokeh.plotting import figure

from deeplin.explorer import plots
from deeplin.explorer.compute import Flow, Training, flow, train
from deeplin.explorer.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from deeplin.explorer.state import State
from deeplin.explorer.tab import Stage, Tab, grid, text
from deeplin.explorer.words import compare, describe
from deeplin.problems import Problem

CURVES = {
    "gap": "Risk above its minimum, R − R_min",
    "distance": "Squared distance ‖w − w*‖²",
    "sharpness": "Sharpness",
}
LAYERS = {
    "singular_values": "Largest singular value σ_k of each layer",
    "layer_norms": "Norm ‖W_k‖ of each layer",
    "alignment": "Alignment ⟨v_{k+1}, u_k⟩² of neighbours",
}
KEPT = {"saved_a": ("A", ORANGE), "saved_b": ("B", PURPLE)}


class TrainingTab(Tab):
    """Six figures whose data are replaced, never rebuilt, and the comparison of kept runs."""

    def __init__(self, open_run):
        super().__init__(open_run)
        self.curves = {name: _Curve(name, title) for name, title in CURVES.items()}
        self.lines = plots.source("x", "two", "lower", "exact", "upper", "balanced")
        self._draw_lines(self.curves["sharpness"].plot)
        self.layers = plots.source("xs", "colour", *LAYERS)
        self.plots = [curve.plot for curve in self.curves.values()]
        self.plots += [self._layer_plot(name) for name in LAYERS]
        self.comparison = text("comparison")
        self.layout = column(grid(*self.plots), self.comparison, sizing_mode="stretch_width")

    def stages(self, state: State) -> list[Stage]:
        """The descent with the kept runs; then the flow, which may have to be compiled."""
        return [_trained, flow] if state.flow else [_trained]

    def show(self, state: State, result: Any) -> str | None:
        """Show a training with its kept runs, or the flow beside it."""
        if isinstance(result, Flow):
            for name, curve in self.curves.items():
                curve.show_flow(state, result, name)
            return None
        training, kept = result
        self.shown = training
        self._set_axes(state, "gap" in training.series)
        x = _horizontal(state, training.step, training.rate)
        for name, curve in self.curves.items():
            curve.show(state, x, _series(training, name))
            curve.show_flow(state, None, name)
            for slot in KEPT:
                curve.show_kept(state, slot, kept.get(slot), name)
        self._show_lines(state, training, x)
        self._show_layers(state, training, x)
        self.comparison.text = compare(state, training, kept)
        return describe(state, training).html()

    def table(self) -> pd.DataFrame:
        """The curves: a row for each record and run; the layers are those of the first run."""
        return table(self.shown)

    def _set_axes(self, state: State, linear: bool) -> None:
        plots.set_axes(self.plots, "x", state.horizontal_scale)
        plots.set_axes(self.plots[:-1], "y", state.vertical_scale)
        for plot in self.plots:
            plot.xaxis.axis_label = "η·steps" if state.horizontal == "time" else "steps"
        titles = CURVES if linear else CURVES | {"gap": "Risk R", "distance": "No single optimum"}
        for name, curve in self.curves.items():
            plots.retitle(curve.plot, titles[name])

    def _draw_lines(self, plot: figure) -> None:
        """2/η, S_min, S_bal and the bracket of FM-T2 across the sharpness picture."""
        band = plot.varea("x", "lower", "upper", source=self.lines, color=GREEN, alpha=0.15)
        two = plot.line("x", "two", source=self.lines, color=RED, line_width=2)
        exact = plot.line("x", "exact", source=self.lines, color=GREEN, line_width=2)
        balanced = plot.line(
            "x", "balanced", source=self.lines, color=GREEN, line_dash="dotted", line_width=2
        )
        items = {"2/η": two, "S_min": exact, "S_bal": balanced, "bracket": band}
        plots.label_below(plot, items)

    def _show_lines(self, state: State, training: Training, x: np.ndarray) -> None:
        logarithmic = state.horizontal_scale == "log" and len(x) > 1
        ends = np.array([x[1] if logarithmic else x[0], x[-1]])
        theory = training.theory
        values = (
            dict.fromkeys(("lower", "exact", "upper", "balanced"), np.nan)
            if theory is None
            else vars(theory)
        )
        columns = {name: np.full(2, value) for name, value in values.items()}
        plots.fill(self.lines, {"x": ends, "two": np.full(2, 2 / state.learning_rate)} | columns)

    def _layer_plot(self, name: str) -> figure:
        scale = "linear" if name == "alignment" else "log"
        plot = plots.picture(LAYERS[name], name, y_axis_type=scale)
        plot.multi_line("xs", name, source=self.layers, color="colour", line_width=1.5, alpha=0.9)
        if name == "alignment":
            plot.y_range.start, plot.y_range.end = -0.02, 1.05  # pyright: ignore
        return plot

    def _show_layers(self, state: State, training: Training, x: np.ndarray) -> None:
        depth = training.layers["layer_norms"].shape[1]
        # Lists, not arrays: each array would be a message of its own, slower than the digits.
        across = plots.shown(x, state.horizontal_scale)
        columns = {"xs": [across.tolist()] * depth, "colour": plots.layer_colours(depth)}
        for name in LAYERS:
            rows = np.full((depth, len(x)), np.nan)  # there are depth − 1 pairs of neighbours
            values = training.layers.get(name, rows[:0].T).T
            scale = "linear" if name == "alignment" else state.vertical_scale
            rows[: len(values)] = plots.shown(values, scale)
            columns[name] = rows.tolist()
        plots.fill(self.layers, columns)


class _Curve:
    """One quantity of all seeds: median and band, gradient flow, and two kept runs."""

    def __init__(self, name: str, title: str):
        self.plot = plots.picture(title, name, y_axis_type="log")
        self.band = plots.source("x", "low", "middle", "high")
        self.flow = plots.source("x", "y")
        self.kept = {slot: plots.source("x", "y") for slot in KEPT}
        runs = self.plot.varea("x", "low", "high", source=self.band, color=BLUE, alpha=0.2)
        for slot, (_, colour) in KEPT.items():
            self.plot.line("x", "y", source=self.kept[slot], color=colour, line_width=2)
        flow = self.plot.line(
            "x", "y", source=self.flow, color=GREY, line_dash="dashed", line_width=2
        )
        middle = self.plot.line("x", "middle", source=self.band, color=BLUE, line_width=2)
        if name != "sharpness":  # which has the theory's lines to name
            plots.label_below(self.plot, {"median": middle, "10–90 %": runs, "flow": flow})
        self.plot.add_tools(
            HoverTool(renderers=[middle], tooltips=[("median", "@middle"), ("at", "@x")]),
            HoverTool(renderers=[flow], tooltips=[("flow", "@y"), ("at", "@x")]),
        )

    def show(self, state: State, x: np.ndarray, values: np.ndarray | None) -> None:
        if values is None:
            return plots.empty(self.band)
        levels = {
            name: plots.shown(level, state.vertical_scale)
            for name, level in plots.quantiles(values).items()
        }
        return plots.fill(self.band, {"x": plots.shown(x, state.horizontal_scale)} | levels)

    def show_flow(self, state: State, flow: Flow | None, name: str) -> None:
        step = None if flow is None else flow.time / state.learning_rate
        self._line(self.flow, state, step, flow, name, state.learning_rate)

    def show_kept(self, state: State, slot: str, kept: Training | None, name: str) -> None:
        step, rate = (None, 1.0) if kept is None else (kept.step, kept.rate)
        self._line(self.kept[slot], state, step, kept, name, rate)

    @staticmethod
    def _line(target: ColumnDataSource, state: State, step, what, name: str, rate: float) -> None:
        values = None if what is None else _series(what, name)
        if values is None:
            return plots.empty(target)
        middle = plots.quantiles(values.reshape(len(values), -1))["middle"]
        x = plots.shown(_horizontal(state, step, rate), state.horizontal_scale)
        return plots.fill(target, {"x": x, "y": plots.shown(middle, state.vertical_scale)})


def _trained(state: State, upload: Problem | None) -> tuple[Training, dict[str, Training]]:
    """The training of the state, and those of the kept runs."""
    kept = {
        slot: train(State.from_link(getattr(state, slot)), upload)
        for slot in KEPT
        if getattr(state, slot)
    }
    return train(state, upload), kept


def _series(what: Training | Flow, name: str) -> np.ndarray | None:
    """A quantity of a training or flow; the risk stands in where R_min is not known (GELU)."""
    return what.series.get("risk" if name == "gap" and "gap" not in what.series else name)


def _horizontal(state: State, step: np.ndarray, rate: float) -> np.ndarray:
    return step * (rate if state.horizontal == "time" else 1.0)


def table(training: Training) -> pd.DataFrame:
    """The curves as one tidy table: a row for each record and run, layers of the first run."""
    records, runs = training.series["risk"].shape
    columns: dict[str, Any] = {
        "step": np.repeat(training.step, runs),
        "run": np.tile(np.arange(runs), records),
    }
    columns |= {name: values.ravel() for name, values in training.series.items()}
    first = columns["run"] == 0
    for name, values in training.layers.items():
        for k in range(values.shape[1]):
            column = np.full(records * runs, np.nan)
            column[first] = values[:, k]
            columns[f"{name}_{k + 1}"] = column
    return pd.DataFrame(columns)
