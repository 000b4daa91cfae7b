"""The phase diagram: how every run of a grid ends, with the critical rate drawn over it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from bokeh.events import Tap
from bokeh.layouts import column, row
from bokeh.models import Button, ColorBar, HoverTool, LinearColorMapper, Slider
from bokeh.palettes import Cividis256

from deeplin.dynamics import gradient_descent
from deeplin.dynamics.measure import measure
from deeplin.dynamics.objective import objective_of
from deeplin.dynamics.run import DIVERGED
from deeplin.explorer import plots
from deeplin.explorer.compute import BACKEND, check_work, networks_of, problem_of, theory_of
from deeplin.explorer.state import BOUNDS, DATA, DESCENT, NETWORK, State
from deeplin.explorer.tab import WIDGET_STYLE, Stage, Tab, text
from deeplin.problems import Problem
from deeplin.sharpness import SharpnessTracker, sharpness

RATES = 28
SCALES = {
    "perceptron": np.linspace(0.1, 0.7, 25),
    "residual": np.linspace(0.0, 3.0, 25),
    "gelu": np.linspace(0.3, 0.8, 11),
}
DEPTHS = np.array([1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40])
SHOWS = {
    "distance": "log10 ‖w − w*‖² at the end",
    "sharpness": "Final sharpness times η/2 (1: the edge)",
    "diverged": "Diverged (1) or not (0)",
}


@dataclass(frozen=True, eq=False)
class Phase:
    """One run for each cell; arrays are (columns, rates)."""

    columns: np.ndarray
    """The scales or depths."""
    rates: np.ndarray
    distance: np.ndarray
    sharpness: np.ndarray
    diverged: np.ndarray
    critical: np.ndarray | None
    """2/S_min for each column."""


def phase(state: State, upload: Problem | None = None) -> Phase:
    """Train one run for each cell of the grid, all from the first seed."""
    return _phase(state.only(*DATA, *NETWORK, *DESCENT, "phase_over"), upload)


@lru_cache(maxsize=8)
def _phase(state: State, upload: Problem | None) -> Phase:
    problem = problem_of(state, upload)
    theory = theory_of(state, problem)
    middle = 0.1 if theory is None else theory.critical_rate
    bound = BOUNDS["learning_rate"]
    if state.phase_over == "scale":
        rates = np.geomspace(middle / 8, middle * 4, RATES).clip(bound.low, bound.high)
        scales = SCALES[state.architecture]
        ends = _train(state, problem, np.repeat(scales, RATES), np.tile(rates, len(scales)))
        columns, critical = scales, None if theory is None else np.full(len(scales), middle)
    else:
        columns = DEPTHS[DEPTHS <= 20] if state.architecture == "gelu" else DEPTHS
        critical = _critical(state, problem, columns)
        top = 1.0 if critical is None else critical.max() * 2
        rates = np.geomspace(top / 200, top, RATES).clip(bound.low, bound.high)
        each = [_train(state.change(depth=L), problem, None, rates) for L in columns.tolist()]
        ends = [np.concatenate(parts) for parts in zip(*each, strict=True)]
    shape = (len(columns), RATES)
    distance, sharpnesses, diverged = (values.reshape(shape) for values in ends)
    return Phase(columns, rates, distance, sharpnesses, diverged, critical)


def _critical(state: State, problem: Problem, depths: np.ndarray) -> np.ndarray | None:
    theories = [theory_of(state.change(depth=L), problem) for L in depths.tolist()]
    return np.array([t.critical_rate for t in theories]) if theories[0] is not None else None  # pyright: ignore


def _train(state: State, problem: Problem, scales: np.ndarray | None, rates: np.ndarray):
    """Final distance (risk for GELU), sharpness and divergence of each pair of scale and rate."""
    check_work(state, problem, len(rates))
    if scales is None:
        scales = np.full(len(rates), state.scale)
    nets = networks_of(state, problem, scales)
    run = gradient_descent(problem, nets, rates, state.steps, backend=BACKEND)
    if state.architecture == "gelu":
        distance = np.asarray(run.evidence["risk"])
        values = np.asarray(sharpness(problem, run.network, tolerance=1e-2).value)
    else:
        objective = objective_of(problem, nets)
        distance = measure(objective, run.network, nets, ["distance"])["distance"]
        values = SharpnessTracker(problem)(run.network).value
    diverged = np.asarray(run.status) == DIVERGED
    lost = np.where(diverged, np.nan, 1.0)
    return distance * lost, values * lost, diverged.astype(float)


class PhaseTab(Tab):
    """A heat map whose cells open runs: by a click, or with two sliders and a button."""

    def __init__(self, open_run):
        super().__init__(open_run)
        self.cells = plots.source("left", "right", "bottom", "top", "value", "x", "y")
        self.curve = plots.source("x", "y")
        self.cursor = plots.source("left", "right", "bottom", "top")
        self.mapper = LinearColorMapper(palette=Cividis256, nan_color=plots.RED)
        self.plot = plots.picture("Phase diagram", "phase", height=440, y_axis_type="log")
        self._draw()
        self.note = text("cell")
        self.across = Slider(title="Column", start=0, end=1, value=0, step=1, name="cell_column")
        self.up = Slider(title="Row", start=0, end=RATES - 1, value=0, step=1, name="cell_row")
        button = Button(label="Open this run", name="open_cell")
        for widget in (self.across, self.up, button):
            widget.stylesheets = [WIDGET_STYLE]
        for slider in (self.across, self.up):
            slider.update(bar_color=plots.BLUE)
            slider.on_change("value", lambda _a, _o, _n: self._point())
        button.on_click(self._open)
        chooser = row(self.across, self.up, button, sizing_mode="stretch_width")
        self.layout = column(self.plot, self.note, chooser, sizing_mode="stretch_width")

    def stages(self, _state: State) -> list[Stage]:
        """One stage: the whole grid."""
        return [phase]

    def show(self, state: State, result: Phase) -> str:
        """Colour the cells."""
        self.shown = result
        over_depth = state.phase_over == "depth"
        lefts, rights = _edges(result.columns, linear=True)
        bottoms, tops = _edges(result.rates)
        self.plot.xaxis.axis_label = "depth L" if over_depth else "initial scale"
        risk = state.architecture == "gelu" and state.phase_shows == "distance"
        plots.retitle(self.plot, "log10 of the final risk" if risk else SHOWS[state.phase_shows])
        count = len(result.columns)
        values = self._values(state, result)
        plots.fill(
            self.cells,
            {
                "left": np.repeat(lefts, RATES),
                "right": np.repeat(rights, RATES),
                "bottom": np.tile(bottoms, count),
                "top": np.tile(tops, count),
                "value": values.ravel(),
                "x": np.repeat(result.columns, RATES),
                "y": np.tile(result.rates, count),
            },
        )
        finite = values[np.isfinite(values)]
        self.mapper.update(low=float(finite.min(initial=0)), high=float(finite.max(initial=1)))
        if result.critical is None:
            plots.empty(self.curve)
        else:
            plots.fill(self.curve, {"x": result.columns, "y": result.critical})
        self.across.end = count - 1
        self._choose(state.depth if over_depth else state.scale, state.learning_rate)
        self._point()
        return self._words(result)

    def table(self) -> pd.DataFrame:
        """One row for each cell."""
        result: Phase = self.shown
        return pd.DataFrame(
            {
                "column": np.repeat(result.columns, RATES),
                "learning_rate": np.tile(result.rates, len(result.columns)),
                "distance": result.distance.ravel(),
                "sharpness": result.sharpness.ravel(),
                "diverged": result.diverged.ravel() > 0,
            }
        )

    def _draw(self) -> None:
        plot = self.plot
        quads = plot.quad(
            "left", "right", "bottom", "top",
            source=self.cells,
            fill_color={"field": "value", "transform": self.mapper},
            line_color=None,
        )  # fmt: skip
        plot.line("x", "y", source=self.curve, color="white", line_width=5)
        plot.line("x", "y", source=self.curve, color=plots.GREEN, line_width=3)
        plot.quad(
            "left", "right", "bottom", "top",
            source=self.cursor, fill_color=None, line_color="white", line_width=2,
        )  # fmt: skip
        tooltips = [("column", "@x"), ("η", "@y"), ("value", "@value")]
        plot.add_tools(HoverTool(renderers=[quads], tooltips=tooltips))
        bar = ColorBar(color_mapper=self.mapper, width=12, major_label_text_color=plots.GREY)
        plot.add_layout(bar, "right")
        plot.yaxis.axis_label = "learning rate η"
        plot.x_range.range_padding = plot.y_range.range_padding = 0  # pyright: ignore
        plot.on_event(Tap, self._tapped)

    @staticmethod
    def _values(state: State, result: Phase) -> np.ndarray:
        if state.phase_shows == "distance":
            return np.log10(np.maximum(result.distance, 1e-16))
        if state.phase_shows == "sharpness":
            return result.sharpness * result.rates / 2
        return result.diverged

    @staticmethod
    def _words(result: Phase) -> str:
        lost = result.diverged.mean()
        text = f"<b>{result.diverged.size} runs, {lost:.0%} diverged (red).</b> "
        if result.critical is not None:
            above = result.rates[None, :] > result.critical[:, None]
            settled = (result.distance < 1e-3) & above
            text += (
                "The green line is the critical rate 2/S_min: "
                f"{np.sum(settled)} of {np.sum(above)} runs above it came close to the optimum. "
            )
        return f'<p class="good">{text}Click a cell to open its run.</p>'

    # --- opening a run -------------------------------------------------------------------------

    def _tapped(self, event: Any) -> None:
        if self.shown is None or event.x is None or not event.y or event.y <= 0:
            return
        self._choose(event.x, event.y)
        self._open()

    def _choose(self, column: float, rate: float) -> None:
        """Move the sliders to the cell nearest to these values."""
        self.across.value = int(np.argmin(np.abs(self.shown.columns - column)))
        self.up.value = int(np.argmin(np.abs(np.log(self.shown.rates / rate))))

    def _cell(self) -> tuple[int, int]:
        """The chosen cell, inside the grid whatever the browser says."""
        last = np.array([len(self.shown.columns) - 1, RATES - 1])
        across, up = np.nan_to_num([self.across.value, self.up.value]).clip(0, last)  # pyright: ignore
        return int(across), int(up)

    def _point(self) -> None:
        """Frame the chosen cell and say what is there."""
        if self.shown is None:
            return
        across, up = self._cell()
        place = across * RATES + up
        edges = ("left", "right", "bottom", "top")
        plots.fill(self.cursor, {name: [self.cells.data[name][place]] for name in edges})
        diverged = self.shown.diverged[across, up] > 0
        ended = f"sharpness {self.shown.sharpness[across, up]:.3g}"
        self.note.text = (
            f"<p>Column {self.shown.columns[across]:.3g}, η = {self.shown.rates[up]:.3g}: "
            f"{'diverged' if diverged else ended}.</p>"
        )

    def _open(self) -> None:
        if self.shown is None:
            return
        across, up = self._cell()
        column = self.shown.columns[across]
        name = "depth" if np.issubdtype(self.shown.columns.dtype, np.integer) else "scale"
        rate = float(f"{self.shown.rates[up]:.4g}")
        self.open_run(tab="training", learning_rate=rate, **{name: float(f"{column:.4g}")})


def _edges(centres: np.ndarray, *, linear: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of cells around their centres, half-way on the axis."""
    middle = centres if linear else np.log(centres)
    between = (middle[1:] + middle[:-1]) / 2
    ends = np.concatenate([[2 * middle[0] - between[0]], between, [2 * middle[-1] - between[-1]]])
    ends = ends if linear else np.exp(ends)
    return ends[:-1], ends[1:]
