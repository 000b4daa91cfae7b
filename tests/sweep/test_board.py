"""Several sweeps on one board: the share that is done, and the time left."""

import io

import pytest
from rich.console import Console

from deeplin.sweep import Board, Unit, progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when it is told to."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def units(*steps):
    return {str(k): Unit({"k": k}, runs=1, steps=size) for k, size in enumerate(steps)}


def make(seconds, terminal=False):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=80)
    return Board("reproduce", seconds, console), stream


def test_time_left_follows_the_work_that_was_recorded(clock):
    shown, _ = make({"small": 10.0, "large": 30.0})
    small, large = shown.part("small"), shown.part("large")
    assert shown.left() is None
    with small.over(units(1, 1)):
        clock[0] = 4.0
        small.advance("0")  # half of a quarter
    assert shown.share == 1 / 8
    assert shown.left() == 28.0
    with large.over(units(1, 3)):
        small.advance("1")
        large.advance("1")  # three quarters of three quarters
    assert shown.share == 1 / 4 + 9 / 16


def test_what_was_finished_before_is_no_work(clock):
    shown, stream = make({"first": 10.0, "second": 10.0})
    first = shown.part("first")
    shown.part("second")
    with first.over(units(1), reused=3):  # a quarter of ten seconds is new
        clock[0] = 1.0
        first.advance("0")
    assert shown.share == 2.5 / 12.5
    assert shown.left() == pytest.approx(4.0)
    assert "first: 1 unit(s) to compute, 3 finished before" in stream.getvalue()


def test_a_sweep_without_a_record_counts_as_a_usual_one():
    shown, _ = make({"a": 2.0, "b": 4.0, "c": 60.0})
    assert shown.part("new").weight == 4.0
    assert make({})[0].part("new").weight == 1.0


def test_a_log_gets_a_line_now_and_then(clock):
    shown, stream = make({"only": 1.0})
    only = shown.part("only")
    with shown, only.over(units(1, 1, 1, 1)):
        for step in range(4):
            clock[0] += 6.0
            only.advance(str(step))
    assert stream.getvalue().splitlines() == [
        "reproduce: 50% done, about 0:12 left",
        "reproduce: 100% done, about 0:00 left",
    ]


def test_the_answer_stays_on_the_standard_output_beside_a_bar(capsys):
    shown, stream = make({}, terminal=True)
    only = shown.part("only")
    with shown, only.over(units(1, 1)):
        only.advance("0", "it broke")
        shown.say("the answer")
    assert capsys.readouterr().out == "the answer\n"
    assert "only: unit 0 failed: it broke" in stream.getvalue()
    assert "50%" in stream.getvalue()
