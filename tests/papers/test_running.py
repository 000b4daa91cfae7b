"""Running studies: once for all figures, resumably, with failures told."""

import pytest
import toy_figures
from toy_figures import COMPUTED, study

from deeplin.errors import InputError
from deeplin.papers.figures import Question, reproduce
from deeplin.papers.verdicts import Quote, exactly


def largest(config, table):
    return [Question("largest", "Which number is the largest?", str(table["number"].max()))]


def figure(name, toy):
    return toy_figures.figure(name, toy, largest)


@pytest.fixture(autouse=True)
def _forget():
    COMPUTED.clear()


def test_a_shared_study_is_computed_once(tmp_path):
    shared = study()
    results = list(reproduce([figure("A", shared), figure("B", shared)], tmp_path))
    assert COMPUTED == [1, 2]
    assert [r.panels[0].questions[0].answer for r in results] == ["2", "2"]


def test_a_second_call_computes_nothing_and_says_the_same(tmp_path):
    first, second = (next(reproduce([figure("A", study())], tmp_path)) for _ in range(2))
    assert COMPUTED == [1, 2]
    assert first.panels[0].questions == second.panels[0].questions
    assert first.panels[0].data.seconds == second.panels[0].data.seconds


def test_presets_and_seeds_do_not_meet(tmp_path):
    options = ({}, {"preset": "paper"}, {"seed": 7})
    tables = [
        next(reproduce([figure("A", study())], tmp_path, **kind)).panels[0].data.table
        for kind in options
    ]
    assert [len(table) for table in tables] == [2, 3, 2]
    assert set(tables[2]["seed"]) == {7}


@pytest.mark.parametrize(("upper", "verdict"), [(10.0, "reproduced"), (1.5, "differs")])
def test_quotes_about_a_panel_are_judged_with_it(tmp_path, upper, verdict):
    def small(config, table, other):
        return [exactly("", table["number"].max() + len(other), upper=2 + upper)]

    toy, other = study(), study("other")
    quote = Quote("q", "FM", "here", "Numbers are small.", "Ours.", "Aa", (toy, other), small)
    (result,) = reproduce([figure("A", toy)], tmp_path, quotes=[quote])
    assert [q["verdict"] for q in result.quotes] == [verdict]


def test_a_unit_that_breaks_spoils_its_figure_and_no_other(tmp_path):
    bad, good = figure("A", study("bad", broken=True)), figure("B", study("good"))
    first, second = reproduce([bad, good], tmp_path, workers=2)
    assert first.panels == ()
    assert set(first.failures) == {"bad: RuntimeError: this unit breaks"}
    assert second.failures == ()


@pytest.mark.parametrize("options", [{"preset": "slow"}, {"seed": -1}, {"workers": 0}])
def test_bad_options_are_refused(tmp_path, options):
    with pytest.raises(InputError, match=next(iter(options))):
        next(reproduce([figure("A", study())], tmp_path, **options))
