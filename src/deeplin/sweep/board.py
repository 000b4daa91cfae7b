"""How far several sweeps are as a whole: one bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as RichProgress

from deeplin.sweep.progress import LOG_SECONDS, Progress, duration


class Board:
    """Sweeps side by side with the time left for all; `seconds` is what each once took.

    Only the ratios of these times count: the clock is this machine's own.
    """

    def __init__(self, title: str, seconds: Mapping[str, float], console: Console | None = None):
        self.title = title
        self._usual = median(seconds.values()) if seconds else 1.0
        self._seconds = dict(seconds)
        self._parts: list[_Part] = []
        self._console = console or Console(stderr=True)
        self._lock = threading.Lock()
        self._started = self._spoke = time.perf_counter()
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        left = TextColumn("{task.fields[left]}")
        # The answer goes to the standard output, which this bar must leave alone.
        self._rich = RichProgress(
            *columns, left, console=self._console, transient=True, redirect_stdout=False
        )
        self._task = self._rich.add_task(title, total=1.0, left="")

    def part(self, name: str) -> Progress:
        """The progress of one sweep, to be told of its units."""
        self._parts.append(_Part(self, name, self._seconds.get(name, self._usual)))
        return self._parts[-1]

    def __enter__(self) -> Board:
        if self._console.is_terminal:
            self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._rich.stop()

    def say(self, text: str) -> None:
        """A piece of the answer on the standard output, above the bar."""
        with self._lock:
            self.__exit__()
            print(text, flush=True)
            self.__enter__()

    def note(self, text: str) -> None:
        """A line about the work, beside the answer."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def moved(self) -> None:
        """A unit came."""
        share, left = self.share, self.left()
        text = "" if left is None else f"about {duration(left)} left"
        self._rich.update(self._task, completed=share, left=text)
        with self._lock:
            quiet = self._console.is_terminal or time.perf_counter() - self._spoke < LOG_SECONDS
            if quiet:
                return
            self._spoke = time.perf_counter()
        self.note(f"{self.title}: {share:.0%} done, {text}")

    @property
    def share(self) -> float:
        """What is done of that which was to be computed, by the time it takes."""
        weights = [part.weight for part in self._parts]
        pairs = zip(self._parts, weights, strict=True)
        return sum(part.done * weight for part, weight in pairs) / (sum(weights) or 1.0)

    def left(self) -> float | None:
        """Seconds, from those that the done share took; None before the first unit."""
        share = self.share
        elapsed = time.perf_counter() - self._started
        return elapsed * (1 - share) / share if share else None


class _Part(Progress):
    """One sweep of a board."""

    def __init__(self, board: Board, name: str, seconds: float):
        self._board, self._name, self._seconds = board, name, seconds
        self._new = 1.0  # share that is computed now, not found finished; known once it starts

    @property
    def weight(self) -> float:
        """Seconds that its new units once took."""
        return self._seconds * self._new

    @property
    def done(self) -> float:
        """Share of the new units that came."""
        return self._tally.share if hasattr(self, "_tally") else 0.0

    def advance(self, identifier: str, error: str = "") -> None:
        """Move the bar."""
        super().advance(identifier, error)
        self._board.moved()

    @contextmanager
    def _shown(self, reused: int) -> Iterator[None]:
        total = self._tally.total
        self._new = total / (total + reused) if reused else 1.0
        if reused:
            self._say(f"{total} unit(s) to compute, {reused} finished before")
        yield

    def _say(self, text: str) -> None:
        self._board.note(f"{self._name}: {text}")
