"""Columns of a table: what their cells hold, numbers written as text, and their float64 values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from enum import StrEnum
from functools import partial
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

from deeplin.errors import InputError

CATEGORIES = 50
"""Largest number of distinct values in a column of categories."""
UNITS_SOUGHT = 1000
"""Number of different texts of a column in which its unit is sought."""
MISSING = ("", "<NA>", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN")
MISSING += ("-NaN", "-nan", "NaN", "nan", "N/A", "n/a", "NA", "NULL", "null")
"""Texts that mean a missing value."""
DATE = re.compile(
    r"\d{4}-\d\d?-\d\d?([ T]\d\d?:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"
    r"|\d\d?(?P<mark>[./-])\d\d?(?P=mark)(\d\d|\d{4})",
    re.ASCII,
)
BLANKS = "[ \t\u00a0\u202f]*"
MARKS = {"": "", ".": r"\.", ",": ",", " ": "[ \u00a0\u202f]", "'": "['’]"}
WITH_UNIT = re.compile(
    r"\s*[+-]?(?P<before>[$€£¥₹]|[A-Z]{3}(?=\s))?\s*"
    r"[+-]?\s*[0-9.,][0-9.,'’ \u00a0\u202f]*([eE][+-]?[0-9]+)?\s*"
    r"(?P<after>[^\W\d_]{1,5}[²³]?(/[^\W\d_]{1,5}[²³]?)?|[%‰°$€£¥₹][A-Z]?)?\s*"
)


class Kind(StrEnum):
    """Kind of the values in a column."""

    NUMBER = "numbers"
    WHOLE = "whole numbers"
    BOOLEAN = "true or false"
    TEXT = "text"
    DATE = "dates"
    OTHER = "other values"
    EMPTY = "nothing"


NUMERIC = frozenset((Kind.NUMBER, Kind.WHOLE, Kind.BOOLEAN))
"""Kinds of columns that are numbers already."""
OBJECTS = {
    "string": Kind.TEXT,
    "empty": Kind.EMPTY,
    "boolean": Kind.BOOLEAN,
    "integer": Kind.WHOLE,
    **dict.fromkeys(("floating", "mixed-integer-float", "decimal"), Kind.NUMBER),
    **dict.fromkeys(("date", "datetime", "datetime64", "time", "period"), Kind.DATE),
    **dict.fromkeys(("timedelta", "timedelta64"), Kind.DATE),
}
"""Kind of a column of Python objects, by the name that pandas infers."""


def listed(names: Sequence[object]) -> str:
    """Return a few names, and how many more there are."""
    shown = ", ".join(repr(str(name)) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def counted(number: int, noun: str) -> str:
    """Return "1 row", "2 rows", …"""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def column_of(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return one column; categories of pandas as what they stand for."""
    cells: Any = frame[name]
    if isinstance(cells.dtype, pd.CategoricalDtype):
        return cells.astype(cells.cat.categories.dtype)
    return cells


def kind_of(cells: pd.Series) -> Kind:
    """Return the kind of the values in a column, or in a chunk of it."""
    if types.is_bool_dtype(cells.dtype):
        return Kind.BOOLEAN
    if types.is_integer_dtype(cells.dtype):
        return Kind.WHOLE
    if types.is_complex_dtype(cells.dtype):
        return Kind.OTHER
    if types.is_numeric_dtype(cells.dtype):
        present = cells.dropna().to_numpy(np.float64)
        if not len(present):
            return Kind.EMPTY
        # Whole numbers of which some are missing are stored as floats.
        whole = len(present) < len(cells) and np.all(np.abs(present) < 2.0**63)
        return Kind.WHOLE if whole and np.all(present == np.floor(present)) else Kind.NUMBER
    kind = OBJECTS.get(types.infer_dtype(cells, skipna=True), Kind.OTHER)
    usual = (str, Number, date, time, timedelta)
    if kind == Kind.OTHER and all(isinstance(value, usual) for value in cells.dropna()):
        return Kind.TEXT
    return kind


