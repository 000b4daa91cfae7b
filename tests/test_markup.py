"""What goes into papers and notebooks: LaTeX, Markdown, HTML."""

import re
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import deeplin as dl

SOURCE = Path(dl.__file__).parent


@pytest.fixture(scope="module")
def problem():
    return dl.problems.synthetic.flat_minima(seed=0).problem


@pytest.fixture(scope="module")
def runs(problem):
    keys = jax.random.split(jax.random.key(0), 3)
    nets = dl.initialize.gaussian(keys, widths=(5, 5, 5, 1), scale=0.3)
    names = ["risk", "singular_values"]
    return dl.gradient_descent(problem, nets, 0.05, 40, record_every=10, record=names)


@pytest.fixture(scope="module")
def certificate(problem, runs):
    return dl.certify(problem, runs[0])


def cells(line, end, separator):
    """The cells of a row; separators that are escaped are text."""
    assert line.endswith(end)
    return [cell.strip() for cell in re.split(rf"(?<!\\){separator}", line.removesuffix(end))]


def test_a_certificate_in_latex_has_a_row_for_each_statement_that_applies(certificate):
    table = certificate.to_latex()
    assert "not applicable" not in table
    head, body = table.split("\\midrule")
    wanted = certificate.loc[certificate["verdict"] != "not applicable", "id"]
    rows = [cells(line, r" \\", "&") for line in body.split("\\bottomrule")[0].strip().splitlines()]
    assert [row[0] for row in rows] == list(wanted)
    assert {len(row) for row in rows} == {len(cells(head.strip().splitlines()[-1], r" \\", "&"))}
    assert not re.search(r"(?<!\\)[#%_$]", table)


def test_a_certificate_of_several_runs_counts_verdicts(problem, runs):
    certificate = dl.certify(problem, runs, only=["FM-T2", "FM-L1"])
    assert r"FM-L1 & " in certificate.to_latex()
    assert "| FM-L1 | " in certificate.to_markdown()


def test_markdown_has_the_columns_of_its_head(certificate):
    head, rule, *rows = certificate.to_markdown().splitlines()
    assert re.fullmatch(r"\|( --- \|)+", rule)
    assert {len(cells(row, "|", r"\|")) for row in (head, rule, *rows)} == {7}
    broken = certificate.copy()
    broken["title"] = "x|y"
    assert r"| x\|y |" in type(certificate)(broken).to_markdown()


@pytest.mark.parametrize("name", ["FM-T99", "Theorem 2", "nothing"])
def test_a_statement_that_is_not_there_is_refused(problem, runs, name):
    with pytest.raises(dl.InputError, match=f"no statement {name}"):
        dl.certify(problem, runs[0], only=name)


# --- runs as tables and in notebooks -------------------------------------------------------------


def test_a_run_becomes_a_tidy_table(runs):
    table = runs.to_frame()
    assert list(table.columns) == ["run", "step", "quantity", "value"]
    wide = table.pivot(index=["step", "run"], columns="quantity", values="value")
    for k in range(3):
        one = wide.xs(k, level="run")
        np.testing.assert_array_equal(one["risk"], runs.records["risk"][:, k])
        layers = one[[f"singular_values_{j}" for j in (1, 2, 3)]]
        np.testing.assert_array_equal(layers, runs.records["singular_values"][:, k])
    assert set(runs[1].to_frame()["run"]) == {0}


def test_a_batch_that_recorded_only_layers_has_one_row_for_each_run(problem, runs):
    names = ["singular_values"]
    again = dl.gradient_descent(problem, runs.initial, 0.05, 4, record_every=2, record=names)
    table = again.to_frame()
    assert set(table["run"]) == {0, 1, 2}
    assert set(table["quantity"]) >= {"singular_values_1", "singular_values_3"}
    assert "singular_values_4" not in set(table["quantity"])


def test_a_run_without_records_has_no_table(problem, runs):
    with pytest.raises(dl.InputError, match="record_every"):
        dl.gradient_descent(problem, runs[0].initial, 0.05, 3).to_frame()


def test_runs_are_counted_and_iterated(runs):
    assert len(runs) == 3
    assert len(runs[0]) == 1
    assert [one.steps for one in runs] == [40, 40, 40]
    assert runs[-1].evidence["risk"] == runs[2].evidence["risk"]
    with pytest.raises(IndexError, match="run 3 of a batch of 3"):
        runs[3]


def test_everything_shows_itself_in_a_notebook(problem, runs, certificate):
    frame = pd.read_csv(SOURCE.parents[1] / "examples" / "data.csv")
    report = dl.diagnose(frame, depth=[3], target="y", initialization=None)
    for thing, part in [
        (problem, "<td>50</td>"),
        (runs, "3 stopped"),
        (runs[0], "<td>0.05</td>"),
        (certificate, "<td>FM-T2</td>"),
        (report, "Use learning rate"),
    ]:
        text = thing._repr_html_()
        assert part in text
        assert text.count("<table") == text.count("</table>") >= 1
