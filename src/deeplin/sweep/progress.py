"""Progress of sweeps: a live bar on a terminal, plain lines in a log, or nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as RichProgress

if TYPE_CHECKING:
    from deeplin.sweep.experiment import Unit

LOG_SECONDS = 10.0
"""Interval between two lines in a log, which also has one for each failure."""


class Progress:
    """Counter of the units to compute and of those that are done.

    It is shown on a `Board` if it is part of one; a sweep that is `alone` on it opens it.
    """

    failed = 0
    """Number of failed units."""
    share = 0.0
    """Fraction of the work that is done; 1 if there is none."""

    def __init__(
        self, board: Board | None = None, name: str = "", seconds: float = 1.0, alone: bool = False
    ):
        self._board, self._name, self._alone = board, name, alone
        self.weight = seconds
        """Recorded seconds of its units, limited to those to compute once they are known."""

    @contextmanager
    def over(
        self, units: Mapping[str, Unit], *, reused: int = 0, damaged: Iterable[str] = ()
    ) -> Iterator[None]:
        """Show progress during the computation of `units`; `damaged` files are computed again."""
        # The time left is estimated by the steps of units, or by their runs.
        self._sizes = {name: unit.steps or unit.runs or 1 for name, unit in units.items()}
        self._done, self._all = 0, sum(self._sizes.values())
        self.share = 0.0 if units else 1.0
        self.weight *= len(units) / (len(units) + reused) if reused else 1.0
        with self._board if self._board and self._alone else nullcontext():
            if reused or self._alone:
                self._say(f"{len(units)} unit(s) to compute, {reused} finished before")
            for name in damaged:
                self._say(f"{name} is damaged, and made again")
            yield

    def advance(self, identifier: str, error: str = "") -> None:
        """Count one unit as done; `error` is empty unless it failed."""
        self.failed += bool(error)
        self._done += self._sizes[identifier]
        self.share = self._done / self._all
        if error:
            self._say(f"unit {identifier} failed: {error}")
        if self._board:
            self._board.update()

    def _say(self, text: str) -> None:
        if self._board:
            self._board.note(f"{self._name}: {text}")


class Board:
    """Display of several sweeps and the time left for all; `seconds` holds their recorded times.

    Only the ratios of these times are used: the speed is measured on this machine.
    """

    def __init__(self, title: str, seconds: Mapping[str, float], console: Console | None = None):
        self.title, self._seconds = title, dict(seconds)
        self._parts: list[Progress] = []
        self._console = console or Console(stderr=True)
        self._lock = threading.Lock()
        self._started = self._last_line = time.perf_counter()
        self._rich = RichProgress(
            *(TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()),
            TextColumn("{task.fields[text]}"),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
            redirect_stdout=False,  # stdout is for the result
        )
        self._task = self._rich.add_task(title, total=1.0, text="")

    def part(self, name: str, *, alone: bool = False) -> Progress:
        """Return the progress of one sweep, to be passed to `run`.

        The board is shown inside `with board:`, or, for a sweep `alone`, while that is computed.
        """
        usual = median(self._seconds.values()) if self._seconds else 1.0
        self._parts.append(Progress(self, name, self._seconds.get(name, usual), alone))
        return self._parts[-1]

    def __enter__(self) -> Board:
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rich.stop()

    def say(self, text: str) -> None:
        """Print a part of the result to standard output, above the bar."""
        with self._lock:
            self._rich.stop()
            print(text, flush=True)
            self._rich.start()

    def note(self, text: str) -> None:
        """Print a line about the progress, separate from the result."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def update(self) -> None:
        """Show that a unit is done."""
        share, text = self.share, self.sentence()
        self._rich.update(self._task, completed=share, text=text)
        with self._lock:
            now = time.perf_counter()
            if self._console.is_terminal or now - self._last_line < LOG_SECONDS:
                return
            self._last_line = now
        self.note(", ".join(filter(None, [f"{self.title}: {share:.0%} done", text])))

    @property
    def share(self) -> float:
        """Fraction of the work that is done, weighted by the time it takes."""
        parts = [(part.share, part.weight) for part in self._parts]  # a copy, for threads
        return sum(done * weight for done, weight in parts) / (sum(w for _, w in parts) or 1.0)

    def left(self) -> float | None:
        """Return seconds, from those that the done share took; None before the first unit."""
        share, elapsed = self.share, time.perf_counter() - self._started
        return elapsed * (1 - share) / share if share else None

    def sentence(self) -> str:
        """Return time left and failures in one line."""
        failed, left = sum(part.failed for part in self._parts), self.left()
        texts = [f"about {timedelta(seconds=round(left))} left"] if left else []
        return ", ".join([*texts, f"{failed} failed"] if failed else texts)


def show_progress(title: str = "sweep", console: Console | None = None) -> Progress:
    """Return a bar if the standard error stream is a terminal, else plain lines."""
    return Board(title, {}, console).part(title, alone=True)
