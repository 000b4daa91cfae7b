"""Running studies: once for all figures, resumably, with failures told."""

from functools import partial

import pytest
import toy_figures
from toy_figures import COMPUTED, study

from deeplin.errors import InputError
from deeplin.papers.catalogue import Claim, Figure, Panel, reproduce


def small_numbers(config, table, upper):
    return [Claim("numbers are small", table["number"].max(), upper=upper)]


def figure(name, toy, upper=10.0):
    return toy_figures.figure(name, toy, partial(small_numbers, upper=upper))


@pytest.fixture(autouse=True)
def _forget():
    COMPUTED.clear()


def test_a_shared_study_is_computed_once(tmp_path):
    shared = study()
    results = list(reproduce([figure("A", shared), figure("B", shared)], tmp_path))
    assert COMPUTED == [1, 2]
    assert [result.verdict for result in results] == ["holds", "holds"]


def test_a_second_call_computes_nothing_and_says_the_same(tmp_path):
    first, second = (next(reproduce([figure("A", study())], tmp_path)) for _ in range(2))
    assert COMPUTED == [1, 2]
    assert first.claims == second.claims
    assert first.panels[0].data.seconds == second.panels[0].data.seconds


def test_presets_and_seeds_do_not_meet(tmp_path):
    options = ({}, {"preset": "paper"}, {"seed": 7})
    tables = [
        next(reproduce([figure("A", study())], tmp_path, **kind)).panels[0].data.table
        for kind in options
    ]
    assert [len(table) for table in tables] == [2, 3, 2]
    assert set(tables[2]["seed"]) == {7}


def test_a_claim_that_fails_is_told(tmp_path):
    (result,) = reproduce([figure("A", study(), upper=1.5)], tmp_path)
    assert result.verdict == "fails"
    assert [claim.verdict for claim in result.claims] == ["fails"]


def test_a_unit_that_breaks_spoils_its_figure_and_no_other(tmp_path):
    bad, good = figure("A", study("bad", broken=True)), figure("B", study("good"))
    first, second = reproduce([bad, good], tmp_path, workers=2)
    assert first.verdict == "not computed"
    assert first.panels == ()
    assert set(first.failures) == {"bad: RuntimeError: this unit breaks"}
    assert second.verdict == "holds"


def test_a_panel_may_compare_with_another_study(tmp_path):
    first, second = study("first"), study("second")

    def claims(config, table, other):
        return [Claim("as many rows", len(table) - len(other), lower=0.0, upper=0.0)]

    panel = Panel("Aa", "Squares.", first, toy_figures.plot, claims, beside=second)
    (result,) = reproduce([Figure("A", "t", (panel,), "p", "r")], tmp_path)
    assert result.verdict == "holds"
    assert len(COMPUTED) == 4


@pytest.mark.parametrize("options", [{"preset": "slow"}, {"seed": -1}, {"workers": 0}])
def test_bad_options_are_refused(tmp_path, options):
    with pytest.raises(InputError, match=next(iter(options))):
        next(reproduce([figure("A", study())], tmp_path, **options))
