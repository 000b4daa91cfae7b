"""Columns of a table: what their cells hold, numbers written as text, and their float64 values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from enum import StrEnum
from functools import partial
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

CATEGORIES = 50
"""Largest number of distinct values in a column of categories."""
SURVEYED = 100_000
"""Number of cells of text that are looked at one by one; of the others, whole chunks at a time."""
MISSING = ("", "<NA>", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN")
MISSING += ("-NaN", "-nan", "NaN", "nan", "N/A", "n/a", "NA", "NULL", "null")
"""Texts that mean a missing value."""
DATE = re.compile(
    r"\d{4}-\d\d?-\d\d?([ T]\d\d?:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"
    r"|\d\d?(?P<mark>[./-])\d\d?(?P=mark)(\d\d|\d{4})",
    re.ASCII,
)
MARKS = {".": r"\.", ",": ",", " ": "[ \u00a0\u202f]", "'": "['’]"}
WITH_UNIT = re.compile(
    r"\s*(?P<sign>[+-]?)(?P<before>[$€£¥₹]|[A-Z]{3}(?=\s))?\s*"
    r"(?P<number>[+-]?[0-9.,][0-9.,'’ \u00a0\u202f]*([eE][+-]?[0-9]+)?)\s*"
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


def as_text(cells: pd.Series) -> pd.Series:
    """Return cells as text, where empty cells and other marks of missing values are missing."""
    if not types.is_string_dtype(cells.dtype) or types.is_object_dtype(cells.dtype):
        cells = cells.astype(object)
        mixed = any(isinstance(value, str) for value in cells)
        cells = cells.map(partial(_written, mixed=mixed), na_action="ignore")
    texts = cells.astype("str")
    return texts.mask(texts.str.strip().isin(list(MISSING)))


def _written(value: object, mixed: bool) -> str:
    """Return a value as text, beside text with so many digits that no point groups thousands."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if not isinstance(value, float | np.floating):
        return str(value)
    if float(value).is_integer():
        return str(int(value))
    whole, point, fraction = str(float(value)).partition(".")
    return whole + point + (fraction.ljust(4, "0") if mixed and "e" not in fraction else fraction)


# --- numbers written as text ---------------------------------------------------------------------


class NumberStyle(NamedTuple):
    """Style in which the numbers in a column of text are written."""

    decimal: str = "."
    thousands: str = ""
    unit: str = ""

    @property
    def pattern(self) -> str:
        """Regular expression of a number of this style, without its unit."""
        point, group = MARKS[self.decimal], MARKS.get(self.thousands, "")
        whole = rf"[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+|[0-9]+" if group else "[0-9]+"
        return rf"[+-]?(?:(?:{whole})(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"

    def numbers(self, texts: pd.Series) -> pd.Series:
        """Return texts of this style as numbers."""
        unit = re.escape(self.unit)
        changes = [(rf"\s*{unit}\s*$", ""), (rf"^\s*-\s*{unit}", "-"), (rf"^\s*\+?\s*{unit}", "")]
        changes = changes if unit else []
        changes += [(MARKS[self.thousands], "")] if self.thousands else []
        changes += [(",", ".")] if self.decimal == "," else []
        for pattern, replacement in changes:
            texts = texts.str.replace(pattern, replacement, regex=True)
        return pd.Series(pd.to_numeric(texts.str.strip()))

    @property
    def cells(self) -> str:
        """Regular expression of a cell of this style, with its unit."""
        unit = re.escape(self.unit)
        after = rf"{self.pattern}\s*{unit}"
        return rf"\s*(?:{after}|[+-]?{unit}\s*{self.pattern})\s*" if unit else rf"\s*{after}\s*"


def _styles(decimal: str, thousands: str) -> list[NumberStyle]:
    """Return all styles without a unit, the likeliest of those that a cell allows first."""
    other = "," if decimal == "." else "."
    pairs = [(decimal, group) for group in ("", other, " ", "'")]
    pairs += [(other, group) for group in ("", decimal, " ", "'")]
    pairs.sort(key=lambda pair: not thousands or pair != (decimal, thousands))
    return [NumberStyle(*pair) for pair in pairs]


