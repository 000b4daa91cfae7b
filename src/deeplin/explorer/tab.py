"""What every page of the explorer is: computations in stages, and a place to show their results."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pandas as pd
from bokeh.models import Column, Div, UIElement

from deeplin.explorer.state import State
from deeplin.problems import Problem

Stage = Callable[[State, Problem | None], Any]
ASSETS = files("deeplin.explorer").joinpath("assets")
WIDGET_STYLE = ASSETS.joinpath("widget.css").read_text("utf-8")
TEXT_STYLE = ASSETS.joinpath("text.css").read_text("utf-8")


class Tab(ABC):
    """A page. `open_run(**values)` changes the state, for pages that lead to another one."""

    layout: UIElement

    def __init__(self, open_run: Callable[..., None]):
        self.open_run = open_run
        self.shown: Any = None

    @abstractmethod
    def stages(self, state: State) -> list[Stage]:
        """Computations to do one after the other, each shown as soon as it is done."""

    @abstractmethod
    def show(self, state: State, result: Any) -> str | None:
        """Show the result of a stage; return the verdict as HTML, or None to keep the last one."""

    @abstractmethod
    def table(self) -> pd.DataFrame:
        """What is shown, as a tidy table."""

    def csv(self, state: State) -> str:
        """The table as a message for the browser: a file name and its text."""
        text = "" if self.shown is None else self.table().to_csv(index=False)
        return json.dumps({"name": f"deeplin-{state.tab}.csv", "text": text})


def grid(*children: UIElement, least: int = 290) -> Column:
    """Children in as many columns of at least this many pixels as fit."""
    style = f""":host {{ display: grid; gap: 8px; align-items: start;
      grid-template-columns: repeat(auto-fit, minmax(min(100%, {least}px), 1fr)); }}"""
    return Column(children=list(children), stylesheets=[style], sizing_mode="stretch_width")


def text(name: str, html: str = "") -> Div:
    """A place for words and tables. Formulas are MathML, so Bokeh must not look for its own."""
    return Div(
        name=name,
        text=html,
        disable_math=True,
        sizing_mode="stretch_width",
        stylesheets=[TEXT_STYLE],
    )
