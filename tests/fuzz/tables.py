"""Tables of every format, damaged in every way a file can be, given to `diagnose` and `train`."""

import gzip
import io
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
from answers import complaint, raised

import deeplin as dl
from deeplin.tables import files

FORMATS = ("csv", "tsv", "csv.gz", "parquet", "feather")
CELLS = ("", "?", "nan", "inf", "-inf", "NA", "1e400", "1,5", "2024-02-30", "x", '"', "'", "0x1f")
CELLS += ("1e-320", "-0", "9007199254740993", "1_000", "true", "é", "\x00", "１２", "+3", " 4 ")
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e308, -1e308, 5e-324, 1e-160, 1e160, 2.0**53 + 2)


def check(rng: np.random.Generator, folder) -> str | None:
    """One table, one command: what is wrong with the answer, if anything."""
    path, frame = _file(rng, folder)
    return complaint(_command(path, frame, rng, folder))


def check_reading(rng: np.random.Generator, folder) -> str | None:
    """One table, only read, in memory or in chunks: what is wrong, if anything."""
    path, _ = _file(rng, folder)
    options = {"missing": str(rng.choice(["refuse", "drop", "median"]))}
    for name in ("encode", "standardize", "intercept"):
        options[name] = bool(rng.random() < 0.3)
    if rng.random() < 0.3:
        options["memory"] = int(rng.choice([10, 300, 3000]))
    options |= {"thousands": str(rng.choice([".", ",", " ", "'"]))} if rng.random() < 0.1 else {}
    options |= {"test_share": 0.2} if rng.random() < 0.1 else {}
    try:
        with mock.patch.object(files, "CHUNK", int(rng.choice([20, 200, files.CHUNK]))):
            problem = dl.read_problem(path, "y", **options).problem
    except dl.InputError:
        return None
    except Exception as error:
        return raised(error)
    finite = problem.inputs is None or np.isfinite(problem.inputs).all()
    return None if finite else "inputs that are not finite"


def _file(rng: np.random.Generator, folder) -> tuple[Path, pd.DataFrame]:
    """A table in a file, half of them damaged."""
    frame = _frame(rng)
    kind = str(rng.choice(FORMATS))
    data = _bytes(frame, kind, rng)
    if rng.random() < 0.5:
        data = damaged(data, rng)
    suffix = kind if rng.random() < 0.95 else str(rng.choice(FORMATS))
    path = folder / f"table.{suffix}"
    path.write_bytes(data)
    return path, frame


# --- tables ------------------------------------------------------------------------------------


def _frame(rng: np.random.Generator) -> pd.DataFrame:
    """Samples of a linear map with noise, and usually something odd about them."""
    n, d = int(rng.choice([1, 2, 3, 5, 10, 40])), int(rng.choice([1, 2, 3, 5, 8]))
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=d) + rng.choice([0.0, 0.1, 1.0]) * rng.normal(size=n)
    frame = pd.DataFrame(np.c_[X, y], columns=[*(f"x{k}" for k in range(d)), "y"]).astype(object)
    for _ in range(rng.integers(0, 4)):
        column = frame.columns[rng.integers(len(frame.columns))]
        with np.errstate(all="ignore"):
            frame = ODDITIES[rng.integers(len(ODDITIES))](frame, column, rng)
    return _renamed(frame, rng) if rng.random() < 0.15 else frame


def _scaled(frame, column, rng):
    factor = 10.0 ** rng.choice([-320, -308, -200, -160, -80, -30, -8, 8, 30, 80, 150, 160, 300])
    columns = frame.columns if rng.random() < 0.3 else [column]
    return frame.assign(**{name: factor * _floats(frame[name]) for name in columns})


def _shifted(frame, column, rng):
    return frame.assign(**{column: _floats(frame[column]) + 10.0 ** rng.integers(0, 17)})


def _constant(frame, column, rng):
    return frame.assign(**{column: rng.choice([0.0, 1.0, 1e-300, 0.1, -7.0, 1e200])})


def _copied(frame, column, rng):
    other = frame.columns[rng.integers(len(frame.columns))]
    noise = rng.choice([0.0, 1e-15, 1e-10]) * rng.normal(size=len(frame))
    return frame.assign(**{column: _floats(frame[other]) * rng.choice([1.0, -3.0]) + noise})


def _whole(frame, column, rng):
    start = int(rng.choice([0, -5, 2**31, 2**53, 2**60, 2**63 - 60]))
    return frame.assign(**{column: [start + int(k) for k in rng.integers(0, 40, len(frame))]})


def _special(frame, column, rng):
    values = frame[column].to_numpy(dtype=object, copy=True)
    values[rng.integers(len(values))] = SPECIAL[rng.integers(len(SPECIAL))]
    return frame.assign(**{column: values})


def _categories(frame, column, rng):
    words = np.array(["red", "green", "blue", "", "1", "two words", "é"][: rng.integers(1, 8)])
    return frame.assign(**{column: rng.choice(words, len(frame)).astype(object)})


def _dates(frame, column, rng):
    return frame.assign(**{column: pd.date_range("2024-01-01", periods=len(frame)).astype(str)})


def _truths(frame, column, rng):
    return frame.assign(**{column: rng.random(len(frame)) < 0.5})


def _counter(frame, column, rng):
    frame = frame.copy()
    name = str(rng.choice(["", "Unnamed: 0", "id", "index"]))
    if name not in frame.columns:
        frame.insert(0, name, np.arange(len(frame)))
    return frame