@dataclass
class Survey:
    """What the cells of one column hold, chunk by chunk: numbers of some style, or categories."""

    decimal: str = "."
    """The decimal mark of the table."""
    thousands: str = ""
    """The mark that groups thousands, if the caller names one."""
    values: int = 0
    """Number of cells that are not missing."""
    kinds: set[Kind] = field(default_factory=set)
    categories: set[str] = field(default_factory=set)
    """The different values as text; at most one more than `CATEGORIES`."""
    fractions: bool = False
    """Whether some cell is a number with a fraction."""
    dates: int = 0
    counts: Counter[NumberStyle] = field(default_factory=Counter)
    """Number of cells that are numbers in each style."""
    shown: dict[NumberStyle, str] = field(default_factory=dict)
    """A cell that shows each style."""
    misses: list[tuple[int, str, Collection[NumberStyle]]] = field(default_factory=list)
    """Row and text of the first cells that are not numbers in all styles, and their styles."""
    units: set[str] = field(default_factory=set)
    """The units of the cells, and "" for a cell without one."""
    plain: bool = False
    """Whether some cell is a number without any mark."""

    def __post_init__(self) -> None:
        self.styles = _styles(self.decimal, self.thousands)
        self.point_styles = [style for style in self.styles if style.decimal == self.decimal]
        self.patterns = [(style, re.compile(style.pattern)) for style in self.styles]

    def add(self, cells: pd.Series, row: int, kind: Kind | None = None) -> None:
        """Count the cells of a chunk, the first of which is in this row (counted from 0)."""
        fraction = self.fractions and cells.dtype == np.float64
        kind = kind or (Kind.NUMBER if fraction else kind_of(cells))
        if kind == Kind.EMPTY:
            return
        if kind != Kind.TEXT:
            count = int(cells.count())
            self.kinds.add(kind)
            self.values += count
            if kind == Kind.BOOLEAN:
                first = str(cells.dropna().iloc[0]).lower()
                self.categories |= {str(value).lower() for value in cells.dropna().unique()}
                self.misses += [(row + 1, first, ())] if len(self.misses) < 1000 else []
            elif kind in NUMERIC:
                self._add_numbers(cells, count, row)
            return
        texts = as_text(cells)
        present = int(texts.count())
        self.kinds |= {kind} if present else set()
        self.values += present
        before = self.values - present
        if before > SURVEYED:
            if 2 * self.numbers < before and len(self.categories) > CATEGORIES:
                return
            so_far = [style for style in self.counts if self.counts[style] == before]
            still = [it for it in so_far if texts.dropna().str.fullmatch(it.cells).all()]
            if self.style in still:
                self.counts.update(dict.fromkeys(still, present))
                return
        self._add_texts(texts, row)

    def _add_numbers(self, cells: pd.Series, count: int, row: int) -> None:
        """Count numbers: integers are written alike in all styles, fractions have a mark."""
        if self.fractions:
            self.counts.update(dict.fromkeys(self.point_styles, count))
            return
        numbers = cells.to_numpy(np.float64, na_value=np.nan)
        fractions = np.flatnonzero((numbers != np.floor(numbers)) & np.isfinite(numbers))
        styles = self.point_styles if len(fractions) else self.styles
        self.fractions = len(fractions) > 0
        self.counts.update(dict.fromkeys(styles, count))
        if count and (self.fractions or "" not in self.units) and len(self.misses) < 1000:
            self.units.add("")
            first = int(fractions[0] if len(fractions) else np.flatnonzero(~np.isnan(numbers))[0])
            text = f"{numbers[first]:.15g}".replace(".", self.decimal)
            self.misses.append((row + first + 1, text, styles))

    def _add_texts(self, texts: pd.Series, row: int) -> None:
        """Count the different texts of a chunk."""
        codes, different = pd.factorize(texts)
        times = np.bincount(codes[codes >= 0], minlength=len(different))
        first = np.zeros(len(different), int)
        first[codes[codes >= 0][::-1]] = np.flatnonzero(codes >= 0)[::-1]
        for text, count, place in zip(map(str, different), times.tolist(), first, strict=True):
            if len(self.categories) <= CATEGORIES:
                self.categories.add(text)
            self.dates += count * bool(DATE.fullmatch(text.strip()))
            found = WITH_UNIT.fullmatch(text)
            unit = (found["before"] or found["after"] or "").strip() if found else ""
            number = (found["sign"] + found["number"]).strip() if found else ""
            styles = [
                it._replace(unit=unit) for it, form in self.patterns if form.fullmatch(number)
            ]
            self.plain |= len(styles) == len(self.patterns)
            for style in styles:
                self.counts[style] += count
                mark = style.thousands or style.decimal
                if style not in self.shown or (mark in text and mark not in self.shown[style]):
                    self.shown[style] = text
            if len(self.misses) < 1000 and (
                len(styles) < len(self.patterns) or unit not in self.units
            ):
                self.units.add(unit)
                self.misses.append((row + int(place) + 1, text, styles))

    @property
    def kind(self) -> Kind:
        """The kind of the whole column."""
        if not self.kinds:
            return Kind.EMPTY
        if len(self.kinds) == 1 and Kind.TEXT not in self.kinds:
            return next(iter(self.kinds))
        if self.kinds == {Kind.WHOLE, Kind.NUMBER}:
            return Kind.NUMBER
        if self.kinds & {Kind.DATE, Kind.OTHER}:
            return Kind.OTHER
        return Kind.DATE if self.dates == self.values else Kind.TEXT

    @property
    def style(self) -> NumberStyle:
        """The style in which most cells are numbers."""
        order = [style[:2] for style in self.styles]
        return max(
            self.counts,
            key=lambda it: (self.counts[it], -order.index(it[:2])),
            default=self.styles[0],
        )

    @property
    def numbers(self) -> int:
        """Number of cells that are numbers in that style."""
        return self.counts[self.style]

    @property
    def nearly_numbers(self) -> bool:
        """Whether it was meant as a column of numbers."""
        return 2 * self.numbers >= self.values > 0

    @property
    def all_numbers(self) -> bool:
        """Whether every cell is a number in one style."""
        return self.numbers == self.values > 0

    @property
    def note(self) -> str | None:
        """What was done to read the cells as numbers, with a cell as example; None for nothing."""
        style = self.style
        example, done = self.shown.get(style, ""), []
        if style.thousands and re.search(MARKS[style.thousands], example):
            mark = {" ": "a blank"}.get(style.thousands, f"{style.thousands!r}")
            done.append(f"{mark} groups thousands")
        if style.decimal in example and (style.decimal == "," or self.decimal == ","):
            done.append(f"a {'comma' if style.decimal == ',' else 'point'} is the decimal mark")
        if style.unit:
            done.append(f"the unit {style.unit!r} was removed")
        other = ""
        if style.thousands in (".", ",") and style.thousands != self.thousands:
            other = f" (otherwise pass --decimal {style.thousands})"
        elif self.ambiguous:
            done = done or ["a point is the decimal mark"]
            other = f" (if it groups thousands, pass --thousands {style.decimal})"
        return f"as in {example!r}, {', '.join(done)}{other}." if done else None

    @property
    def ambiguous(self) -> bool:
        """Whether what was read as decimal mark may group thousands: 1.595 beside 950."""
        style = self.style
        grouped = NumberStyle("," if style.decimal == "." else ".", style.decimal, style.unit)
        written = style.decimal in self.shown.get(style, "")
        unsaid = not style.thousands and not self.thousands
        return unsaid and self.plain and written and self.counts[grouped] == self.numbers

    def __str__(self) -> str:
        """Say how many cells are numbers, and which is the first that is not."""
        best = self.style
        row, cell, others = next(((*m,) for m in self.misses if best not in m[2]), (0, "", ()))
        text = (
            f"{self.numbers} of {self.values} values parse as numbers; row {row} is {cell[:40]!r}"
        )
        marks = [it for it in others if it.unit == best.unit]
        if not marks:
            return f"{text}. Correct it, or leave the cell empty if it is missing."
        other = marks[0]
        option = (
            f"--thousands {other.thousands}" if other.thousands else f"--decimal {other.decimal}"
        )
        return (
            f"{text}, written in another style. Correct it, or pass {option} if that is the style."
        )


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

    def numbers(self, cells: pd.Series) -> np.ndarray:
        """Return cells (text if `is_text`) as float64, with NaN for missing ones."""
        if self.labels:
            places = pd.Index(list(self.labels)).get_indexer(pd.Index(cells.astype(object)))
            return np.where(cells.isna().to_numpy(), np.nan, places)
        elif self.category is not None:
            cells = (cells == self.category).astype(float).mask(cells.isna())
        elif self.style is not None:
            cells = self.style.numbers(cells)
        return cells.to_numpy(np.float64, na_value=np.nan)


def matrix(frame: pd.DataFrame, columns: Sequence[Column]) -> np.ndarray:
    """Return a matrix of these columns, with NaN for missing values."""
    numbers = np.empty((len(frame), len(columns)), order="F")
    texts: dict[str, pd.Series] = {}
    for j, column in enumerate(columns):
        cells = column_of(frame, column.name)
        if column.style is not None and types.is_numeric_dtype(cells.dtype):
            column = Column(column.name)  # a chunk that needs no style
        if column.is_text:
            if column.name not in texts:
                texts[column.name] = as_text(cells)
            cells = texts[column.name]
        numbers[:, j] = column.numbers(cells)
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
