"""Where a batch of runs is, what it obeys, and the one loop that takes it further.

Every dynamics is a `Dynamics`: something that takes a `State` through later steps or times.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Real, Shaped

from deeplin.interrupt import check_interrupt

RUNNING, REACHED, LOST, GAVE_UP = range(4)
"""How a run stands: on its way, at its goal, diverged, or out of what it may spend."""
PATIENCE = 0.2
"""Seconds of compiled work between two looks at the keyboard (Ctrl-C)."""
FIRST_PIECE, FIRST_WORK = 64, 10**8
"""Steps before the first such look, where no more is known, and the most weights they touch."""
GROWTH = 8
"""How many times as many there may be before the next."""


class State(NamedTuple):
    """A batch of runs. Those that stopped keep the weights and the step at which they stopped."""

    weights: tuple[Float[Array | np.ndarray, " ..."], ...]
    """The trained arrays of every run."""
    memory: PyTree[Shaped[Array | np.ndarray, " ..."]]
    """What the dynamics carries besides: velocities, an optimiser's state, times."""
    outcome: Int[np.ndarray, " batch"]
    """RUNNING, REACHED, LOST or GAVE_UP."""
    steps: Int[np.ndarray, " batch"]
    """Steps taken."""

    @property
    def running(self) -> np.ndarray:
        """Which runs are on their way."""
        return np.asarray(self.outcome) == RUNNING

    @classmethod
    def start(cls, weights: tuple[Any, ...], memory: PyTree = ()) -> State:
        """The state before the first step."""
        zeros = np.zeros(len(weights[0]), np.int32)
        return cls(weights, memory, zeros, zeros)


class Observer(Protocol):
    """Told where the runs are at each moment asked for."""

    @property
    def together(self) -> int:
        """The most moments it is told of at a time."""
        ...

    def note(self, when: float, state: State) -> None:
        """Look at the state."""
        ...

    def note_all(self, when: np.ndarray, weights: tuple[np.ndarray, ...], values: Any) -> None:
        """Look at the weights and values of several moments, the first axis of every array."""
        ...


class Dynamics(Protocol):
    """A way to move."""

    def travel(self, state: State, stops: Sequence[Any], observer: Observer) -> State:
        """Take the runs to each stop (a step or a time) and tell of it, until all have stopped."""
        ...


def drive(dynamics: Dynamics, state: State, stops: Iterable[float], observer: Observer) -> State:
    """The loop of every dynamics: through all stops, as many together as the observer takes."""
    stops = iter(stops)
    while np.any(state.running) and (some := list(islice(stops, observer.together))):
        state = dynamics.travel(state, some, observer)
    return state


class StopByStop(ABC):
    """A dynamics that goes from one stop to the next."""

    @abstractmethod
    def advance(self, state: State, until: Any) -> State:
        """Take the runs on their way towards `until` (a step or a time), perhaps part of it."""

    def clock(self, state: State) -> Real[np.ndarray, " batch"]:
        """The step or time each run has reached; here steps."""
        return np.asarray(state.steps)

    def travel(self, state: State, stops: Sequence[Any], observer: Observer) -> State:
        """To each stop in turn, until the last one or until all stopped.

        `advance` is called at least once for each stop, because that is where a run is checked
        against its goal, and again while some run is short of it.
        """
        for stop in stops:
            while True:
                state = self.advance(state, stop)
                check_interrupt()
                if not np.any(state.running & (self.clock(state) < stop)):
                    break
            observer.note(min(stop, np.max(self.clock(state))), state)
            if not np.any(state.running):
                break
        return state


class Pace:
    """How many steps to take before looking up: what `PATIENCE` seconds are enough for."""

    def __init__(self, weights: int, most: int | None = None, first: int = FIRST_PIECE):
        self.piece, self.most = max(1, min(first, FIRST_WORK // max(1, weights))), most
        self.began = 0.0

    def next(self, clock: int, until: int) -> int:
        """The step to go to from `clock` before the next look.

        A piece taken in full, and quickly, makes the next one up to `GROWTH` times as long.
        What would be left over is taken along if it is less than half a piece.
        """
        now = time.perf_counter()
        if self.began:
            longer = PATIENCE / max(now - self.began, PATIENCE / GROWTH)
            self.piece = max(self.piece, int(self.piece * longer))
        if self.most is not None:
            self.piece = min(self.piece, self.most)
        left = until - clock
        ahead = left if left < 1.5 * self.piece and left <= (self.most or left) else self.piece
        self.began = now if ahead == self.piece else 0.0
        return clock + ahead


class Rules(NamedTuple):
    """When a run stops before its last step; values are R − floor (see `Objective`)."""

    goal: Float[np.ndarray, " batch"]
    """REACHED when the value is at or below this."""
    ceiling: Float[np.ndarray, " batch"]
    """LOST when the value is above this or not a number."""