def as_text(cells: pd.Series, decimal: str = ".") -> pd.Series:
    """Return cells as text, where empty cells and other marks of missing values are missing."""
    if not types.is_string_dtype(cells.dtype) or types.is_object_dtype(cells.dtype):
        cells = cells.astype(object)
        mixed = any(isinstance(value, str) for value in cells)
        written = partial(_written, mixed=mixed, decimal=decimal)
        cells = cells.map(written, na_action="ignore")
    texts = cells.astype("str")
    return texts.mask(texts.str.strip().isin(list(MISSING)))


def _written(value: object, mixed: bool, decimal: str) -> str:
    """Return a value as text, beside text with so many digits that no mark groups thousands."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if not isinstance(value, float | np.floating):
        return str(value)
    if float(value).is_integer():
        return str(int(value))
    whole, point, fraction = str(float(value)).partition(".")
    if mixed and "e" not in fraction:
        fraction = fraction.ljust(4, "0")
    return whole + point.replace(".", decimal) + fraction


# --- numbers written as text ---------------------------------------------------------------------


class NumberStyle(NamedTuple):
    """Style in which the numbers in a column of text are written."""

    decimal: str = "."
    thousands: str = ""
    unit: str = ""

    @property
    def cells(self) -> str:
        """Regular expression of a cell of this style."""
        point, group, unit = MARKS[self.decimal], MARKS[self.thousands], re.escape(self.unit)
        whole = rf"[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+|[0-9]+" if group else "[0-9]+"
        number = rf"(?:(?:{whole})(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
        forms = [rf"[+-]?{BLANKS}{number}{BLANKS}{unit}"]
        if unit:
            forms += [rf"[+-]?{BLANKS}{unit}{BLANKS}{number}", rf"{unit}{BLANKS}[+-]{number}"]
        return rf"{BLANKS}(?:{'|'.join(forms)}){BLANKS}"

    @property
    def swapped(self) -> NumberStyle:
        """The style in which the decimal mark groups thousands."""
        return NumberStyle("," if self.decimal == "." else ".", self.decimal, self.unit)

    def fits(self, texts: pd.Series) -> np.ndarray:
        """Return which texts are numbers of this style."""
        return texts.str.fullmatch(self.cells).to_numpy(bool, na_value=False)

    def numbers(self, texts: pd.Series) -> np.ndarray:
        """Return texts as numbers; NaN for those that are missing or not of this style."""
        texts, unit = texts.where(self.fits(texts)), re.escape(self.unit)
        changes = [(rf"{unit}{BLANKS}$", ""), (rf"^{BLANKS}([+-]?){BLANKS}{unit}", r"\1")]
        changes = changes if unit else []
        changes += [(MARKS[mark], "") for mark in (self.thousands, " ") if mark]
        changes += [(",", ".")] if self.decimal == "," else []
        for pattern, replacement in changes:
            texts = texts.str.replace(pattern, replacement, regex=True)
        numbers: Any = pd.to_numeric(texts.str.strip())
        return numbers.to_numpy(np.float64, na_value=np.nan)

    def advice(self, cell: str) -> str:
        """Return what to do about a cell of another style."""
        for decimal, thousands in _marks(self.decimal, ""):
            if re.fullmatch(NumberStyle(decimal, thousands, self.unit).cells, cell):
                option = f"--thousands {thousands}" if thousands else f"--decimal {decimal}"
                return (
                    f", written in another style. Correct it, or pass {option} if that is the "
                    "style."
                )
        return ". Correct it, or leave the cell empty if it is missing."


def _marks(decimal: str, thousands: str) -> list[tuple[str, str]]:
    """Return all pairs of marks, the likeliest of those that a cell allows first."""
    other = "," if decimal == "." else "."
    pairs = [(decimal, group) for group in ("", other, " ", "'")]
    pairs += [(other, group) for group in ("", decimal, " ", "'")]
    return sorted(pairs, key=lambda pair: not thousands or pair != (decimal, thousands))


@dataclass(frozen=True)
class Survey:
    """What the cells of one column hold: numbers of some style, or categories."""

    kind: Kind
    categories: tuple[str, ...] = ()
    """The different values as text, sorted; at most one more than `CATEGORIES`."""
    values: int = 0
    """Number of cells of text that are not missing."""
    numbers: int = 0
    """Number of them that are numbers in `style`."""
    style: NumberStyle | None = None
    note: str = ""
    """What was done to read text as numbers, with a cell as example."""
    misfit: str = ""
    """How many cells are numbers, and the first one that is not."""

    @property
    def nearly_numbers(self) -> bool:
        """Whether it was meant as a column of numbers."""
        return 2 * self.numbers >= self.values > 0

    @property
    def all_numbers(self) -> bool:
        """Whether every cell is a number in one style."""
        return self.numbers == self.values > 0


def survey(
    cells: pd.Series, decimal: str = ".", thousands: str = "", *, coded: bool = False
) -> Survey:
    """Return what a column holds; the index of `cells` counts the rows from 0.

    Args:
        cells: The column, or a sample of it.
        decimal: The decimal mark of the table.
        thousands: The mark that groups thousands, if the caller names one.
        coded: Whether its values are categories, whatever they are.
    """
    kind = Kind.TEXT if coded else kind_of(cells)
    if kind not in (Kind.TEXT, Kind.BOOLEAN):
        return Survey(kind)
    texts = as_text(cells, decimal)
    counts = texts.value_counts(sort=False)
    different: Any = pd.Series(counts.index)
    times: Any = counts.to_numpy()
    categories = tuple(sorted(different[: CATEGORIES + 1]))
    if not categories:
        return Survey(Kind.EMPTY)
    if kind == Kind.TEXT and not coded and all(DATE.fullmatch(it.strip()) for it in different):
        kind = Kind.DATE
    if kind != Kind.TEXT:
        return Survey(kind, categories)
    units: Counter[str] = Counter()
    for text, count in zip(different[:UNITS_SOUGHT], times.tolist(), strict=False):
        if found := WITH_UNIT.fullmatch(text):
            units[found["before"] or found["after"] or ""] += count
    unit = max(units, key=lambda it: units[it], default="")
    style, fits, numbers = NumberStyle(decimal, "", unit), np.zeros(len(different), bool), 0
    for marks in _marks(decimal, thousands) if units else ():
        fitting = NumberStyle(*marks, unit).fits(different)
        if times[fitting].sum() > numbers:
            style, fits, numbers = NumberStyle(*marks, unit), fitting, int(times[fitting].sum())
        if fits.all():
            break
    values, note, misfit = int(times.sum()), "", ""
    if numbers == values:
        note = _note(style, different, decimal, thousands)
    else:
        row, cell = first_cell(texts, ~texts.isin(different[fits]))
        misfit = (
            f"{numbers} of {values} values parse as numbers; row {row} is {cell[:40]!r}"
            f"{style.advice(cell)}"
        )
    return Survey(kind, categories, values, numbers, style, note, misfit)


def first_cell(texts: pd.Series, wrong: Any) -> tuple[int, str]:
    """Return the first of these cells that is not missing, after its row counted from 1; or 0."""
    places = np.flatnonzero(texts.notna() & wrong)
    return (int(texts.index[places[0]]) + 1, str(texts.iloc[places[0]])) if len(places) else (0, "")


def _note(style: NumberStyle, texts: Any, decimal: str, thousands: str) -> str:
    """Return what was done to read all these texts in a style; "" for nothing."""
    mark = MARKS[style.thousands or style.decimal]
    marked = texts[texts.str.contains(mark)]
    example, done = (texts if marked.empty else marked).iloc[0], []
    if style.thousands and not marked.empty:
        shown = {" ": "a blank"}.get(style.thousands, f"{style.thousands!r}")
        done.append(f"{shown} groups thousands")
    if style.decimal in example and (style.decimal == "," or decimal == ","):
        done.append(f"a {'comma' if style.decimal == ',' else 'point'} is the decimal mark")
    if style.unit:
        done.append(f"the unit {style.unit!r} was removed")
    other = ""
    if style.thousands in (".", ",") and style.thousands != thousands:
        other = f" (otherwise pass --decimal {style.thousands})"
    elif (
        not style.thousands
        and not thousands
        and 0 < len(marked) < len(texts)
        and style.swapped.fits(texts).all()
    ):  # 1.595 beside 950
        done = done or ["a point is the decimal mark"]
        other = f" (if it groups thousands, pass --thousands {style.decimal})"
    return f"as in {example!r}, {', '.join(done)}{other}." if done else ""


# --- columns as numbers --------------------------------------------------------------------------


class Column(NamedTuple):
    """A column of a table, or the indicator of one of the categories in a column of text."""

    name: str
    category: str | None = None
    style: NumberStyle | None = None
    """Style of the numbers in a column of text; None if the format stores numbers."""
    labels: tuple[str, ...] = ()
    """Labels whose index replaces the text; −1 for any other text."""

    @property
    def label(self) -> str:
        """Name of the column in messages and results."""
        return self.name if self.category is None else f"{self.name}={self.category}"

    @property
    def is_text(self) -> bool:
        """Whether its values are read as text."""
        return self.category is not None or self.style is not None or bool(self.labels)

    def numbers(self, cells: pd.Series, texts: pd.Series | None, decimal: str) -> np.ndarray:
        """Return cells as float64, with NaN for missing ones; `texts` are the cells as text."""
        if texts is None:
            return cells.to_numpy(np.float64, na_value=np.nan)
        if self.labels:
            places = pd.Index(list(self.labels)).get_indexer(pd.Index(texts.astype(object)))
            return np.where(texts.isna().to_numpy(), np.nan, places)
        if self.category is not None:
            return np.where(texts.isna().to_numpy(), np.nan, texts == self.category)
        style = self.style or NumberStyle(decimal)
        numbers = style.numbers(texts)
        row, cell = first_cell(texts, np.isnan(numbers))
        if row:
            raise InputError(
                f"column {self.name!r} holds numbers, but row {row} is {cell[:40]!r}"
                f"{style.advice(cell)}"
            )
        return numbers


def matrix(frame: pd.DataFrame, columns: Sequence[Column], decimal: str = ".") -> np.ndarray:
    """Return a matrix of these columns, with NaN for missing values.

    The index of the frame counts the rows from 0; `decimal` is the decimal mark of text.
    """
    numbers = np.empty((len(frame), len(columns)), order="F")
    texts: dict[str, pd.Series | None] = {}
    for j, column in enumerate(columns):
        cells = column_of(frame, column.name)
        if column.name not in texts:
            categorical = column.category is not None or column.labels
            stored = types.is_numeric_dtype(cells.dtype)  # most chunks, at once
            written = categorical or (not stored and kind_of(cells) == Kind.TEXT)
            texts[column.name] = as_text(cells, decimal) if written else None
        numbers[:, j] = column.numbers(cells, texts[column.name], decimal)
    return numbers


def usual_values(columns: Sequence[Column], rows: np.ndarray) -> np.ndarray:
    """Return what replaces missing values: the median of numbers, the most frequent category."""
    fill = np.zeros(len(columns))
    shares: dict[str, dict[int, float]] = {}
    for j, column in enumerate(columns):
        present = rows[~np.isnan(rows[:, j]), j]
        if len(present) and column.category is None:
            fill[j] = np.median(present)
        elif len(present):
            shares.setdefault(column.name, {})[j] = float(present.mean())
    for share in shares.values():
        place = max(share, key=lambda j: share[j])
        fill[place] = share[place] > 1 - sum(share.values())  # else the one that is all zeros
    return fill
