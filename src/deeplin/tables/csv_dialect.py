"""Tables of separated text: which separator, which decimal mark, and whether names come first."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv

from deeplin.errors import InputError
from deeplin.tables.formats import Batches, Columns, Kinds, Part, kinds_of, of_batches

BLOCK = 1 << 20  # bytes of text read at a time; column types are inferred from the first block
SEPARATORS = "\t;|,"
"""In this order: a comma may also be the decimal mark beside any of the others."""
LOOKED_AT = 100
"""Records from which separator and decimal mark are found."""
CATEGORIES = 50
"""A column of text with more different values than this is no set of categories."""
SURVEYED = 100_000
"""Values after which a column that is mostly no numbers is known well enough."""
POINT, COMMA, NUMBER = (
    re.compile(rf"\s*[+-]?(\d+([{mark}]\d*)?|[{mark}]\d+)([eE][+-]?\d+)?\s*")
    for mark in (".", ",", ".,")
)
"""Numbers with a decimal point, with a decimal comma, with either."""
REMEDY = "Correct it, or leave the cell empty if it is missing."


class Survey(NamedTuple):
    """What a column of text holds."""

    values: int
    numbers: int
    """How many of the values are numbers."""
    row: int
    """The first row that is not (from 1), and its value."""
    example: str
    categories: tuple[str, ...]
    """The different values, in order; at most one more than `CATEGORIES`."""

    @property
    def nearly_numbers(self) -> bool:
        """Whether it was meant as a column of numbers."""
        return 2 * self.numbers >= self.values > 0

    def __str__(self) -> str:
        if self.numbers == self.values:
            return "its numbers have another decimal mark than those of other columns"
        count = f"{self.numbers} of {self.values} values parse as numbers"
        return f"{count}; row {self.row} is {self.example[:40]!r}"


def survey(texts: Iterable[str | None], *, everything: bool = False) -> Survey:
    """Look at the values of a column of text: are they numbers, or categories?"""
    values, numbers = 0, [0, 0]  # with a decimal point, with a decimal comma
    firsts: list[tuple[int, str]] = [(0, ""), (0, "")]
    categories: set[str] = set()
    for row, value in enumerate(texts, 1):
        if row > SURVEYED and 2 * max(numbers) < values and not everything:
            break
        if value is None:
            continue
        values += 1
        if len(categories) <= CATEGORIES:
            categories.add(value)
        for k, decimal in enumerate((POINT, COMMA)):
            if decimal.fullmatch(value):
                numbers[k] += 1
            elif not firsts[k][0]:
                firsts[k] = row, value
    mark = int(numbers[1] > numbers[0])
    return Survey(values, numbers[mark], *firsts[mark], tuple(sorted(categories)))


class Layout(NamedTuple):
    """How the text of a file is cut into values."""

    separator: str
    decimal: str
    names: list[str] | None
    """Numbers for names where the first line holds a sample; None: the first line names them."""
    newlines: bool
    """Whether a name holds a line break."""
    remark: str | None

    def open(self, path: str, **convert) -> pyarrow.csv.CSVStreamingReader:
        """The file as a stream of record batches."""
        return pyarrow.csv.open_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(block_size=BLOCK, column_names=self.names),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.separator, newlines_in_values=self.newlines
            ),
            convert_options=pyarrow.csv.ConvertOptions(decimal_point=self.decimal, **convert),
        )


def layout_of(path: str) -> Layout:
    """Found from the first records: the separator that cuts all of them alike, and so on."""
    sample = _sample(path)
    best = max(SEPARATORS, key=lambda separator: _evenness(_records(sample, separator)))
    first, *rest = _records(sample, best)
    decimal = _decimal(rest or [first])
    if not all(map(NUMBER.fullmatch, first)):
        return Layout(best, decimal, None, any("\n" in name for name in first), None)
    counted = [str(k) for k in range(len(first))]
    if len(first) > 2 and [value.strip() for value in first] == counted:
        remark = "The first line counts 0, 1, 2, …: it was taken as the names of the columns."
        return Layout(best, decimal, None, False, remark)
    remark = (
        "The first line holds numbers only: it was taken as a sample, and the columns are numbered "
        "from 0. If it names the columns, write at least one name that is no number."
    )
    return Layout(best, decimal, counted, False, remark)


def _sample(path: str) -> str:
    """The text of the first block, without a line that is cut off at its end."""
    with pa.input_stream(path) as stream:
        block = stream.read(BLOCK)
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(block, final=len(block) < BLOCK)
    except UnicodeDecodeError as error:
        raise InputError(f"{path!r} is not UTF-8 text; save it as UTF-8 (“CSV UTF-8”).") from error
    if not text.strip():
        raise InputError(f"{path!r} does not begin with a line of column names.")
    return text if len(block) < BLOCK else text[: text.rfind("\n") + 1] or text


def _records(text: str, separator: str) -> list[list[str]]:
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    return list(islice((record for record in lines if record), LOOKED_AT))


def _evenness(records: Sequence[Sequence[str]]) -> tuple[bool, int]:
    """Whether a separator cuts every record into equally many values, more than one; how many."""
    counts = [len(record) for record in records]
    return len(set(counts)) == 1 < counts[0], 0 if len(set(counts)) == 1 else counts[0]


def _decimal(records: Sequence[Sequence[str]]) -> str:
    """A comma, if some number is written with one and none with a point."""
    numbers = [value for record in records for value in record if NUMBER.fullmatch(value)]
    comma = any("," in number for number in numbers)
    return "," if comma and not any("." in number for number in numbers) else "."


def _columns(path: str) -> Kinds:
    with layout_of(path).open(path) as reader:
        return kinds_of(reader.schema)


def _batches(path: str, part: Part, columns: Columns, rows: int) -> Batches:
    layout = layout_of(path)
    with layout.open(path) as reader:
        seen = {field.name: field.type for field in reader.schema}
    # Whole numbers in the first block may be fractions further on, so every number is a double.
    kinds = {}
    for name, category in columns:
        truth = pa.types.is_boolean(seen[name])
        kinds[name] = pa.string() if category is not None else [pa.float64(), pa.bool_()][truth]
    options = {"column_types": kinds, "include_columns": list(kinds), "strings_can_be_null": True}
    try:
        with layout.open(path, **options) as reader:
            yield from reader
    except pa.ArrowInvalid as error:
        place = re.search(r"column #(\d+).*conversion error", str(error))
        name = list(seen)[int(place[1])] if place else None
        if name is None or kinds[name] == pa.string():
            raise
        # No number, though all of the first block are: say which.
        found = survey(value for block in CSV.texts(path, name) for value in block)
        raise InputError(f"column {name!r} of {path!r}: {found}. {REMEDY}") from error


def _notes(path: str) -> list[str]:
    layout = layout_of(path)
    commas = ["Decimal commas were read as such."] if layout.decimal == "," else []
    return commas + ([layout.remark] if layout.remark else [])


CSV = of_batches(_columns, _batches, notes=_notes)
