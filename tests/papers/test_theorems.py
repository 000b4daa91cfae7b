"""How the papers' theorems are counted, from tables of certificates."""

import pandas as pd
import pytest
from matplotlib.figure import Figure

from deeplin.certificates.registry import THEOREMS
from deeplin.papers import theorems
from deeplin.papers.catalogue import PANELS
from deeplin.papers.verdicts import theorem_count

CONFIG = theorems.STUDY.quick


def table(*rows):
    columns = ["run", "id", "kind", "part", "verdict", "left", "right", "judged"]
    return pd.DataFrame(rows, columns=columns).assign(data_seed=-1, title="")


ROWS = (
    ("flow", "FM-T1", "theorem", "", "holds", 1.0, 2.0, True),
    ("flow", "FM-T4", "theorem", "radius", "holds", 1.0, 2.0, True),
    ("flow", "FM-T4", "theorem", "rate", "hypotheses not met", 1.0, 2.0, False),
    ("wide", "BO-T3.2", "theorem", "bias", "measured", 0.5, float("nan"), True),
    ("wide", "BO-L4.1", "lemma", "", "holds", 1.0, 1.0, True),
    ("wide", "BO-C3.4", "corollary", "", "measured", 0.5, float("nan"), False),
    ("wide", "BO-D2.2", "definition", "", "measured", 1.0, float("nan"), False),
    ("wide", "X-31", "exact result", "(a)", "holds", 1.0, 2.0, True),
    ("wide", "X-31", "exact result", "from β = 0", "hypotheses not met", 1.0, 2.0, False),
    ("wide", "E-4", "erratum", "", "violated", 1.0, 0.0, True),
)


def test_a_theorem_is_judged_on_a_run_that_meets_the_hypotheses_of_all_its_claims():
    found = theorems.count(CONFIG, table(*ROWS))
    assert found["theorems"] == ["FM-T1", "BO-T3.2"]
    assert len(found["unmet"]) == 10
    assert {"FM-T4", "BO-T3.1", "BO-C3.4"} <= set(found["unmet"])
    assert (found["runs"], found["lemmas"], found["exact"]) == (2, 1, 1)
    assert found["violated"] == []


def test_a_violated_theorem_is_named_and_a_printed_mistake_is_not_a_violation():
    bad = ("flow", "FM-T2", "theorem", "", "violated", 3.0, 2.0, True)
    found = theorems.count(CONFIG, table(*ROWS, bad))
    assert found["violated"] == ["FM-T2"]
    assert "judged 3 of the papers' 12 theorems" in theorem_count(found)
    assert "FM-T2 violated" in theorem_count(found)


def test_the_panel_is_a_table_of_the_twelve_theorems():
    ax = Figure().add_subplot()
    PANELS["Theorems"].plot(CONFIG, table(*ROWS), ax)
    texts = [text.get_text() for text in ax.texts]
    assert [text for text in texts if text in THEOREMS] == list(THEOREMS)
    assert "needs c ≥ 0.5" in texts


def test_the_runs_of_the_study_are_named_after_what_they_are():
    units = theorems.STUDY.experiment.units(CONFIG)
    assert [unit.coordinates["run"] for unit in units] == list(theorems.RUNS)


@pytest.mark.extended
def test_the_runs_of_the_study_meet_the_hypotheses_of_all_twelve_theorems():
    experiment = theorems.STUDY.experiment
    tables = [experiment.run_unit(CONFIG, unit) for unit in experiment.units(CONFIG)]
    table = pd.concat(tables, ignore_index=True)
    found = theorems.count(CONFIG, table)
    assert found["theorems"] == list(THEOREMS)
    assert found["violated"] == found["unmet"] == []
    assert {"X-27", "X-28", "X-31"} <= set(theorems.judged(table)["id"])
    constants = table.query("id == 'BO-C3.4'").set_index("run")
    assert (constants["verdict"] == "measured").sum() > 1
    assert constants["judged"].to_dict()["flow, wide, β√m = 30"]
    assert not constants["judged"].to_dict()["flow, wide network"]  # only with c beyond `allowed`
    assert not table.query("kind == 'definition' and verdict == 'measured'")["judged"].any()
