"""How far a sweep is: a live bar on a terminal, plain lines in a log, nothing when unwanted."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as RichProgress

from deeplin.sweep.experiment import Unit

LOG_SECONDS = 10.0
"""A log gets a line this often, and one for each failure."""


class Progress:
    """Receives the units that are to be computed, then each one that is done; shows nothing."""

    @contextmanager
    def over(
        self,
        units: Mapping[str, Unit],
        *,
        reused: int = 0,
        aside: Mapping[str, str] | None = None,
        expected: float = 0.0,
    ) -> Iterator[None]:
        """Surround the computation of `units`.

        `aside` are files found and not trusted; `expected` the seconds this machine will take, 0 if
        that is not known.
        """
        self._tally = Tally(units)
        with self._shown(reused):
            for name, reason in (aside or {}).items():
                self._say(f"set aside {name}: {reason}")
            if expected:
                time_expected = f"expected to take about {duration(expected)} on this machine"
                self._say(f"{time_expected} (measured on a few steps)")
            yield

    def advance(self, identifier: str, error: str = "") -> None:
        """Count one unit as done; `error` is empty unless it failed."""
        self._tally.add(identifier, error)
        if error:
            self._say(f"unit {identifier} failed: {error}")

    @contextmanager
    def _shown(self, reused: int) -> Iterator[None]:
        """Show something while the units are computed."""
        yield

    def _say(self, text: str) -> None:
        """Show one line."""


class Lines(Progress):
    """Plain lines for a log: the first, the last, one now and then and for each failure."""

    def __init__(self, title: str = "sweep", stream: TextIO | None = None):
        self.title, self._stream = title, stream

    def advance(self, identifier: str, error: str = "") -> None:
        """Write a line if the last one is some time ago."""
        super().advance(identifier, error)
        if time.perf_counter() - self._last_line > LOG_SECONDS:
            self._summarize()
            self._last_line = time.perf_counter()

    @contextmanager
    def _shown(self, reused: int) -> Iterator[None]:
        self._say(f"{self._tally.total} unit(s) to compute, {reused} finished before")
        self._last_line = time.perf_counter()
        try:
            yield
        finally:
            if self._tally.total:
                self._summarize()

    def _summarize(self) -> None:
        self._say(f"{self._tally.done} of {self._tally.total}: {self._tally.sentence()}")

    def _say(self, text: str) -> None:
        print(f"{self.title}: {text}", file=self._stream or sys.stderr, flush=True)


class Bar(Progress):
    """A live bar that counts what was finished before; a failure gets a line above it."""

    def __init__(self, title: str = "sweep", console: Console | None = None):
        self.title, self._console = title, console or Console(stderr=True)

    def advance(self, identifier: str, error: str = "") -> None:
        """Move the bar."""
        super().advance(identifier, error)
        self._rich.update(self._task, advance=1, text=self._tally.sentence())

    @contextmanager
    def _shown(self, reused: int) -> Iterator[None]:
        with _bar(MofNCompleteColumn(), console=self._console) as self._rich:
            total = self._tally.total + reused
            self._task = self._rich.add_task(self.title, total=total, completed=reused, text="")
            yield

    def _say(self, text: str) -> None:
        self._rich.print(f"{self.title}: {text}", markup=False, highlight=False)


def _bar(count: Any, **options: Any) -> RichProgress:
    """A title, a bar, how much of it is done, and a text."""
    columns = (TextColumn("{task.description}"), BarColumn(), count)
    return RichProgress(*columns, TextColumn("{task.fields[text]}"), **options)


def show_progress(title: str = "sweep") -> Progress:
    """Return a bar if the standard error stream is a terminal, else plain lines."""
    return Bar(title) if sys.stderr.isatty() else Lines(title)


class Board:
    """Several sweeps and the time left for all; `seconds` is what each took when it was recorded.

    Only the ratios of these times count: the clock is this machine's own.
    """

    def __init__(self, title: str, seconds: Mapping[str, float], console: Console | None = None):
        self.title, self._seconds = title, dict(seconds)
        self._usual = median(seconds.values()) if seconds else 1.0
        self._parts: list[_Part] = []
        self._console = console or Console(stderr=True)
        self._lock = threading.Lock()
        self._started = self._last_line = time.perf_counter()
        # The answer goes to the standard output, which this bar must leave alone.
        options = {"transient": True, "redirect_stdout": False}
        hidden = not self._console.is_terminal
        self._rich = _bar(TaskProgressColumn(), console=self._console, disable=hidden, **options)
        self._task = self._rich.add_task(title, total=1.0, text="")

    def part(self, name: str) -> Progress:
        """Return the progress of one sweep, to be passed to `run`."""
        self._parts.append(_Part(self, name, self._seconds.get(name, self._usual)))
        return self._parts[-1]

    def __enter__(self) -> Board:
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rich.stop()

    def say(self, text: str) -> None:
        """Print a piece of the answer on the standard output, above the bar."""
        with self._lock:
            self._rich.stop()
            print(text, flush=True)
            self._rich.start()

    def note(self, text: str) -> None:
        """Print a line about the work, beside the answer."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def moved(self) -> None:
        """Show that a unit is done."""
        share, left = self.share, self.left()
        text = "" if left is None else f"about {duration(left)} left"
        self._rich.update(self._task, completed=share, text=text)
        with self._lock:
            now = time.perf_counter()
            if self._console.is_terminal or now - self._last_line < LOG_SECONDS:
                return
            self._last_line = now
        self.note(f"{self.title}: {share:.0%} done, {text}")

    @property
    def share(self) -> float:
        """What is done of that which was to be computed, by the time it takes."""
        parts = [(part.done, part.weight) for part in self._parts]  # which other threads change
        return sum(done * weight for done, weight in parts) / (sum(w for _, w in parts) or 1.0)

    def left(self) -> float | None:
        """Return seconds, from those that the done share took; None before the first unit."""
        share, elapsed = self.share, time.perf_counter() - self._started
        return elapsed * (1 - share) / share if share else None


