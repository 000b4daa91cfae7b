"""What is said about a sweep while it runs."""

import io

import pytest
from rich.console import Console
from toy_experiment import TOY, Toy, units

from deeplin import sweep
from deeplin.sweep import engine
from deeplin.sweep import progress as module


class Clock:
    """Time that passes only when told to."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(module.time, "perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def four_units():
    config = Toy()
    return TOY.identify(config, units(config), "float64")


def test_rates_and_time_left_follow_the_work_done(clock, four_units):
    tally = module.Tally(four_units)
    assert tally.sentence() == "0 runs/s, 0 failed"
    names = list(four_units)
    tally.add(names[0], "")
    clock.now += 2.0
    assert tally.sentence() == "1.5 runs/s, 5 steps/s, 0:06 left, 0 failed"
    for name in names[1:]:
        tally.add(name, "an error")
    clock.now += 2.0
    assert tally.sentence() == "3 runs/s, 10 steps/s, 3 failed"


def test_time_left_weighs_units_by_their_steps(clock):
    tally = module.Tally({"a": sweep.Unit({}, steps=100), "b": sweep.Unit({}, steps=9900)})
    tally.add("a", "")
    clock.now += 100.0
    assert "2:45:00 left" in tally.sentence()


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.5, "0.5"), (999, "999"), (12_345, "12.3k"), (4.56e6, "4.56M"), (2.5e10, "25G")],
)
def test_large_numbers_are_short(number, text):
    assert module._short(number) == text


def test_a_log_gets_plain_lines_now_and_then_and_for_every_failure(clock, four_units):
    log = io.StringIO()
    lines = sweep.Lines("toy", log)
    names = list(four_units)
    with lines.over(four_units, reused=2, aside={"x.parquet": "damaged"}):
        lines.advance(names[0])
        clock.now += 11.0
        lines.advance(names[1])
        lines.advance(names[2], "RuntimeError: no")
    assert log.getvalue().splitlines() == [
        "toy: 4 unit(s) to compute, 2 finished before",
        "toy: set aside x.parquet: damaged",
        "toy: 2 of 4: 0.545 runs/s, 1.82 steps/s, 0:11 left, 0 failed",
        f"toy: unit {names[2]} failed: RuntimeError: no",
        "toy: 3 of 4: 0.818 runs/s, 2.73 steps/s, 0:04 left, 1 failed",
    ]


def test_a_terminal_gets_a_bar_with_the_numbers(four_units):
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=120)
    bar = sweep.Bar("toy", console)
    with bar.over(four_units, reused=2, aside={"x.parquet": "damaged"}):
        for name in four_units:
            bar.advance(name, "RuntimeError: [no]" if name == list(four_units)[1] else "")
    shown = terminal.getvalue()
    assert "6/6" in shown
    assert "1 failed" in shown
    assert "RuntimeError: [no]" in shown
    assert "set aside x.parquet" in shown


def test_the_expected_time_is_said_before_the_first_unit(four_units):
    log, terminal = io.StringIO(), io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=120)
    with sweep.Lines("toy", log).over(four_units, expected=5400.0):
        assert "toy: expected to take about 1:30:00 on this machine" in log.getvalue()
    with sweep.Bar("toy", console).over(four_units, expected=5400.0):
        assert "toy: expected to take about 1:30:00 on this machine" in terminal.getvalue()


@pytest.mark.parametrize(("worth", "expected"), [(31, 0.0), (30, 3 * 7.0)])
def test_a_rehearsal_of_one_unit_tells_the_time_of_those_that_are_missing(
    tmp_path, monkeypatch, worth, expected
):
    told = []

    class Listener(sweep.Progress):
        def over(self, units, *, expected, **others):
            told.append(expected)
            return super().over(units, expected=expected, **others)

    sweep.run(TOY, Toy(count=3), tmp_path)
    monkeypatch.setattr(engine, "WORTH_REHEARSING", worth)
    monkeypatch.setitem(vars(TOY), "rehearse", lambda config, unit: 7.0)
    sweep.run(TOY, Toy(), tmp_path, progress=Listener())
    assert told == [expected]


def test_the_bar_is_for_terminals_only(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    assert isinstance(sweep.show_progress(), sweep.Lines)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert isinstance(sweep.show_progress(), sweep.Bar)


def test_a_sweep_is_silent_unless_asked(tmp_path, capfd):
    sweep.run(TOY, Toy(), tmp_path)
    assert capfd.readouterr() == ("", "")
