"""Tables as people have them: nothing in them is silently read as something else."""

import io
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import deeplin as dl
from deeplin.tables import files
from deeplin.tables.columns import survey
from deeplin.tables.predictions import TablePredictions
from deeplin.tables.preparation import Preparation
from deeplin.tables.reading import read_problem


def read(folder, text, target="y", encoding="utf-8", **options):
    """The reading of text written to a file."""
    (folder / "table.csv").write_bytes(text.encode(encoding))
    return read_problem(folder / "table.csv", target, **options)


def says(reading, *parts):
    """Whether one note has all of these parts."""
    return any(all(part in note for part in parts) for note in reading.notes)


READ = {
    "groups": (",", '"111,228" 200 "1,234,567"', {}, [111228, 200, 1234567], "'111,228' --decimal"),
    "decimals": (";", "111,228 200 50", {"decimal": ","}, [111.228, 200, 50], "Decimal commas"),
    "both marks": (";", "1.234,5 2,25 10", {}, [1234.5, 2.25, 10], "'1.234,5' thousands"),
    "german": (";", "1.595 2.300 1.200", {}, [1595, 2300, 1200], "'1.595' thousands --decimal"),
    "euro": (",", '"194,553_€" 200_€ "1,000_€"', {}, [194553, 200, 1000], "unit '€'"),
    "percent": (",", "12_% 3.5_% 100%", {}, [12, 3.5, 100], "unit '%'"),
    "dollar": (",", '"$1,200.50" $3 -$20', {}, [1200.5, 3, -20], "unit '$'"),
    "kilograms": (",", "12_kg 3.5_kg 1e2_kg", {}, [12, 3.5, 100], "unit 'kg'"),
    "blanks": (",", "1_234 12 7", {}, [1234, 12, 7], "blank groups thousands"),
    "minus": (",", "-_12 3.5_ 7", {}, [-12, 3.5, 7], ""),
    "ambiguous": (",", "1.595 950 20", {}, [1.595, 950, 20], "'1.595' --thousands"),
    "ambiguous, a blank": (",", '1.595 "950_" 20', {}, [1.595, 950, 20], "'1.595' --thousands"),
    "asked": (",", "1.595 950 20", {"thousands": "."}, [1595, 950, 20], "'1.595' groups"),
}
"""Separator, the cells of x (_ for a blank), options, the numbers, words of one note."""


@pytest.mark.parametrize(
    ("separator", "cells", "options", "numbers", "words"), READ.values(), ids=READ
)
def test_it_is_said_how_numbers_are_read(tmp_path, separator, cells, options, numbers, words):
    mark = "," if separator == ";" else "."
    targets = [f"{k * k}{mark}5" for k in range(len(numbers))]
    lines = zip(cells.split(), targets, strict=True)
    text = "\n".join(f"{x.replace('_', ' ')}{separator}{y}" for x, y in lines)
    reading = read(tmp_path, f"x{separator}y\n{text}\n", **options)
    np.testing.assert_array_equal(reading.problem.inputs[:, 0], numbers)
    assert says(reading, *words.split()) or not words


@pytest.mark.parametrize("other", ["1.59", "0.595", "1595.5"])
def test_a_fraction_that_is_no_group_of_three_digits_leaves_no_doubt(tmp_path, other):
    assert not says(read(tmp_path, f"x,y\n1.595,1\n950,2\n{other},4\n"), "--thousands")


