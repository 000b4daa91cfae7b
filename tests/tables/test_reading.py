"""Tables become problems: same numbers from every format and chunking, a sentence for the rest."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler

import deeplin as dl
from deeplin.tables import files, passes
from deeplin.tables.reading import read_problem

NAMES = ["age", "height", "weight"]


@pytest.fixture
def frame(rng):
    table = pd.DataFrame(rng.normal(size=(40, 3)), columns=NAMES)
    table["y"] = table @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=40) + 3
    return table


def _write(frame, folder, kind):
    path = folder / f"table.{kind}"
    if kind.startswith(("csv", "tsv")):  # compressed where the name says so
        frame.to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
    elif kind == "parquet":
        pyarrow.parquet.write_table(
            pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=7
        )
    elif kind == "feather":
        pyarrow.feather.write_feather(pa.Table.from_pandas(frame, preserve_index=False), path)
    elif kind == "xlsx":
        frame.to_excel(path, index=False)
    return path


def _read(folder, text, target, **options):
    """The reading of a table written as text."""
    (folder / "text.csv").write_text(text)
    return read_problem(folder / "text.csv", target, **options)


def _says(reading, *words):
    """Whether there is a note with all of these words."""
    return any(all(word in note for word in words) for note in reading.notes)


def _of(frame):
    """The problem of a frame, without any file."""
    return dl.Problem.from_data(frame[NAMES].to_numpy(), frame["y"].to_numpy())


def _same(problem, expected, tolerance=1e-12):
    """Equal moments, each entry to this part of the sizes of its two columns."""
    size = np.sqrt(np.diag(expected.covariance))
    target = np.sqrt(expected.target_moment)
    covariance = problem.covariance - expected.covariance
    assert np.all(np.abs(covariance) <= tolerance * np.outer(size, size))
    cross = problem.cross_moment - expected.cross_moment
    assert np.all(np.abs(cross) <= tolerance * size * target)
    assert problem.target_moment == pytest.approx(expected.target_moment, rel=tolerance)
    assert problem.samples == expected.samples


@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz", "parquet", "feather", "xlsx"])
@pytest.mark.parametrize("memory", [2**20, 0])
def test_every_format_gives_the_problem_of_its_rows(frame, tmp_path, kind, memory, monkeypatch):
    memory = memory or 8 * 16  # room for the moments of four columns, not for the rows
    monkeypatch.setattr(files, "CHUNK", 6 * 4)
    reading = read_problem(_write(frame, tmp_path, kind), "y", memory=memory)
    expected = _of(frame)
    _same(reading.problem, expected)
    assert (reading.problem.inputs is None) == (memory == 128)
    np.testing.assert_allclose(reading.problem.optimum, expected.optimum, rtol=1e-10)


@given(
    chunk_rows=st.integers(1, 60),
    offset=st.sampled_from([0.0, 1e3, 1e6]),
    options=st.fixed_dictionaries({"standardize": st.booleans(), "intercept": st.booleans()}),
)
@settings(max_examples=20)
def test_moments_do_not_depend_on_the_chunking(chunk_rows, offset, options):
    rows = np.random.default_rng(3).normal(size=(50, 5)) * [1, 10, 0.1, 1, 1] + offset
    one = read_problem(rows, "-1", memory=300, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK", 5 * chunk_rows)
        many = read_problem(rows, "-1", memory=300, **options)
    _same(many.problem, one.problem)
    assert one.inputs == many.inputs


def test_an_intercept_and_standardized_inputs_agree_with_scikit_learn(frame, tmp_path):
    path = _write(frame, tmp_path, "csv")
    scaled = StandardScaler().fit_transform(frame[NAMES])
    model = LinearRegression().fit(scaled, frame["y"])
    for memory in (2**20, 128):
        reading = read_problem(path, "y", standardize=True, intercept=True, memory=memory)
        np.testing.assert_allclose(reading.problem.optimum, model.coef_, rtol=1e-10)
        residual = frame["y"] - model.predict(scaled)
        np.testing.assert_allclose(reading.problem.minimal_risk, np.mean(residual**2), rtol=1e-9)
        coefficients, intercept = reading.in_table_units(reading.problem.optimum)
        plain = LinearRegression().fit(frame[NAMES], frame["y"])
        np.testing.assert_allclose(coefficients[:, 0], plain.coef_, rtol=1e-10)
        np.testing.assert_allclose(intercept, plain.intercept_, rtol=1e-10)
        assert _says(reading, "standardized")
        assert _says(reading, "intercept")


def test_several_targets_are_read_together(frame, tmp_path):
    reading = read_problem(_write(frame, tmp_path, "csv"), ["y", "age"])
    expected = dl.Problem.from_data(frame[NAMES[1:]].to_numpy(), frame[["y", "age"]].to_numpy())
    np.testing.assert_allclose(reading.problem.optimum, expected.optimum, rtol=1e-12)


def test_whole_numbers_that_become_fractions_later_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 2000)
    rows = 5000  # several chunks
    first = np.arange(rows) % 7
    values = np.where(np.arange(rows) < rows - 10, first, 0.5)
    lines = [f"{v:g},{k % 3}" for k, v in enumerate(values)]
    reading = _read(tmp_path, "x,y\n" + "\n".join(lines) + "\n", "y")
    assert reading.problem.samples == rows
    np.testing.assert_allclose(reading.problem.covariance, [[np.mean(values**2)]])


def test_marks_of_other_programs_are_no_columns(frame, tmp_path):
    frame.set_axis(np.arange(40)[::-1]).to_parquet(tmp_path / "indexed.parquet")
    frame.to_csv(tmp_path / "marked.csv", index=False, encoding="utf-8-sig")
    for name in ("indexed.parquet", "marked.csv"):
        assert read_problem(tmp_path / name, "y").inputs == tuple(NAMES)


def test_dates_decimals_and_truth_values_are_understood(frame, tmp_path):
    arrow = pa.table(
        {
            "when": pa.array(pd.date_range("2024-01-01", periods=40)),
            "price": pa.array(np.round(frame["age"], 2)).cast(pa.decimal128(10, 2)),
            "yes": pa.array(frame["age"] > 0),
            "count": pa.array(np.arange(40), pa.uint8()),
            "y": pa.array(frame["y"], pa.float32()),
        }
    )
    pyarrow.parquet.write_table(arrow, tmp_path / "kinds.parquet")
    reading = read_problem(tmp_path / "kinds.parquet", "y")
    assert reading.inputs == ("price", "yes", "count")
    expected = np.c_[np.round(frame["age"], 2), frame["age"] > 0, np.arange(40)]
    np.testing.assert_allclose(reading.problem.inputs, expected)
    assert _says(reading, "'when'")


def test_missing_values_are_refused_or_their_rows_left_out(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 3 * 4)
    whole = _of(frame.drop(index=[7, 9]))
    frame.loc[7, "height"] = np.nan
    frame.loc[9, "y"] = np.nan
    for kind in ("csv", "parquet", "xlsx"):
        path = _write(frame, tmp_path, kind)
        with pytest.raises(dl.InputError, match=r"missing value in row 8, column .*--missing drop"):
            read_problem(path, "y")
        reading = read_problem(path, "y", missing="drop")
        _same(reading.problem, whole)
        assert _says(reading, "missing: 2")
    frame["height"] = np.where(np.arange(40) % 2, np.nan, frame["height"])
    frame["age"] = np.where(np.arange(40) % 2, frame["age"], np.nan)
    with pytest.raises(dl.InputError, match="no complete row"):
        read_problem(_write(frame, tmp_path, "parquet"), "y", missing="drop")


def test_constant_columns_are_removed_where_they_carry_nothing(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 5 * 6)
    frame["one"] = 0.1
    frame["zero"] = 0.0
    path = _write(frame, tmp_path, "parquet")
    for memory in (2**20, 300):
        plain = read_problem(path, "y", memory=memory)
        assert plain.inputs == (*NAMES, "one")
        assert _says(plain, "acts as an intercept: 'one'")
        centered = read_problem(path, "y", memory=memory, intercept=True)
        assert centered.inputs == tuple(NAMES)
        assert _says(centered, "constant: 'one', 'zero'")


@pytest.mark.parametrize("memory", [2**20, 200])
def test_equal_columns_share_the_weight(frame, tmp_path, memory):
    frame.insert(1, "years", frame["age"])
    reading = read_problem(_write(frame, tmp_path, "parquet"), "y", memory=memory)
    assert reading.problem.rank == 3
    np.testing.assert_allclose(reading.problem.optimum[0], reading.problem.optimum[1])
    assert _says(reading, "linearly dependent: rank 3 of 4")


def test_exact_targets_and_wild_scales_are_said(frame, tmp_path):
    frame["y"] = frame["age"] + frame["weight"]
    frame["height"] *= 1e6
    path = _write(frame, tmp_path, "parquet")
    for memory in (2**20, 128):
        notes = read_problem(path, "y", memory=memory).notes
        assert any("linear function of the inputs" in note for note in notes)
        assert any("--raw" in note for note in notes)


def test_interpolation_of_few_rows_is_no_discovery(rng):
    rows = rng.normal(size=(6, 20))
    assert read_problem(rows, "-1").notes == ()
    (note,) = read_problem(rows, "-1", intercept=True).notes
    assert "intercept" in note


def test_scales_too_wide_for_second_moments_are_refused(frame, tmp_path):
    frame["height"] *= 1e12
    path = _write(frame, tmp_path, "parquet")
    assert read_problem(path, "y").problem.rank == 3  # from the rows themselves it is visible
    with pytest.raises(dl.InputError, match="standardize"):
        read_problem(path, "y", memory=128)
    assert read_problem(path, "y", memory=128, standardize=True).problem.rank == 3


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("absent.csv", None, "no file"),
        (".", None, "is a folder; pass one file"),
        ("sheet.doc", b"", "in no format that can be read.*supported"),
        ("sheet.xlsx", b"", "cannot read"),
        ("broken.parquet", b"PAR1 not really", "cannot read"),
        ("short.feather", b"ARROW1\x00\x00", "cannot read"),
    ],
)
def test_files_that_are_no_tables_get_one_sentence(tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(dl.InputError, match=sentence):
        read_problem(tmp_path / name, "-1")


def test_targets_that_explain_nothing_are_refused(frame, tmp_path):
    frame["y"] = 2.0
    path = _write(frame, tmp_path, "csv")
    assert read_problem(path, "y").problem.optimum_norm > 0
    with pytest.raises(dl.InputError, match="constant"):
        read_problem(path, "y", intercept=True)


def test_a_wide_table_beyond_the_memory_is_refused(rng):
    rows = rng.normal(size=(20, 200))
    assert read_problem(rows, "-1").problem.inputs is not None
    with pytest.raises(dl.InputError, match="larger memory"):
        read_problem(rows, "-1", memory=10_000)


# --- what people have --------------------------------------------------------------------------


def test_decimal_commas_and_semicolons_are_read(frame, tmp_path):
    frame.to_csv(tmp_path / "point.csv", index=False)
    frame.to_csv(tmp_path / "comma.csv", index=False, sep=";", decimal=",")
    frame.to_csv(tmp_path / "bare.csv", index=False, sep=";", decimal=",", header=False)
    point = read_problem(tmp_path / "point.csv", "y")
    comma = read_problem(tmp_path / "comma.csv", "y")
    bare = read_problem(tmp_path / "bare.csv", "-1")
    for reading in (comma, bare):
        np.testing.assert_array_equal(reading.problem.inputs, point.problem.inputs)
        np.testing.assert_array_equal(reading.problem.targets, point.problem.targets)
        assert _says(reading, "Decimal commas")
    assert comma.inputs == tuple(NAMES)
    assert _says(bare, "taken as a sample")


def test_a_first_line_of_numbers_is_said(tmp_path):
    reading = _read(tmp_path, "2019,2020\n1,2\n3,5\n4,4\n", "-1")
    assert (reading.inputs, reading.problem.samples) == (("0",), 4)
    assert _says(reading, "numbers only")
    reading = _read(tmp_path, "0,1,2\n1,2,0\n3,5,1\n4,4,1\n", "2")
    assert reading.problem.samples == 3
    assert _says(reading, "as the names")


def test_a_separator_inside_names_or_text_does_not_win(tmp_path):
    reading = _read(tmp_path, '"a;b","c;d;e",y\n1,2,3\n2,1,5\n0,1,1\n', "y")
    assert reading.inputs == ("a;b", "c;d;e")
    reading = _read(tmp_path, '"a\nb",y\n1,2\n3,5\n4,4\n', "y")
    assert (reading.inputs, reading.problem.samples) == (("a\nb",), 3)


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "row"])
@pytest.mark.parametrize("memory", [2**20, 200])
def test_row_numbers_are_left_out_and_said(frame, tmp_path, name, memory, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 7 * 5)
    frame.insert(0, name, np.arange(len(frame)) + (name == "row"))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    reading = read_problem(tmp_path / "rows.csv", "y", memory=memory)
    assert reading.inputs == tuple(NAMES)
    assert any(repr(name) in note and "left out" in note.lower() for note in reading.notes)
    _same(reading.problem, _of(frame))
    kept = read_problem(tmp_path / "rows.csv", "y", keep=[name])
    assert kept.inputs == (name, *NAMES)


def test_a_value_that_does_not_parse_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 3000)
    lines = [f"{k % 7},{k % 3},{k % 5}" for k in range(4000)]  # several chunks
    lines[3500] = "?,1,1"
    text = "x,z,y\n" + "\n".join(lines) + "\n"
    with pytest.raises(dl.InputError, match=r"'x'.*3999 of 4000 .*; row 3501 is '\?'"):
        _read(tmp_path, text, "x")
    for memory in (2**20, 1000):
        reading = _read(tmp_path, text, "y", memory=memory)
        assert reading.inputs == ("z",)
        assert _says(reading, "'x' was left out: 3999 of 4000", "row 3501 is '?'")


@pytest.mark.parametrize("kind", ["csv", "parquet", "xlsx"])
def test_categories_become_indicators(frame, tmp_path, kind):
    colours = np.array(["red", "green", "blue"])[np.arange(40) % 3]
    dummies = pd.get_dummies(pd.Series(colours), dtype=float)[["green", "red"]]
    expected = np.c_[frame["age"], dummies]
    table = pd.DataFrame({"age": frame["age"], "colour": colours, "y": frame["y"]})
    path = _write(table.astype({"colour": "category"}), tmp_path, kind)
    reading = read_problem(path, "y", encode=True)
    assert reading.inputs == ("age", "colour=green", "colour=red")
    np.testing.assert_allclose(reading.problem.inputs, expected)
    assert _says(reading, "all zero: 'blue'")
    plain = read_problem(path, "y")
    assert plain.inputs == ("age",)
    assert _says(plain, "--encode")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_category_that_says_missing_is_missing(frame, tmp_path, kind):
    colours = np.array(["red", "green", "NA", "nan"])[np.arange(40) % 4]
    table = pd.DataFrame({"age": frame["age"], "colour": colours, "y": frame["y"]})
    path = _write(table, tmp_path, kind)
    with pytest.raises(dl.InputError, match="missing"):
        read_problem(path, "y", encode=True)
    reading = read_problem(path, "y", encode=True, missing="drop")
    assert reading.inputs == ("age", "colour=red")
    assert reading.problem.samples == 20


def test_columns_with_too_many_categories_or_none_are_left_out(frame, tmp_path):
    frame["name"] = [f"person {chr(97 + k % 26)}{chr(97 + k // 26)}" for k in range(40)]
    frame["same"] = "x"
    table = pd.concat([frame] * 2, ignore_index=True)
    table.loc[40:, "name"] += "!"
    table.to_csv(tmp_path / "t.csv", index=False)
    reading = read_problem(tmp_path / "t.csv", "y", encode=True)
    assert reading.inputs == tuple(NAMES)
    assert _says(reading, "more than 50 different values")
    assert _says(reading, "one value only")


def test_dates_and_classes_as_targets_get_their_sentence(frame, tmp_path):
    frame["when"] = pd.date_range("2024-01-01", periods=40)
    frame["species"] = np.array(["setosa", "virginica"])[np.arange(40) % 2]
    path = _write(frame, tmp_path, "csv")
    with pytest.raises(dl.InputError, match="is a date"):
        read_problem(path, "when")
    with pytest.raises(dl.InputError, match=r"'setosa', 'virginica'.*--task classification"):
        read_problem(path, "species", task="regression")
    assert _says(read_problem(path, "y"), "dates: 'when'", "days since")


def test_sizes_that_float64_cannot_square_get_a_true_sentence(frame, tmp_path):
    for column, factor in (("age", 1e160), ("age", 1e-160), ("age", 1e-308), ("y", 1e300)):
        table = frame.assign(**{column: factor * frame[column]})
        path = _write(table, tmp_path, "parquet")
        for options in ({}, {"standardize": True}, {"memory": 200}):
            with pytest.raises(dl.InputError, match=f"column '{column}' has values .*unit"):
                read_problem(path, "y", **options)
    frame.loc[39, "weight"] = 1e200  # also where it is held out
    for seed in range(3):
        with pytest.raises(dl.InputError, match=r"column 'weight' has values .*unit"):
            read_problem(frame, "y", standardize=True, test_share=0.5, seed=seed)
    frame = frame.head(39)
    tiny = _write(frame * 1e-60, tmp_path, "parquet")
    with pytest.raises(dl.InputError, match=r"values of X are of size .*change its unit"):
        read_problem(tiny, "y")
    small = _write(frame.assign(age=1e-120 * frame["age"]), tmp_path, "parquet")
    reading = read_problem(small, "y", standardize=True)
    expected = read_problem(frame, "y", standardize=True)
    np.testing.assert_allclose(reading.problem.optimum, expected.problem.optimum, rtol=1e-12)


def test_whole_numbers_beyond_float64_are_not_called_constant(frame, tmp_path):
    frame["id"] = [2**60 + k for k in range(40)]
    for path, target in (
        (_write(frame, tmp_path, "csv"), "y"),
        (_write(frame, tmp_path, "parquet"), "y"),
        (frame, "y"),
    ):
        with pytest.raises(dl.InputError, match=r"2⁵³ or more .*--ignore"):
            read_problem(path, target)
    assert read_problem(_write(frame, tmp_path, "csv"), "y", ignore=["id"]).inputs == tuple(NAMES)


# --- larger than memory --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_larger_than_the_memory_keeps_a_seeded_sample(rng, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(passes, "SAMPLE", 30)
    frame = pd.DataFrame(rng.normal(size=(400, 4)), columns=[*NAMES, "y"])
    path = _write(frame, tmp_path, kind)
    one = read_problem(path, "y", memory=200)
    monkeypatch.setattr(files, "CHUNK", 7 * 4)
    two = read_problem(path, "y", memory=200)
    assert _says(one, "random sample of 30 rows")
    assert one.rows is one.sample
    assert one.sample.samples == 30
    np.testing.assert_array_equal(np.sort(one.sample.inputs, 0), np.sort(two.sample.inputs, 0))
    assert np.isin(one.sample.targets, frame["y"]).all()
    other = read_problem(path, "y", memory=200, seed=1)
    assert not np.array_equal(np.sort(one.sample.inputs, 0), np.sort(other.sample.inputs, 0))
    whole = read_problem(path, "y")
    assert whole.rows is whole.problem


def test_rows_held_out_of_a_large_table_are_not_in_its_moments(rng, monkeypatch):
    monkeypatch.setattr(passes, "SAMPLE", 30)
    frame = pd.DataFrame(rng.normal(size=(400, 4)), columns=[*NAMES, "y"])
    monkeypatch.setattr(files, "CHUNK", 9 * 4)
    reading = read_problem(frame, "y", memory=200, test_share=0.05)
    rows, targets = reading.held_out
    assert (len(rows), reading.problem.samples) == (20, 380)
    held = frame[np.isin(frame["y"], targets)]
    assert len(held) == 20
    _same(reading.problem, _of(frame.drop(index=held.index)))
    many = read_problem(frame, "y", memory=200, test_share=0.2)
    assert len(many.held_out[0]) == 30  # as many as are kept


def test_medians_of_a_large_table_are_those_of_its_sample(rng, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 9 * 4)
    frame = pd.DataFrame(rng.normal(size=(200, 4)), columns=[*NAMES, "y"])
    frame.loc[::9, "age"] = np.nan
    streamed = read_problem(frame, "y", memory=200, missing="median")
    _same(streamed.problem, _of(frame.fillna({"age": frame["age"].median()})))
    assert _says(streamed, "'age' (23 rows)")


def test_what_the_sample_does_not_show_is_an_error_with_row_and_cell(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "SAMPLE", 30)
    monkeypatch.setattr(files, "CHUNK", 100)
    frame = pd.DataFrame({"x": rng.normal(size=400), "y": rng.normal(size=400)})
    frame["kind"] = np.array(["u", "v"])[np.arange(400) % 2]
    for column, cell, sentence in (
        ("x", "?", r"'x' holds numbers, but row 8 is '\?'"),
        ("x", "1.234,5", r"row 8 is '1\.234,5', written in another style.*--thousands \."),
        ("kind", "w", r"'kind' has a category in row 8, 'w', .*--memory"),
    ):
        table = frame.astype({"x": object})
        table.loc[7, column] = cell
        path = _write(table, tmp_path, "csv")
        with pytest.raises(dl.InputError, match=sentence):
            read_problem(path, "y", encode=True, memory=200)
    whole = read_problem(_write(frame, tmp_path, "csv"), "y", encode=True, memory=200)
    assert whole.inputs == ("x", "kind=v")


# --- the end of the process ----------------------------------------------------------------------

BAD = {
    "twice": "a,a,b\n1,2,3\n",
    "ragged": "a,b\n1,2\n1,2,3\n",
    "far": "a,b\n" + 2000 * "1,2\n" + "1,2,3\n",
    "unknown": "a,c\n1,2\n1,3\n4,3\n",
}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs the threads of Linux")
def test_reading_a_bad_table_leaves_no_native_thread(tmp_path):
    def threads():
        return len(list(Path("/proc/self/task").iterdir()))

    for name, text in BAD.items():
        (tmp_path / f"{name}.csv").write_text(text)
        before = threads()
        with pytest.raises(dl.InputError):
            read_problem(tmp_path / f"{name}.csv", "b")
        assert threads() <= before


@pytest.mark.extended
def test_the_command_ends_with_code_2_on_bad_tables_every_time(tmp_path):
    for name, text in BAD.items():
        (tmp_path / f"{name}.csv").write_text(text)
        command = [sys.executable, "-m", "deeplin", "diagnose", f"{name}.csv", "--target", "b"]
        for _ in range(6):
            end = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
            assert end.returncode == 2, end.stderr
            assert end.stderr.startswith("deeplin: ")
            assert len(end.stderr.splitlines()) == 1
