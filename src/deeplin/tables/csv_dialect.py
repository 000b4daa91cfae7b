"""Separated text: encoding, separator, decimal mark and names, found once from its beginning."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv

from deeplin.errors import InputError

BLOCK = 1 << 20  # bytes of text read at a time; column types are inferred from the first block
SEPARATORS = "\t;|,"
"""In this order: a comma may also be the decimal mark beside any of the others."""
SNIFFED = 100
"""Records from which separator and decimal mark are found."""
CATEGORIES = 50
"""A column of text with more different values than this is no set of categories."""
SURVEYED = 100_000
"""Values after which a column that is mostly no numbers is known well enough."""
REMEDY = "Correct it, or leave the cell empty if it is missing."
MARKS = {".": r"\.", ",": ",", " ": "[ \u00a0\u202f]", "'": "['’]", "": ""}
NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")
"""A number with a decimal point or a decimal comma."""
GROUPED = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*")
"""A whole number whose comma may group thousands."""
WITH_UNIT = re.compile(
    r"\s*(?P<before>[$€£¥₹]|[A-Z]{3}(?=\s))?\s*(?P<number>[+-]?[\d.,][\d.,'’ \u00a0\u202f]*"
    r"([eE][+-]?\d+)?)\s*(?P<after>[^\W\d_]{1,5}|[%‰°$€£¥₹][A-Z]?)?\s*"
)


class NumberStyle(NamedTuple):
    """How the numbers in a column of text are written."""

    decimal: str = "."
    thousands: str = ""
    unit: str = ""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Numbers of this style, without their unit."""
        point, group = MARKS[self.decimal], MARKS[self.thousands]
        whole = rf"\d{{1,3}}({group}\d{{3}})+|\d+" if group else r"\d+"
        return re.compile(rf"[+-]?(({whole})({point}\d*)?|{point}\d+)([eE][+-]?\d+)?")

    def note(self, name: str, example: str) -> str | None:
        """What was done to a column, if anything was."""
        done = []
        if self.thousands:
            mark = {" ": "a blank"}.get(self.thousands, f"{self.thousands!r}")
            done.append(f"{mark} groups thousands")
        if self.decimal == ",":
            done.append("a comma is the decimal mark")
        if self.unit:
            done.append(f"the unit {self.unit!r} was removed")
        other = " (otherwise pass --decimal ,)" if self.thousands == "," else ""
        return f"In {name!r}, as in {example!r}, {', '.join(done)}{other}." if done else None


class Survey(NamedTuple):
    """What a column of text holds."""

    values: int
    numbers: int
    """How many of the values are numbers of the style that most have."""
    row: int
    """The first row that is not (from 1), and its value."""
    example: str
    categories: tuple[str, ...]
    """The different values, in order; at most one more than `CATEGORIES`."""
    style: NumberStyle
    shown: str
    """A value in which the style shows."""

    @property
    def nearly_numbers(self) -> bool:
        """Whether it was meant as a column of numbers."""
        return 2 * self.numbers >= self.values > 0

    @property
    def all_numbers(self) -> bool:
        """Whether every value is a number."""
        return self.numbers == self.values > 0

    def __str__(self) -> str:
        count = f"{self.numbers} of {self.values} values parse as numbers"
        return f"{count}; row {self.row} is {self.example[:40]!r}"


def survey(texts: Iterable[str | None], decimal: str = ".", *, everything: bool = False) -> Survey:
    """Look at the values of a column of text: are they numbers in some style, or categories?"""
    other = "," if decimal == "." else "."
    marks = [(decimal, ""), (decimal, other), (decimal, " "), (decimal, "'"), (other, "")]
    marks.append((other, decimal))
    patterns = [NumberStyle(*pair).pattern for pair in marks]
    counts: dict[tuple[int, str], int] = {}
    firsts: dict[tuple[int, str], str] = {}
    misses: list[tuple[int, str, frozenset]] = []
    categories: set[str] = set()
    values = 0
    for row, value in enumerate(texts, 1):
        if row > SURVEYED and 2 * max(counts.values(), default=0) < values and not everything:
            break
        if value is None:
            continue
        values += 1
        if len(categories) <= CATEGORIES:
            categories.add(value)
        found = WITH_UNIT.fullmatch(value)
        unit = (found["before"] or found["after"] or "").strip() if found else ""
        number = found["number"].strip() if found else ""
        fitting = frozenset(
            (k, unit) for k, pattern in enumerate(patterns) if pattern.fullmatch(number)
        )
        for kind in fitting:
            counts[kind] = counts.get(kind, 0) + 1
            mark = marks[kind[0]][1]
            if kind not in firsts or (mark and mark in value and mark not in firsts[kind]):
                firsts[kind] = value
        if len(misses) < 1000 and len(fitting) < len(patterns):
            misses.append((row, value, fitting))
    best = max(counts, key=lambda kind: (counts[kind], -kind[0]), default=(0, ""))
    row, example = next(((r, v) for r, v, fits in misses if best not in fits), (0, ""))
    style = NumberStyle(*marks[best[0]], best[1])
    shown = firsts.get(best, "")
    return Survey(
        values, counts.get(best, 0), row, example, tuple(sorted(categories)), style, shown
    )