@pytest.mark.parametrize(
    "texts",
    [["12 %", "0.12", "5 %"], ["A12", "B13"], ["2024-01-01"], ["1.2.3", "1.2.4"], ["1-2", "3-4"]],
)
def test_mixed_units_codes_and_dates_are_no_numbers(texts):
    assert not survey(pd.Series(texts)).all_numbers


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("x,Price\n1,2\n2,3\n", {"target": "PRICE"}, "no column 'PRICE'; did you mean 'Price'"),
        ("x,y\n1,2\n2,3\n", {"target": "price"}, "no column 'price'; the table has 'x', 'y'"),
        ("x,y\n1,2\n2,3\n", {"thousands": ";"}, "thousands is ';'"),
        ("x,y\n1,2\n2,3\n", {"thousands": ",", "decimal": ","}, "both ','"),
        ("x,y\n1,2\n2,3\n", {"decimal": ";"}, "decimal is ';'"),
        ("x,y\n1,2\n2,3\n", {"memory": -1}, "memory"),
        ("x,y\n1,2\n2,3\n", {"missing": "ignore"}, "'refuse', 'drop' or 'median'"),
        ("x,y\n1,2\n2,3\n", {"ignore": "x"}, "no input"),
        ('x,y\n1.5,1\n"2,5",2\n3,4\n', {"target": "x"}, r"2 of 3 .*row 2 is '2,5'.*--decimal ,"),
        ("# one\nx,y\n1,2\n# a pause\n3,5\n", {}, "line 4 has 1 value"),
        ("x,y\n1,2\n1,2,3\n", {}, "line 3 has 3 values, the first 2"),
        ("x,y\n" + 60 * "1,2\n" + "1,2,3\n", {}, "line 62"),
        ("", {}, "names"),
        ("x,y\n", {}, "no complete row"),
        ("x,x,y\n1,2,3\n", {}, "column names repeat: 'x'"),
        ("x,y\n1,a\n2,a\n", {}, "one class only"),
        ("x,y\n1,2\ninf,3\n", {}, "infinite value in row 2, column 'x'"),
        ("x,y\n1,\x00\x01\n", {}, "not text"),
        ('x,y\n1,2\n3,"4\n', {}, "cannot read"),
    ],
)
def test_what_cannot_be_read_gets_one_sentence(tmp_path, text, options, sentence):
    with pytest.raises(dl.InputError, match=sentence):
        read(tmp_path, text, **options)


def test_an_empty_column_is_named(tmp_path):
    reading = read(tmp_path, "x,none,y\n1,,2\n2,,3\n0,,1\n")
    assert reading.inputs == ("x",)
    assert says(reading, "empty: 'none'")


def test_comments_before_the_names_are_skipped_and_said(tmp_path):
    reading = read(tmp_path, '# from a "device\n# of ours\nx,y\n1,2\n3,5\n4,4\n')
    np.testing.assert_array_equal(reading.problem.inputs[:, 0], [1, 3, 4])
    assert says(reading, "2 lines of comment")


def test_identifiers_are_left_out_or_named(tmp_path, rng):
    n = 60
    frame = pd.DataFrame({"a": rng.normal(size=n), "customer_id": rng.permutation(10**6)[:n]})
    frame["humid"] = rng.permutation(10**6)[:n]
    frame["orderId"] = rng.permutation(n)  # a narrow range: the name alone says it
    frame["y"] = rng.normal(size=n)
    reading = read_problem(frame, "y")
    assert reading.inputs == ("a", "humid")
    assert says(reading, "'humid'", "--ignore")
    assert says(reading, "'customer_id'", "identifier", "--keep")
    counted = frame.assign(id=np.arange(n)).set_index("id").reset_index()  # said once
    assert sum("'id'" in note for note in read_problem(counted, "y").notes) == 1
    assert says(reading, "'orderId'", "identifier", "--keep")
    assert read_problem(frame, "y", keep=["customer_id"]).inputs == ("a", "customer_id", "humid")


def test_codes_of_classes_are_named_and_become_categories(rng):
    n = 60
    frame = pd.DataFrame({"a": rng.normal(size=n), "region": rng.integers(1, 4, n)})
    frame["y"] = rng.integers(0, 3, n)
    reading = read_problem(frame, "y")
    assert says(reading, "'region'", "--categorical")
    assert says(reading, "target 'y'", "3 different whole numbers")
    coded = read_problem(frame, "y", categorical=["region"])
    assert coded.inputs == ("a", "region=2", "region=3")
    np.testing.assert_array_equal(coded.problem.inputs[:, 1], frame["region"] == 2)


