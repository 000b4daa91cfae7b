"""Calls measured in turns, so that all of them meet the same machine; no benchmark of its own."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any


def in_turns(measures: Sequence[Callable[[], Any]], repetitions: int) -> list[list[Any]]:
    """What each measure gives, in turns, after one round that compiles and fills the caches."""
    rounds = [[measure() for measure in measures] for _ in range(repetitions + 1)][1:]
    return [list(column) for column in zip(*rounds, strict=True)]


def interleaved(calls, repetitions: int = 7) -> list[float]:
    """Median seconds of each call, taken in turns."""

    def seconds(call) -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    columns = in_turns([lambda call=call: seconds(call) for call in calls], repetitions)
    return [statistics.median(column) for column in columns]
