"""What goes into papers and notebooks: LaTeX that compiles, Markdown with its columns, HTML."""

import ast
import re
import shutil
import subprocess
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import deeplin as dl
from deeplin.certificates.statements import STATEMENTS
from deeplin.markup import latex, markdown_table

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


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("50% of a_b & {c}", r"50\% of a\_b \& \{c\}"),
        ("‖W‖ ≤ λ", r"\ensuremath{\|}W\ensuremath{\|} \ensuremath{\leq} \ensuremath{\lambda}"),
        ("Σ̂", r"\ensuremath{\hat{\Sigma}}"),
        ("Łojasiewicz, Lénaïc", r"\L{}ojasiewicz, L\'{e}na\"{i}c"),
        ("L⁻¹", r"L\ensuremath{^{-}}\ensuremath{^{1}}"),
        ("☃", r"\texttt{U+2603}"),
    ],
)  # fmt: skip
def test_text_is_written_in_latex(text, written):
    assert latex(text) == written


def test_every_character_that_statements_use_has_a_name_in_latex():
    for path in (SOURCE / "certificates").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert "U+" not in latex(node.value), node.value
    for entry in STATEMENTS.values():
        assert "U+" not in latex(f"{entry.title} {entry.reference} {entry.formula}"), entry.id


def compiles(table):
    """Compile with LaTeX where it is installed; else check every character and pair."""
    assert table.isascii()
    program = shutil.which("pdflatex")
    if program:
        document = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
        command = [program, "-halt-on-error", "-interaction=nonstopmode", "-draftmode"]
        text = document + table + "\\end{document}"
        return subprocess.run(command, input=text, capture_output=True, text=True).returncode == 0
    bare = re.sub(r"\\[&%$#_{}|]|\\\\", "", table)
    lines = bare.split("\\midrule")[1].split("\\bottomrule")[0].strip().splitlines()
    assert not set(bare) & set("%$#~")
    assert not re.search(r"[_^](?!\{)", bare)
    assert bare.count("{") == bare.count("}")
    assert len({line.count("&") for line in lines}) == 1
    return set(re.findall(r"\\begin\{(\w+)", bare)) == {"tabular"}


def test_a_certificate_of_one_run_compiles(certificate):
    table = certificate.to_latex()
    assert compiles(table)
    for id in certificate.loc[certificate["verdict"] != "not applicable", "id"]:
        assert latex(id) in table
    assert "not applicable" not in table


def test_a_certificate_of_several_runs_compiles(problem, runs):
    certificate = dl.certify(problem, runs, only=["FM-T2", "FM-L1"])
    assert compiles(certificate.to_latex())
    assert "FM-L1" in certificate.to_markdown()


def test_markdown_has_the_columns_of_its_head(certificate):
    head, rule, *rows = certificate.to_markdown().splitlines()
    assert re.fullmatch(r"\|(---\|)+", rule)
    bars = [len(re.findall(r"(?<!\\)\|", row)) for row in (head, rule, *rows)]
    assert len(set(bars)) == 1
    assert markdown_table(["a"], [["x|y\nz"]]).splitlines()[2] == r"| x\|y z |"


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("Theorem 2", ["FM-T2"]),
        ("FM, Theorem 2", ["FM-T2"]),
        ("fm theorem 2", ["FM-T2"]),
        ("BO, Lemma 4.5", ["BO-L4.5"]),
        ("FM, Assumption (A2)", ["FM-A2"]),
        ("Assumption A2", ["FM-A2", "BO-A2"]),
        ("fm-t2", ["FM-T2"]),
    ],
)
def test_statements_are_found_as_their_paper_calls_them(problem, runs, name, ids):
    assert dl.certify(problem, runs[0], only=name)["id"].tolist() == ids


def test_every_numbered_statement_is_found_by_its_reference(problem, runs):
    from deeplin.certificates.certificate import _named

    for id, statement in STATEMENTS.items():
        place = re.match(
            r"\w+, (?:Theorem|Lemma|Corollary|Proposition) [\w.]*\w", statement.reference
        )
        if place and re.fullmatch(r"\w+-[LPTC][\w.]+", id):
            assert id in _named(place[0]), (id, place[0])


@pytest.mark.parametrize("name", ["Theorem 99", "BO, Theorem 2", "nothing"])
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
    report = dl.diagnose(frame, depths=[3], target="y", initialization=None)
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