def test_a_row_that_decides_the_fit_is_named(rng):
    frame = pd.DataFrame(rng.normal(size=(50, 2)), columns=["a", "y"])
    assert not says(read_problem(frame, "y"), "squared deviations")
    frame.loc[16, "y"] = 1e6
    assert says(read_problem(frame, "y"), "'y'", "row 17", "100%")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
def test_other_encodings_are_read(tmp_path, encoding):
    reading = read(tmp_path, "größe,y\n1,2\n2,3\n0,1\n", encoding=encoding)
    assert reading.inputs == ("größe",)
    assert says(reading, "cp1252") == (encoding == "cp1252")


def test_standard_input_is_a_table(monkeypatch):
    text = io.TextIOWrapper(io.BytesIO(b"x,y\n1,2\n2,3\n0,1\n"))
    monkeypatch.setattr(sys, "stdin", text)
    np.testing.assert_array_equal(read_problem("-", "y").problem.inputs[:, 0], [1, 2, 0])


def test_the_first_sheet_of_a_workbook_is_read(tmp_path):
    """With text, a number that is missing, and a header that is a number."""
    frame = pd.DataFrame({"x": [1.5, None, 3.0, 4.0], 7: ["a", "b", "a", "b"], "y": [1, 2, 4, 3]})
    frame.to_excel(tmp_path / "book.xlsx", index=False)
    reading = read_problem(tmp_path / "book.xlsx", "y", missing="drop", encode=True)
    np.testing.assert_array_equal(reading.problem.inputs, [[1.5, 0], [3, 0], [4, 1]])
    assert reading.inputs == ("x", "7=b")


def test_a_workbook_without_its_reader_says_what_to_install(tmp_path, monkeypatch):
    pd.DataFrame({"x": [1, 2], "y": [1, 2]}).to_excel(tmp_path / "book.xlsx", index=False)
    monkeypatch.setitem(sys.modules, "openpyxl", None)  # what an import of it then raises
    with pytest.raises(dl.InputError, match=r"needs openpyxl.*pip install 'deeplin\[excel\]'"):
        read_problem(tmp_path / "book.xlsx", "y")


@pytest.mark.extended
@pytest.mark.parametrize("name", ["diagnose", "train", "predict"])
def test_commands_read_standard_input(name, command, monkeypatch, tmp_path, rng):
    frame = pd.DataFrame(rng.normal(size=(30, 3)), columns=["a", "b", "y"])
    frame.to_csv(tmp_path / "table.csv", index=False)
    arguments = {
        "diagnose": ["diagnose", "-", "--target", "y", "--depth", 2, "--init", "none"],
        "train": ["train", "-", "--target", "y", "--depth", 2, "--out", tmp_path / "a.npz"],
        "predict": ["predict", tmp_path / "b.npz", "-"],
    }
    if name == "predict":
        dl.save_run(
            tmp_path / "b.npz",
            dl.read_problem(frame, "y", intercept=True).problem,
            dl.train(frame, 2, target="y"),
        )
    printed = []
    for source in ("-", tmp_path / "table.csv"):
        given = [source if argument == "-" else argument for argument in arguments[name]]
        text = io.TextIOWrapper(io.BytesIO((tmp_path / "table.csv").read_bytes()))
        monkeypatch.setattr(sys, "stdin", text)
        more = ["--overwrite"] if name == "train" else []
        code, out, err = command(*given, *more)
        assert code == 0, err
        printed.append(out)
    assert printed[0] == printed[1]


def test_frames_and_matrices_give_one_problem(rng):
    frame = pd.DataFrame(rng.normal(size=(20, 3)), columns=["x1", "x2", "x3"])
    for table in (frame, frame.to_numpy()):
        found = read_problem(table, "x3").problem
        np.testing.assert_array_equal(found.inputs, frame[["x1", "x2"]])
    for table in ([1, 2], pa.Table.from_pandas(frame)):
        with pytest.raises(dl.InputError, match="pass the name of a file, a matrix, or"):
            read_problem(table, "x3")


