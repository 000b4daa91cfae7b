"""`deeplin reproduce` as a user meets it."""

import json
from pathlib import Path

import pytest

from deeplin.cli import main
from deeplin.papers import catalogue as figures
from deeplin.papers import recorded
from deeplin.papers.report import ending, figure_lines, write_figure

KNOWN = {"TOY-1a/good": "holds", "TOY-2a/good": "holds", "TOY-2a/bad": "fails"}


@pytest.fixture
def command(toy_figures, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "FIGURES", toy_figures)
    monkeypatch.setattr(recorded, "read", lambda preset: KNOWN)
    # the cache of compiled code must stay out of the home folder
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["reproduce", *arguments, "--out", str(tmp_path)])
        return ended.value.code, capsys.readouterr()

    return run


def test_it_exits_0_when_every_verdict_is_the_recorded_one_and_writes_the_report(command, tmp_path):
    code, printed = command("TOY-1")
    assert code == 0
    assert (tmp_path / "report" / "index.html").is_file()
    first, count, opened = printed.out.splitlines()
    assert first.startswith("TOY-1      ✓ 1 of 1 claims hold (")
    assert count == "1 of 1 claims hold; every verdict is the recorded one."
    assert opened.endswith(f"open {tmp_path / 'report' / 'index.html'}")
    assert printed.err.startswith("deeplin: reproducing")  # before anything is computed


def test_a_known_failure_is_shown_and_does_not_end_in_failure(command):
    code, printed = command()
    assert code == 0
    assert "2 of 3 claims hold, 1 fails; every verdict is the recorded one" in printed.out
    failing = "✗ TOY-2a: It fails. Measured 3, limit at most 2. Known: E-9."
    assert [line.strip() for line in printed.out.splitlines() if "It " in line] == [failing]


@pytest.mark.parametrize("claim", ["TOY-1a/good", "TOY-2a/bad"])
def test_it_exits_1_when_a_verdict_changed_for_better_or_worse(command, monkeypatch, claim):
    other = {"holds": "fails", "fails": "holds"}[KNOWN[claim]]
    monkeypatch.setattr(recorded, "read", lambda preset: {**KNOWN, claim: other})
    code, printed = command()
    assert code == 1
    assert f"{claim}: recorded {other}, found {KNOWN[claim]}. It " in printed.out


def test_a_claim_that_was_never_recorded_is_a_change(command, monkeypatch):
    monkeypatch.setattr(recorded, "read", lambda preset: {})
    assert command("TOY-1")[0] == 1


@pytest.mark.parametrize("width", [80, 120])
def test_text_is_broken_between_words(report, width):
    outcome = json.loads((report / "TOY-2" / "outcome.json").read_text(encoding="utf-8"))
    claim = outcome["panels"][0]["claims"][1]
    claim["sentence"] = " ".join(f"word{number}" for number in range(100))
    change = recorded.Change("TOY-2a/bad", "holds", "fails")
    end = ending([outcome], [change], Path("report/index.html"), width)
    for text in (figure_lines(outcome, width), end):
        assert max(map(len, text.splitlines())) <= width
        assert claim["sentence"] in " ".join(text.split())


def test_a_figure_that_could_not_be_computed_says_why(broken_result, tmp_path):
    text = figure_lines(write_figure(broken_result, tmp_path), 80)
    assert text.startswith("TOY-1      ✗ not computed (")
    assert "this unit breaks" in text


def test_verdicts_come_as_json(command):
    code, printed = command("--json", "--workers", "2")
    first, second = json.loads(printed.out)
    assert code == 0
    assert (first["name"], first["verdict"]) == ("TOY-1", "holds")
    assert [claim["verdict"] for claim in second["claims"]] == ["holds", "fails"]
    assert second["claims"][0]["panel"] == "TOY-2a"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["FM-99"], "no figure FM-99"),
        (["--preset", "slow"], "preset is 'slow'"),
        (["--seed", "-1"], "seed"),
        (["--workers", "0"], "workers"),
    ],
)
def test_bad_input_exits_2_with_one_sentence(command, arguments, told):
    code, printed = command(*arguments)
    assert code == 2
    assert told in printed.err
    assert "Traceback" not in printed.err


def test_the_second_call_goes_on_where_the_first_stopped(command):
    command("TOY-1")
    _, printed = command("TOY-1")
    assert "2 finished before" in printed.err