@dataclass(frozen=True)
class Dialect:
    """How the bytes of a file become records of values."""

    separator: str
    decimal: str
    names: tuple[str, ...] | None
    """Numbers for names where the first line holds a sample; None: the first line names them."""
    newlines: bool
    """Whether a name holds a line break."""
    encoding: str
    skipped: int
    """Lines of comment before the first record."""
    notes: tuple[str, ...]

    def open(self, path: str, **convert) -> pyarrow.csv.CSVStreamingReader:
        """The file as a stream of record batches; lines of comment are skipped."""
        names = None if self.names is None else list(self.names)
        return pyarrow.csv.open_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(
                block_size=BLOCK,
                column_names=names,
                encoding=self.encoding,
                skip_rows=self.skipped,
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.separator,
                newlines_in_values=self.newlines,
                invalid_row_handler=_invalid_row,
            ),
            convert_options=pyarrow.csv.ConvertOptions(decimal_point=self.decimal, **convert),
        )


def _invalid_row(row) -> str:
    return "skip" if (row.text or "").lstrip().startswith("#") else "error"


def sniff(path: str, decimal: str | None = None) -> Dialect:
    """Find the dialect from the first records: the separator that cuts all of them alike, …"""
    text, encoding, notes = _beginning(path)
    lines = text.splitlines(keepends=True)
    skipped = next((k for k, line in enumerate(lines) if not line.startswith("#")), 0)
    if skipped:
        notes.append(f"{skipped} line(s) of comment before the first record were skipped.")
    sample = "".join(line for line in lines[skipped:] if not line.startswith("#"))
    if not sample.strip():
        raise InputError(f"{path!r} does not begin with a line of column names.")
    best = max(SEPARATORS, key=lambda separator: _evenness(_records(sample, separator)))
    first, *rest = _records(sample, best)
    mark = decimal or _decimal(rest or [first])
    if mark == ",":
        notes.append("Decimal commas were read as such.")
    names, newlines = None, any("\n" in name for name in first)
    if all(map(NUMBER.fullmatch, first)):
        counted = tuple(str(k) for k in range(len(first)))
        if len(first) > 2 and tuple(value.strip() for value in first) == counted:
            notes.append(
                "The first line counts 0, 1, 2, …: it was taken as the names of the columns."
            )
        else:
            names = counted
            notes.append(
                "The first line holds numbers only: it was taken as a sample, and the columns are "
                "numbered from 0. If it names the columns, write at least one name that is no "
                "number."
            )
    return Dialect(best, mark, names, newlines, encoding, skipped, tuple(notes))


def _beginning(path: str) -> tuple[str, str, list[str]]:
    """The text of the first block, its encoding, and what is to be said about that."""
    with pa.input_stream(path) as stream:
        block = stream.read(BLOCK)
    whole = len(block) < BLOCK
    encoding, notes = "utf-8", []
    if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(block, final=whole)
    except UnicodeDecodeError as error:
        encoding = "cp1252"
        text = block.decode(encoding, errors="replace")
        if "\ufffd" in text or encoding == "utf-16":
            raise InputError(f"{path!r} is not UTF-8, UTF-16 or Windows text.") from error
        notes.append("The file is not UTF-8; it was read as Windows text (cp1252).")
    text = text.removeprefix("\ufeff")
    if re.search("[\x00-\x08\x0e-\x1f]", text):
        raise InputError(f"{path!r} is not text; save it as CSV (UTF-8).")
    if not text.strip():
        raise InputError(f"{path!r} does not begin with a line of column names.")
    return text if whole else text[: text.rfind("\n") + 1] or text, encoding, notes


def _records(text: str, separator: str) -> list[list[str]]:
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    return list(islice((record for record in lines if record), SNIFFED))


def _evenness(records: Sequence[Sequence[str]]) -> tuple[bool, int]:
    """Whether a separator cuts every record into equally many values, more than one; how many."""
    counts = [len(record) for record in records]
    return len(set(counts)) == 1 < counts[0], 0 if len(set(counts)) == 1 else counts[0]


def _decimal(records: Sequence[Sequence[str]]) -> str:
    """A comma, if some number is surely written with one and none with a point."""
    numbers = [value for record in records for value in record if NUMBER.fullmatch(value)]
    comma = any("," in number and not GROUPED.fullmatch(number) for number in numbers)
    return "," if comma and not any("." in number for number in numbers) else "."
