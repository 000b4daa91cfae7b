"""A visitor's table is read in the page, or by the local server; broken ones get a sentence."""

import json

import numpy as np
import pytest

import deeplin as dl
from deeplin.cli import main

pytestmark = pytest.mark.browser
QUICK = "#depth=3&steps=60&seeds=2"


def table(rows=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3)) * [1, 20, 0.5] + [3, -2, 0]
    y = X @ [1.0, 0.1, -2.0] + 0.5 * rng.normal(size=rows) + 7
    return np.column_stack([X, y]).round(6)


def text_of(values, separator=",", decimal=".", header="a,b,c,target"):
    lines = [header.replace(",", separator)]
    lines += [separator.join(repr(float(v)).replace(".", decimal) for v in row) for row in values]
    return "\n".join(lines) + "\n"


def give(visitor, name, content):
    data = content.encode() if isinstance(content, str) else content
    visitor.page.locator("#file").set_input_files(
        {"name": name, "mimeType": "text/csv", "buffer": data}
    )


def minimal_sharpness(values, depth):
    """S_min of the table with every column standardized."""
    standard = (values - values.mean(0)) / values.std(0)
    problem = dl.Problem.from_data(standard[:, :-1], standard[:, -1])
    return float(dl.theory.minimal_sharpness(problem, depth).exact)


@pytest.mark.parametrize(
    "content",
    [
        text_of(table()),
        text_of(table(), separator=";", decimal=","),
        "\ufeff" + text_of(table(), separator="\t").replace("\n", "\r\n"),
        text_of(table(), header='"a","b, wide","c","target"') + "1,NA,2,3\n",
    ],
    ids=["commas", "semicolons and decimal commas", "tabs, mark and CRLF", "quotes and missing"],
)
def test_good_files_are_read(visit, content):
    visitor = visit(QUICK).drawn()
    visitor.drawn(lambda: give(visitor, "mine.csv", content))
    assert "mine.csv: 40 rows, 3 inputs, target “target”" in visitor.said("rows")
    theory = visitor.page.evaluate("deeplin.shown().result.theory")
    assert theory["exact"] == pytest.approx(minimal_sharpness(table(), 3), rel=1e-9)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "0 line(s)"),
        ("a\n1\n", "1 column(s)"),
        ("a,b\n1,x\n2,3\n", "Line 2 of bad.csv has “x” in column “b”"),
        ("a,b\n1,2,3\n", "3 cells"),
        ("1,2\n3,4\n", "must name the columns"),
        ("a,b\n1,2\n1,3\n", "Column “a” of bad.csv has one value only"),
        ("a,b\n1,2\n2,2\n", "nothing to learn"),
        ("a,b\n1,NA\n2,\n", "0 complete row(s)"),
        ("a,b\n1,Infinity\n2,3\n", "Infinity"),
        ("<script>alert(1)</script>,b\n1,z\n", "“z”"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "pass"),
        (",".join(f"c{k}" for k in range(60)) + "\n" + ",".join("1" * 60) + "\n", "inputs"),
    ],
)
def test_broken_files_get_a_sentence_and_change_nothing(visit, content, words):
    visitor = visit(QUICK).drawn()
    give(visitor, "bad.csv", content)
    visitor.said(words)
    assert visitor.page.evaluate("deeplin.shown().state.data") == "synthetic"


@pytest.mark.parametrize("numbered", [False, True], ids=["plain", "first column numbers rows"])
@pytest.mark.parametrize("factor", [1.0, 1e4])
def test_page_and_command_give_the_same_critical_rate(visit, tmp_path, capsys, factor, numbered):
    values, header = table() * [1, 1, 1, factor], "a,b,c,target"
    if numbered:
        values, header = np.column_stack([np.arange(1.0, 41), values]), "row," + header
    path = tmp_path / "mine.csv"
    path.write_text(text_of(values, header=header))
    visitor = visit(QUICK).drawn()
    visitor.drawn(lambda: give(visitor, "mine.csv", path.read_text()))
    assert ("“row” numbers the rows and was left out" in visitor.said("rows")) == numbered
    shown = visitor.page.evaluate("deeplin.current()")
    assert shown["critical"] == pytest.approx(diagnosed(path, capsys, "--standardize"), rel=1e-9)
    assert "inputs and target standardized, as `deeplin diagnose --standardize`" in shown["verdict"]
    reading = dl.read_problem(path, "target", standardize=True)  # the target is centered only
    own = dl.diagnose(reading.problem, [3], initialization=None).advice[0].critical_learning_rate
    said = shown["verdict"].split("--standardize`; ")[1].split(" for the target in its own")[0]
    assert number(said) == pytest.approx(own, rel=5e-3)  # three digits
    visitor.drawn(lambda: visitor.page.locator("#input-target_scale").select_option("own"))
    shown = visitor.page.evaluate("deeplin.current()")
    assert shown["critical"] == pytest.approx(own, rel=1e-9)
    assert "target centered, in its own units" in shown["verdict"]


def diagnosed(path, capsys, *options):
    """The critical rate that the command prints."""
    command = ["diagnose", str(path), "--target", "target", "--depth", "3", "--json", *options]
    with pytest.raises(SystemExit, match="0"):
        main(command)
    return json.loads(capsys.readouterr().out)["advice"][0]["critical_learning_rate"]


def number(text):
    """A number as the page writes it: 1.23·10⁻⁴."""
    mantissa, _, power = text.partition("·10")
    return float(mantissa) * 10.0 ** int(
        power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or 0
    )


def test_classes_of_a_file_are_learned_with_the_logistic_loss(visit):
    values = table()
    values[:, -1] = np.where(np.arange(40) % 3, values[:, -1] > values[:, -1].mean(), 0)
    visitor = visit(QUICK).drawn()
    visitor.drawn(lambda: give(visitor, "mine.csv", text_of(values)))
    visitor.drawn(lambda: visitor.page.locator("#input-loss").select_option("logistic"))
    critical = visitor.page.evaluate("deeplin.current().critical")
    X = (values[:, :-1] - values[:, :-1].mean(0)) / values[:, :-1].std(0)
    found = visitor.page.evaluate(
        "(input) => deeplin.minimal_sharpness(input).exact",
        {"X": X.tolist(), "y": values[:, -1].tolist(), "depth": 3, "loss": "logistic"},
    )
    assert critical == pytest.approx(2 / found, rel=1e-9)


def test_numbers_are_not_classes(visit):
    visitor = visit(QUICK).drawn()
    visitor.drawn(lambda: give(visitor, "mine.csv", text_of(table())))
    visitor.page.locator("#input-loss").select_option("logistic")
    visitor.said("does not have two distinct values")


def test_large_file_is_read_by_the_server(visit):
    values = table(rows=60_000, seed=1)
    visitor = visit(QUICK).drawn()
    visitor.drawn(lambda: give(visitor, "large.csv", text_of(values)))
    assert "large.csv: 60000 rows, 3 inputs" in visitor.said("read by the local server")
    theory = visitor.page.evaluate("deeplin.shown().result.theory")
    assert theory["exact"] == pytest.approx(minimal_sharpness(values, 3), rel=1e-8)
    visitor.page.locator("#input-architecture").select_option("relu")
    visitor.said("need its rows")


def test_large_file_is_refused_where_there_is_no_server(visit, page_file):
    visitor = visit(QUICK, url=page_file.as_uri()).drawn()
    give(visitor, "large.csv", "1," * 1_100_000)
    assert "deeplin explore" in visitor.said("larger than 2 MB")
