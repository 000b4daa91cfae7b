"""What is shown of a sweep, or of several on one board, while they run."""

import io

import pytest
from rich.console import Console
from toy_experiment import squares

from deeplin import sweep
from deeplin.sweep import progress as module


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when told to."""
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def four_units():
    return sized(10, 10, 10, 10)


@pytest.fixture
def terminal():
    """A terminal, and a log, that keep what was written."""
    return Console(file=io.StringIO(), force_terminal=True, width=120)


@pytest.fixture
def log():
    return Console(file=io.StringIO(), width=120)


def test_time_left_follows_the_work_done(clock, four_units, log):
    progress = sweep.show_progress("toy", log)
    names = list(four_units)
    with progress.over(four_units):
        clock[0] += 12.0
        progress.advance(names[0])
        for name in names[1:]:
            clock[0] += 4.0
            progress.advance(name, "an error")
    assert log.file.getvalue().splitlines() == [
        "toy: 4 unit(s) to compute, 0 finished before",
        "toy: 25% done, about 0:00:36 left",
        *(f"toy: unit {name} failed: an error" for name in names[1:]),
        "toy: 100% done, 3 failed",
    ]


def test_a_log_gets_what_was_finished_before_and_what_is_damaged(four_units, log):
    with sweep.show_progress("toy", log).over(four_units, reused=2, damaged=["x.parquet"]):
        pass
    assert log.file.getvalue().splitlines() == [
        "toy: 4 unit(s) to compute, 2 finished before",
        "toy: x.parquet is damaged, and made again",
    ]


def test_a_terminal_gets_a_bar_with_the_numbers(four_units, terminal):
    bar = sweep.show_progress("toy", terminal)
    with bar.over(four_units, reused=2, damaged=["x.parquet"]):
        for name in four_units:
            bar.advance(name, "RuntimeError: [no]" if name == list(four_units)[1] else "")
    for said in ("100%", "1 failed", "RuntimeError: [no]", "x.parquet is damaged"):
        assert said in terminal.file.getvalue()


def test_a_sweep_prints_nothing_by_default(tmp_path, capfd):
    sweep.grid(squares, {"up_to": [1]}, tmp_path, workers=1)
    assert capfd.readouterr() == ("", "")


# --- several sweeps on one board -----------------------------------------------------------------


def sized(*steps):
    return {str(k): sweep.Unit({"k": k}, runs=1, steps=size) for k, size in enumerate(steps)}


def test_time_left_follows_the_work_that_was_recorded(clock):
    shown = sweep.Board("reproduce", {"small": 10.0, "large": 30.0})
    small, large = shown.part("small"), shown.part("large")
    assert shown.left() is None
    with small.over(sized(1, 1)):
        clock[0] = 4.0
        small.advance("0")  # half of a quarter
    assert shown.share == 1 / 8
    assert shown.left() == 28.0
    with large.over(sized(1, 3)):
        small.advance("1")
        large.advance("1")  # three quarters of three quarters
    assert shown.share == 1 / 4 + 9 / 16


def test_what_was_finished_before_is_no_work(clock, log):
    shown = sweep.Board("reproduce", {"first": 10.0, "second": 10.0}, log)
    first = shown.part("first")
    shown.part("second")
    with first.over(sized(1), reused=3):  # a quarter of ten seconds is new
        clock[0] = 1.0
        first.advance("0")
    assert shown.share == 2.5 / 12.5
    assert shown.left() == pytest.approx(4.0)
    assert "first: 1 unit(s) to compute, 3 finished before" in log.file.getvalue()


def test_a_log_gets_a_line_now_and_then(clock, log):
    shown = sweep.Board("reproduce", {"only": 1.0}, log)
    only = shown.part("only")
    with shown, only.over(sized(1, 1, 1, 1)):
        for step in range(4):
            clock[0] += 6.0
            only.advance(str(step))
    assert log.file.getvalue().splitlines() == [
        "reproduce: 50% done, about 0:00:12 left",
        "reproduce: 100% done",
    ]


def test_the_answer_stays_on_the_standard_output_beside_a_bar(capsys, terminal):
    shown = sweep.Board("reproduce", {}, terminal)
    only = shown.part("only")
    with shown, only.over(sized(1, 1)):
        only.advance("0", "it broke")
        shown.say("the answer")
    assert capsys.readouterr().out == "the answer\n"
    assert "only: unit 0 failed: it broke" in terminal.file.getvalue()
    assert "50%" in terminal.file.getvalue()
