"""`deeplin reproduce` as a user meets it."""

import json
from pathlib import Path

import pytest

from deeplin.cli import main
from deeplin.papers import catalogue, sentences, verdicts
from deeplin.papers.report import ending, figure_lines, write_figure

KNOWN = {
    name: {"verdict": verdict, "value": ""}
    for name, verdict in (("first", "reproduced"), ("second", "reproduced"), ("third", "differs"))
}


@pytest.fixture
def command(toy_figures, toy_quotes, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(catalogue, "FIGURES", toy_figures)
    monkeypatch.setattr(sentences, "QUOTES", toy_quotes)
    monkeypatch.setattr(verdicts, "everything", lambda: {"quick": {"quotes": KNOWN}})
    # the cache of compiled code must stay out of the home folder
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["reproduce", *arguments, "--out", str(tmp_path)])
        return ended.value.code, capsys.readouterr()

    return run


def test_a_line_for_the_figure_the_three_lines_and_the_report(command, tmp_path):
    code, printed = command("TOY-1")
    assert code == 0
    assert (tmp_path / "report" / "index.html").is_file()
    first, *summary, opened = printed.out.splitlines()
    assert first.startswith(
        "TOY-1       quotes: 1 reproduced, 0 differ, 0 undecided; 1 question answered ("
    )
    assert summary == [
        "Panels: 1 of 1 reproduced.",
        "Quotes: 1 reproduced, 0 differ, 0 undecided.",
        "Theorems: none judged here.",
    ]
    assert opened.endswith(f"open {tmp_path / 'report' / 'index.html'}")
    assert printed.err.startswith("deeplin: reproducing")  # before anything is computed


def test_a_known_difference_is_explained_and_does_not_end_in_failure(command):
    code, printed = command()
    assert code == 0
    assert "Quotes: 2 reproduced, 1 differs, 0 undecided." in printed.out
    text = " ".join(printed.out.split())
    assert (
        "– Figure 0: “The third squares are small.” Measured on 2 runs: differs, largest: 3 (at "
        "most 2). Wider than it should be (E-9)." in text
    )


@pytest.mark.parametrize("name", ["first", "third"])
def test_it_exits_1_when_a_verdict_contradicts_the_record(command, monkeypatch, name):
    other = {"reproduced": "differs", "differs": "reproduced"}[KNOWN[name]["verdict"]]
    known = KNOWN | {name: {"verdict": other, "value": ""}}
    monkeypatch.setattr(verdicts, "everything", lambda: {"quick": {"quotes": known}})
    code, printed = command()
    assert code == 1
    assert f"“{name}” was recorded as {other}" in printed.out


@pytest.mark.parametrize("width", [80, 120])
def test_text_is_broken_between_words(report, monkeypatch, width):
    outcome = json.loads((report / "TOY-2" / "outcome.json").read_text(encoding="utf-8"))
    quote = outcome["quotes"][1]
    quote["why"] = " ".join(f"word{number}" for number in range(100))
    known = KNOWN | {"third": {"verdict": "reproduced", "value": ""}}
    monkeypatch.setattr(verdicts, "everything", lambda: {"quick": {"quotes": known}})
    end = ending([outcome], Path("report/index.html"), width)
    assert "differs here" in end
    text = figure_lines(outcome, width)
    assert max(map(len, text.splitlines())) <= width
    assert quote["why"] in " ".join(text.split())


def test_a_figure_that_could_not_be_computed_says_why(broken_result, tmp_path):
    text = figure_lines(write_figure(broken_result, tmp_path), 80)
    assert text.startswith("TOY-1       not computed (")
    assert "this unit breaks" in text


def test_verdicts_come_as_json(command):
    code, printed = command("--json", "--workers", "2")
    found = json.loads(printed.out)
    assert code == 0
    assert found["summary"][1] == "Quotes: 2 reproduced, 1 differs, 0 undecided."
    first, second = found["figures"]
    assert first["questions"][0]["answer"] == "Two, ± 0.1."
    assert [quote["verdict"] for quote in second["quotes"]] == ["reproduced", "differs"]


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


def test_a_quick_verdict_stands_beside_that_of_the_full_protocol(report):
    outcome = json.loads((report / "TOY-2" / "outcome.json").read_text(encoding="utf-8"))
    for quote in outcome["quotes"]:
        quote["full"] = {"verdict": "reproduced", "value": "0.5", "of_runs": 30}
    line, *below = figure_lines(outcome, 500).splitlines()
    one = "1 reproduced, 1 differs, 0 undecided; full protocol: 2 reproduced, 0 differ, 0 undecided"
    assert f"quotes: {one}" in line
    assert "on 2 runs: differs, largest: 3 (at most 2)." in below[0]
    assert "Full protocol, 30 runs: reproduced, 0.5." in below[0]


def test_the_list_has_every_figure_and_computes_nothing(command, tmp_path):
    code, printed = command("--list")
    assert code == 0
    assert [line.split()[0] for line in printed.out.splitlines()[:-1]] == ["TOY-1", "TOY-2"]
    assert "not recorded" in printed.out
    assert not (tmp_path / "results").exists()
