"""The type of a tidy table."""

from typing import Any, TypeAlias

Table: TypeAlias = Any
"""A `pandas.DataFrame`, one row for each run or record. Not annotated as such: type checkers take
every selection from a DataFrame for a Series as well, and object to most that is done with it."""
