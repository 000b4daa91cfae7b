"""A visitor's table is read in the page; broken ones get a sentence."""

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
        ("", "0 lines"),
        ("a\n1\n", "1 column"),
        ("a,b\n1,x\n2,3\n", "Line 2 of bad.csv has “x” in column “b”"),
        ("a,b\n1,2,3\n", "3 cells"),
        ("1,2\n3,4\n", "must name the columns"),
        ("a,b\n1,2\n1,3\n", "Every input of bad.csv has one value only (“a”)"),
        ("a,b\nred,2\nblue,3\n", "No input of bad.csv is made of numbers"),
        ("a,c,b\n1,1,2\nred,2,3\n", "Line 3 of bad.csv has “red” in column “a”"),
        ("a,b\n1,2\n2,2\n", "nothing to learn"),
        ("a,b\n1,NA\n2,\n", "0 complete rows"),
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


def test_what_the_command_leaves_out_the_page_leaves_out_and_names(visit, tmp_path, capsys):
    text = text_of(table()).splitlines()
    text = [
        f"{line},{more}" for line, more in zip(text, ["one,kind", *["7,red"] * 40], strict=True)
    ]
    cells = [line.split(",") for line in text]
    path = tmp_path / "mine.csv"  # the target stays last
    path.write_text("\n".join(",".join([*row[:3], *row[4:], row[3]]) for row in cells) + "\n")
    visitor = visit(QUICK).drawn()
    visitor.drawn(lambda: give(visitor, "mine.csv", path.read_text() + "1,NA,3,7,red,2\n"))
    said = visitor.said("rows")
    assert "40 rows, 3 inputs" in said
    assert "1 row with missing values left out (line 42)" in said
    assert "removed because constant: “one”" in said
    assert "left out because not made of numbers: “kind”" in said
    shown = visitor.page.evaluate("deeplin.current()")
    assert shown["critical"] == pytest.approx(diagnosed(path, capsys, "--no-bias"), rel=1e-9)


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
    assert shown["critical"] == pytest.approx(diagnosed(path, capsys, "--no-bias"), rel=1e-9)
    assert "inputs and target standardized, as `deeplin diagnose --no-bias`" in shown["verdict"]
    reading = dl.read_problem(path, "target", standardize=True)  # the target is centered only
    own = dl.critical_learning_rate(reading.problem, 3)
    said = shown["verdict"].split("--no-bias`; ")[1].split(" for the target in its own")[0]
    assert number(said) == pytest.approx(own, rel=5e-3)  # three digits


def diagnosed(path, capsys, *options):
    """The critical rate that the command prints."""
    command = ["diagnose", str(path), "--target", "target", "--depth", "3", "--json", *options]
    with pytest.raises(SystemExit, match="0"):
        main(command)
    return json.loads(capsys.readouterr().out)["depths"][0]["critical_learning_rate"]


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


def test_large_file_is_refused_with_what_reads_it(visit):
    visitor = visit(QUICK).drawn()
    give(visitor, "large.csv", "1," * 1_100_000)
    assert "deeplin diagnose" in visitor.said("larger than 2 MB")