class _Part(Progress):
    """One sweep of a board."""

    def __init__(self, board: Board, name: str, seconds: float):
        self._board, self._name = board, name
        self.weight = seconds
        """Seconds that its units took when recorded: of the new ones, once these are known."""
        self.done = 0.0
        """Share of the new units that are done."""

    def advance(self, identifier: str, error: str = "") -> None:
        """Move the bar."""
        super().advance(identifier, error)
        self.done = self._tally.share
        self._board.moved()

    @contextmanager
    def _shown(self, reused: int) -> Iterator[None]:
        total, self.done = self._tally.total, self._tally.share
        if reused:
            self.weight *= total / (total + reused)
            self._say(f"{total} unit(s) to compute, {reused} finished before")
        yield

    def _say(self, text: str) -> None:
        self._board.note(f"{self._name}: {text}")


class Tally:
    """Counts units, runs, network-steps and failures; knows the rates and the time left."""

    def __init__(self, units: Mapping[str, Unit]):
        self._units, self.total, self._started = units, len(units), time.perf_counter()
        self.done = self._failures = self._runs = self._steps = self._worked = 0
        # Units differ in size: the time left follows their steps, or runs where none are given.
        self._weights = {name: unit.steps or unit.runs or 1 for name, unit in units.items()}
        self._work = sum(self._weights.values())

    def add(self, identifier: str, error: str) -> None:
        """Count one unit."""
        unit = self._units[identifier]
        self.done += 1
        self._failures += bool(error)
        self._runs += unit.runs
        self._steps += unit.steps
        self._worked += self._weights[identifier]

    @property
    def share(self) -> float:
        """What is done of the work; 1 where there is none."""
        return self._worked / self._work if self._work else 1.0

    def sentence(self) -> str:
        """Return the numbers in one line."""
        seconds = max(time.perf_counter() - self._started, 1e-9)
        parts = [f"{_short(self._runs / seconds)} runs/s"]
        if self._steps:
            parts.append(f"{_short(self._steps / seconds)} steps/s")
        if 0 < self._worked < self._work:
            left = seconds * (self._work - self._worked) / self._worked
            parts.append(f"{duration(left)} left")
        return ", ".join([*parts, f"{self._failures} failed"])


def _short(number: float) -> str:
    """Three digits and a letter: 12.3k, 4.56M."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g}{letter}"
    return f"{number:.3g}"


def duration(seconds: float) -> str:
    """Return a time as a clock shows it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