def test_held_out_rows_are_prepared_by_the_others(rng):
    frame = pd.DataFrame(rng.normal(3, 2, size=(50, 3)), columns=["a", "b", "y"])
    reading = read_problem(frame, "y", standardize=True, test_share=0.2, seed=1)
    assert reading.problem.samples == 40
    rows, targets = reading.held_out
    assert (rows.shape, targets.shape) == ((10, 2), (10, 1))
    d = len(reading.inputs)
    raw = rows * reading.preparation.scale[:d] + reading.preparation.center[:d]
    assert all(np.any(np.all(np.isclose(frame[["a", "b"]], row), axis=1)) for row in raw)
    np.testing.assert_allclose(reading.problem.inputs.mean(axis=0), 0, atol=1e-12)
    with pytest.raises(dl.InputError, match="test_share"):
        read_problem(frame, "y", test_share=0.999)


def test_a_preparation_survives_as_text(rng):
    frame = pd.DataFrame({"a": ["1,5 kg", "2,0 kg", "3,5 kg"], "c": ["u", "v", "u"]})
    frame["y"] = [1.0, 2.0, 4.0]
    before = read_problem(frame, "y", encode=True, standardize=True).preparation
    after = Preparation.from_json(before.to_json())
    assert (after.inputs, after.targets) == (before.inputs, before.targets)
    assert after.categories == {"c": ("u", "v")}
    np.testing.assert_array_equal(after.scale, before.scale)
    for text in ("", "[]", "{}", before.to_json().replace("1.0", "NaN")):
        with pytest.raises(dl.InputError, match="preparation"):
            Preparation.from_json(text)


def test_a_cell_in_another_style_far_down_gets_row_cell_and_option(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 20)
    lines = "".join(f"{k % 7}.5,{k % 5}\n" for k in range(60))
    with pytest.raises(dl.InputError, match=r"60 of 61 .*row 61 is '1.234.567'.*--thousands \."):
        read(tmp_path, f"x,y\n{lines}1.234.567,2\n", "x", memory=100)


def test_the_remark_on_scales_counts_only_columns_that_are_used(rng):
    frame = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "y"])
    frame["customer_id"] = 10**6 * rng.permutation(40)
    frame.insert(0, "row", np.arange(40) * 1.0)
    assert not says(read_problem(frame, "y"), "--raw")
    assert says(read_problem(frame, "y", keep=["customer_id"]), "--raw")


def test_medians_replace_missing_values_of_training_rows_and_are_said(rng):
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "y"])
    frame["c"] = np.array(["u", "v", "v"])[np.arange(60) % 3]
    frame.loc[[3, 5], "a"], frame.loc[7, "c"], frame.loc[9, "y"] = np.nan, None, np.nan
    reading = read_problem(frame, "y", missing="median", encode=True)
    known = frame.drop(index=9)
    expected = known.fillna({"a": known["a"].median(), "c": "v"})
    np.testing.assert_array_equal(reading.problem.inputs[:, 0], expected["a"])
    np.testing.assert_array_equal(reading.problem.inputs[:, 1], expected["c"] == "v")
    assert says(reading, "median of their column: 'a' (2 rows)")
    assert says(reading, "most frequent category of their column: 'c' (1 row)")
    assert says(reading, "the target is missing: 1")
    held = read_problem(frame, "y", ignore=["c"], missing="median", test_share=0.5)
    trained = held.problem.inputs[np.isin(held.problem.inputs, frame["a"])]
    assert set(held.preparation.fill) == {np.median(trained)}


