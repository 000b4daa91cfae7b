"""Tables as people have them: nothing in them is silently read as something else."""

import io
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import deeplin as dl
from deeplin.tables import formats
from deeplin.tables.formats import survey
from deeplin.tables.preparation import Preparation
from deeplin.tables.reading import read_problem


def read(folder, text, target="y", encoding="utf-8", **options):
    """The reading of text written to a file."""
    (folder / "table.csv").write_bytes(text.encode(encoding))
    return read_problem(folder / "table.csv", target, **options)


def says(reading, *parts):
    """Whether one note has all of these parts."""
    return any(all(part in note for part in parts) for note in reading.notes)


def test_a_comma_between_groups_of_three_digits_is_not_a_decimal_mark(tmp_path):
    reading = read(tmp_path, 'x,y\n"111,228",1\n200,2\n"1,234,567",4\n50,3\n')
    np.testing.assert_array_equal(reading.problem.inputs[:, 0], [111228, 200, 1234567, 50])
    assert says(reading, "'x'", "111,228", "thousands", "--decimal ,")
    reading = read(tmp_path, "x;y\n111,228;1\n200;2\n50;3\n", decimal=",")
    np.testing.assert_array_equal(reading.problem.inputs[:, 0], [111.228, 200, 50])
    assert says(reading, "Decimal commas")


@pytest.mark.parametrize(
    ("values", "numbers", "unit"),
    [
        (["194,553 €", "200 €", "1,000 €"], [194553, 200, 1000], "€"),
        (["12 %", "3.5 %", "100%"], [12, 3.5, 100], "%"),
        (["$1,200.50", "$3", "$20"], [1200.5, 3, 20], "$"),
        (["1.234,5", "2,25", "10"], [1234.5, 2.25, 10], ""),
        (["1 234", "12", "7"], [1234, 12, 7], ""),
        (["12 kg", "3.5 kg", "1e2 kg"], [12, 3.5, 100], "kg"),
    ],
)
def test_units_and_marks_are_removed_and_said(values, numbers, unit):
    frame = pd.DataFrame({"x": values, "y": [1.0, 2.0, 4.0]})
    reading = read_problem(frame, "y")
    np.testing.assert_array_equal(reading.problem.inputs[:, 0], numbers)
    assert says(reading, "In 'x'", f"the unit '{unit}'" if unit else "thousands")


def test_mixed_units_codes_and_dates_are_no_numbers():
    assert not survey(["12 %", "0.12", "5 %", "7"]).all_numbers
    for texts in (["A12", "B13"], ["2024-01-01", "2024-01-02"], ["1.2.3", "1.2.4"], ["1-2", "3-4"]):
        assert not survey(texts).nearly_numbers


def test_identifiers_are_left_out_or_named(tmp_path, rng):
    n = 60
    frame = pd.DataFrame({"a": rng.normal(size=n), "customer_id": rng.permutation(10**6)[:n]})
    frame["humid"] = rng.permutation(10**6)[:n]
    frame["orderId"] = rng.permutation(n)  # a narrow range: the name alone says it
    frame["y"] = rng.normal(size=n)
    reading = read_problem(frame, "y")
    assert reading.inputs == ("a", "humid")
    assert says(reading, "'customer_id'", "identifier", "--keep")
    assert says(reading, "'orderId'", "identifier", "--keep")
    assert says(reading, "'humid'", "--ignore")
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


def test_an_empty_column_is_named(tmp_path):
    reading = read(tmp_path, "x,none,y\n1,,2\n2,,3\n0,,1\n")
    assert reading.inputs == ("x",)
    assert says(reading, "empty: 'none'")
    frame = pd.DataFrame({"x": [1.0, 2.0], "hollow": [np.nan] * 2, "y": [1.0, 2.0]})
    with pytest.raises(dl.InputError, match="nothing is in 'hollow'"):
        read_problem(frame, "y", missing="drop")


def test_comment_lines_are_skipped_and_said(tmp_path):
    reading = read(tmp_path, "# from a device\n# of ours\nx,y\n1,2\n# a pause\n3,5\n4,4\n")
    np.testing.assert_array_equal(reading.problem.inputs[:, 0], [1, 3, 4])
    assert says(reading, "2 line(s) of comment")


def test_a_name_in_another_case_is_suggested(tmp_path):
    with pytest.raises(dl.InputError, match="no column 'PRICE'; did you mean 'Price'"):
        read(tmp_path, "x,Price\n1,2\n2,3\n", "PRICE")


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


def test_frames_of_several_libraries_give_one_problem(rng):
    frame = pd.DataFrame(rng.normal(size=(20, 3)), columns=["a", "b", "y"])
    polars = pytest.importorskip("polars")
    for table in (frame, pa.Table.from_pandas(frame), polars.DataFrame(frame.to_dict("list"))):
        found = read_problem(table, "y").problem
        np.testing.assert_array_equal(found.inputs, frame[["a", "b"]])
    with pytest.raises(dl.InputError, match="Arrow cannot read"):
        read_problem([1, 2], "y")


def test_the_dialect_is_found_once(tmp_path, monkeypatch):
    found = []
    real = formats._beginning
    monkeypatch.setattr(formats, "_beginning", lambda path: found.append(path) or real(path))
    read(tmp_path, "x,name,y\n1,a,2\n2,b,3\n0,c,1\n", encode=True)
    assert len(found) == 1


def test_held_out_rows_are_prepared_by_the_others(rng):
    frame = pd.DataFrame(rng.normal(3, 2, size=(50, 3)), columns=["a", "b", "y"])
    reading = read_problem(frame, "y", standardize=True, test_share=0.2, seed=1)
    assert reading.problem.samples == 40
    rows, targets = reading.held_out
    assert (rows.shape, targets.shape) == ((10, 2), (10, 1))
    d = len(reading.inputs)
    raw = rows * reading.preparation.scale[:d] + reading.preparation.centre[:d]
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
