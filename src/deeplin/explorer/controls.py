"""One widget for each input, made from its bound; values travel through the bound on the way in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from bokeh.models import (
    Checkbox,
    CustomJSTickFormatter,
    RadioButtonGroup,
    Select,
    Slider,
    Widget,
)

from deeplin.checks import InputError
from deeplin.explorer.plots import BLUE
from deeplin.explorer.state import BOUNDS, Choice, Flag, Real, State, Whole
from deeplin.explorer.tab import WIDGET_STYLE

NOTCHES = 200
"""Positions of a logarithmic slider, or of one over real numbers."""
DIGITS = 3
"""Significant digits of a value picked on a slider: links stay short."""


class Controls:
    """The widgets of some inputs, and what to do when a visitor moves one.

    `changed(name, value)` receives the raw value; nothing is trusted until a `State` has taken it.
    """

    def __init__(self, names: Iterable[str], state: State, changed: Callable[[str, Any], None]):
        self.widgets = {name: _widget(name, getattr(state, name)) for name in names}
        for widget in self.widgets.values():
            widget.update(sizing_mode="stretch_width", stylesheets=[WIDGET_STYLE])
        self._changed = changed
        self._showing = False
        for name, widget in self.widgets.items():
            widget.on_change(_property(widget), self._listener(name))

    def __getitem__(self, name: str) -> Widget:
        return self.widgets[name]

    def show(self, state: State) -> None:
        """Put the widgets where the state is, without reporting that as a visitor's change."""
        self._showing = True
        try:
            for name, widget in self.widgets.items():
                bound, value = BOUNDS[name], getattr(state, name)
                if value_at(bound, getattr(widget, _property(widget))) != value:
                    setattr(widget, _property(widget), _position(bound, value))
        finally:
            self._showing = False

    def _listener(self, name: str):
        def moved(_attribute, _old, new) -> None:
            if not self._showing:
                self._changed(name, value_at(BOUNDS[name], new))

        return moved


def value_at(bound: Any, position: Any) -> Any:
    """The value a widget position stands for; anything odd passes through for the bound to refuse.

    A logarithmic slider carries log10 of the value; its left end may stand for zero.
    """
    if isinstance(bound, Choice) and isinstance(position, int):
        options = list(bound.options)
        return options[position] if 0 <= position < len(options) else position
    if not isinstance(bound, Whole | Real) or not isinstance(position, int | float):
        return position
    if not bound.log:
        return position if isinstance(bound, Whole) else round(position, 6)
    if isinstance(bound, Real) and bound.zero and position < math.log10(bound.low) - 1e-9:
        return 0.0
    if not position < 300:  # beyond every bound, and beyond what a float can hold
        return math.inf
    value = float(f"{10**position:.{DIGITS}g}")
    return round(value) if isinstance(bound, Whole) else value


def _position(bound: Any, value: Any) -> Any:
    if bound is BOUNDS["tab"]:  # the only choice made by buttons, which count from zero
        return list(bound.options).index(value)
    if isinstance(bound, Whole | Real) and bound.log:
        return math.log10(value) if value else _left_end(bound)
    return value


def _left_end(bound: Whole | Real) -> float:
    low, high = math.log10(bound.low), math.log10(bound.high)
    return low - (high - low) / NOTCHES if getattr(bound, "zero", False) else low


def _property(widget: Widget) -> str:
    return "active" if isinstance(widget, Checkbox | RadioButtonGroup) else "value"


def _widget(name: str, value: Any) -> Widget:
    bound = BOUNDS[name]
    position = _position(bound, value)
    if name == "tab":
        labels = list(bound.options.values())
        return RadioButtonGroup(labels=labels, active=position, name=name)
    if isinstance(bound, Choice):
        options: list[Any] = list(bound.options.items())
        return Select(title=bound.label, options=options, value=position, name=name)
    if isinstance(bound, Flag):
        return Checkbox(label=bound.label, active=position, name=name)
    if not isinstance(bound, Whole | Real):
        raise InputError(f"{name} has no widget.")
    return _slider(name, bound, position)


def _slider(name: str, bound: Whole | Real, position: Any) -> Slider:
    shape = {"title": bound.label, "value": position, "name": name, "bar_color": BLUE}
    if not bound.log:
        step = 1 if isinstance(bound, Whole) else (bound.high - bound.low) / NOTCHES
        return Slider(start=bound.low, end=bound.high, step=step, **shape)
    low, high = math.log10(bound.low), math.log10(bound.high)
    left = _left_end(bound)
    return Slider(
        start=left,
        end=high,
        step=(high - low) / NOTCHES,
        format=CustomJSTickFormatter(code=_shown(bound, low)),
        **shape,
    )


def _shown(bound: Whole | Real, low: float) -> str:
    """JavaScript that writes the value at a position of a logarithmic slider."""
    zero = f"if (tick < {low - 1e-9}) return '0';" if getattr(bound, "zero", False) else ""
    whole = "Math.round(value)" if isinstance(bound, Whole) else "value"
    return f"""{zero}
const value = Number((10 ** tick).toPrecision({DIGITS}));
return ({whole}).toLocaleString('en', {{maximumSignificantDigits: {DIGITS}}});"""