ODDITIES = [_scaled, _shifted, _constant, _copied, _whole, _special, _categories, _dates, _truths]
ODDITIES += [_counter]


def _renamed(frame, rng):
    names = ["", " ", "a\nb", "y", "x0", "3", "2019", "X[0]", "-1", "a,b", 'q"q', "é", "n" * 300]
    new = [*frame.columns]
    new[rng.integers(len(new))] = names[rng.integers(len(names))]
    return frame.set_axis(new, axis=1)


def _floats(values) -> np.ndarray:
    return pd.to_numeric(pd.Series(list(values), dtype=object), errors="coerce").to_numpy(float)


# --- files -------------------------------------------------------------------------------------


def _bytes(frame: pd.DataFrame, kind: str, rng: np.random.Generator) -> bytes:
    if kind in ("csv", "tsv", "csv.gz"):
        text = _text(frame, kind, rng)
        return gzip.compress(text) if kind == "csv.gz" else text
    buffer = io.BytesIO()
    table = _arrow(frame, rng)
    if kind == "parquet":
        pyarrow.parquet.write_table(table, buffer, row_group_size=int(rng.integers(1, 50)))
    else:
        pyarrow.feather.write_feather(table, buffer, chunksize=int(rng.integers(1, 50)))
    return buffer.getvalue()


def _text(frame: pd.DataFrame, kind: str, rng: np.random.Generator) -> bytes:
    if rng.random() < 0.4:
        frame = frame.astype(object)
        frame.iloc[rng.integers(len(frame)), rng.integers(len(frame.columns))] = rng.choice(CELLS)
    separator = "\t" if kind == "tsv" else str(rng.choice([",", ";", "\t", "|"]))
    text = frame.to_csv(
        index=bool(rng.random() < 0.1),
        header=bool(rng.random() < 0.9),
        sep=separator,
        decimal="," if separator == ";" and rng.random() < 0.7 else ".",
        quoting=int(rng.integers(0, 3)),
        lineterminator=str(rng.choice(["\n", "\r\n", "\r"], p=[0.8, 0.15, 0.05])),
    )
    encoding = str(rng.choice(["utf-8", "utf-8-sig", "latin-1", "utf-16"], p=[0.7, 0.1, 0.1, 0.1]))
    return text.encode(encoding, errors="replace")


def _arrow(frame: pd.DataFrame, rng: np.random.Generator) -> pa.Table:
    columns = [_typed(frame.iloc[:, k], rng) for k in range(len(frame.columns))]
    return pa.Table.from_arrays(columns, names=[str(name) for name in frame.columns])


def _typed(values: pd.Series, rng: np.random.Generator) -> pa.Array:
    try:
        array = pa.array(list(values))
    except (pa.ArrowException, OverflowError):
        return pa.array([str(value) for value in values])
    kinds = [pa.float32(), pa.float16(), pa.int32(), pa.int64(), pa.uint64(), pa.decimal128(20, 3)]
    kinds += [pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.date32(), pa.null()]
    if rng.random() < 0.2:
        try:
            return array.cast(kinds[rng.integers(len(kinds))], safe=False)
        except pa.ArrowException:
            return array
    return array


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes cut, changed, inserted, removed, repeated."""
    for _ in range(rng.integers(1, 4)):
        place = int(rng.integers(len(data) + 1))
        length = int(rng.choice([1, 2, 4, 16, 200]))
        noise = rng.integers(0, 256, length, dtype=np.uint8).tobytes()
        data = [
            data[:place],
            data[:place] + noise + data[place + length :],
            data[:place] + noise + data[place:],
            data[:place] + data[place + length :],
            data[:place] + data[place : place + length] + data[place:],
            data[:place]
            + bytes(b ^ 1 << int(rng.integers(8)) for b in data[place : place + 1])
            + data[place + 1 :],
        ][rng.integers(6)]
    return data


# --- commands ----------------------------------------------------------------------------------


def _command(path, frame, rng: np.random.Generator, folder) -> list:
    names = [str(name) for name in frame.columns]
    targets = ["y", "-1", "0", "X", "X[0]", "absent", "", names[rng.integers(len(names))]]
    arguments = ["--target", targets[rng.choice(8, p=[0.79] + 7 * [0.03])]]
    for flag in ("--raw", "--no-intercept", "--encode"):
        arguments += [flag] if rng.random() < 0.3 else []
    arguments += ["--missing", str(rng.choice(["drop", "median"]))] if rng.random() < 0.5 else []
    if rng.random() < 0.05:
        arguments += ["--thousands", str(rng.choice([".", ",", " ", "x"]))]
    if rng.random() < 0.05:
        arguments += ["--ignore", str(rng.choice(["x0", "-1", "absent"]))]
    arguments += ["--target", "x0"] if rng.random() < 0.05 else []
    if rng.random() < 0.05:
        arguments += ["--seed", str(rng.choice(["-1", "0", "7", str(2**70), "x"]))]
    if rng.random() < 0.03:
        out = folder / "run.npz"
        return ["train", path, *arguments, "--steps", 20, "--depth", 2, "--out", out, "--overwrite"]
    arguments += ["--depth", str(rng.choice(["1", "2", "10", "1..3", "40"]))]
    arguments += ["--json"] if rng.random() < 0.2 else []
    return ["diagnose", path, *arguments]