def test_a_run_with_medians_predicts_rows_with_missing_values(rng):
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "y"])
    frame.loc[3, "a"] = np.nan
    reading = read_problem(frame, "y", missing="median", intercept=True)
    kept = Preparation.from_json(reading.preparation.to_json())
    theta = reading.problem.optimum
    found = TablePredictions(frame.assign(b=frame["b"].where(frame.index != 8)), kept, theta)
    values = np.concatenate(list(found))
    rows = frame[["a", "b"]].fillna({"a": frame["a"].median()})
    rows.loc[8, "b"] = frame["b"].median()
    coefficients, intercept = kept.in_table_units(theta)
    np.testing.assert_allclose(values, rows.to_numpy() @ coefficients + intercept, rtol=1e-12)
    (note,) = found.notes
    assert "2 rows" in note
    assert "medians" in note


def test_columns_are_named_by_one_name_or_several(rng):
    frame = pd.DataFrame(rng.normal(size=(20, 3)), columns=["a", "b", "y"])
    for options in ({"ignore": "a"}, {"ignore": ["a"]}):
        assert read_problem(frame, -1, **options).inputs == ("b",)
    with pytest.raises(dl.InputError, match="target='y'"):
        dl.diagnose(frame, "y")


def test_chunks_of_one_column_are_read_in_one_style(tmp_path, monkeypatch):
    lines = "".join(f"{k},5;{k % 4}\n" for k in range(20)) + "1.234,5;1\n7;2\n"
    for rows in (100, 5):
        monkeypatch.setattr(files, "CHUNK", 2 * rows)
        reading = read(tmp_path, "x;y\n" + lines)
        expected = [*(k + 0.5 for k in range(20)), 1234.5, 7]
        np.testing.assert_array_equal(reading.problem.inputs[:, 0], expected)
    mixed = pd.DataFrame({"x": [1.595, "1.234,5", 3], "y": [1.0, 2, 4]})  # as in workbooks
    with pytest.raises(dl.InputError, match=r"2 of 3 values parse"):
        read_problem(mixed, "x")


@pytest.mark.parametrize(
    ("training", "options", "new", "expected"),
    [
        ("x,y\n1.595,1\n950,2\n20,4\n", {"thousands": "."}, "x\n1.595\n2\n", [1595, 2]),
        ("x;y\n111,228;1\n200;2\n50;3\n", {"decimal": ","}, "x;z\n111,228;1\n2;1\n", [111.228, 2]),
        ("x;y\n1,5;1\n1,234;2\n50;3\n", {}, "x;z\n1,234;1\n2;1\n", [1.234, 2]),
        ("x;y\n1,5;1\n1,234;2\n50;3\n", {}, "x,z\n1.5,1\n1.234,1\n", [1.5, 1.234]),
        ('x,y\n"$1,5",1\n"$1,234",2\n$50,3\n', {}, 'x,z\n"$1,234",1\n$2,1\n', [1.234, 2]),
    ],
)
def test_new_rows_are_read_in_the_style_of_training(tmp_path, training, options, new, expected):
    reading = read(tmp_path, training, **options)
    kept = Preparation.from_json(reading.preparation.to_json())
    (tmp_path / "new.csv").write_text(new)
    sources = [tmp_path / "new.csv"]
    sources += [] if "$" in training else [pd.DataFrame({"x": map(float, expected)})]
    for source in sources:
        found = np.concatenate(list(TablePredictions(source, kept, np.ones(1))))
        np.testing.assert_allclose(found[:, 0], expected, rtol=1e-15)


def test_thousands_of_a_streamed_table_are_read_as_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 14)
    text = "x,y\n" + "".join(f"{k}.500,{k % 7}\n" for k in range(1, 60))
    whole, streamed = (
        read(tmp_path, text, thousands=".", memory=memory) for memory in (2**20, 100)
    )
    np.testing.assert_array_equal(whole.problem.inputs[:, 0], 1000 * np.arange(1, 60) + 500)
    np.testing.assert_allclose(streamed.problem.covariance, whole.problem.covariance, rtol=1e-12)
