"""`InputError`, and checks of arguments that return the checked value or raise it."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

LARGEST = 1e50
"""Largest absolute value of data, and inverse of the smallest, so that products of their moments
stay finite."""


class InputError(ValueError):
    """The input cannot be used; the message says what was received and what to pass instead."""


def finite_array(
    name: str, value: Any, dimensions: tuple[int, ...], *, sized: bool = False
) -> np.ndarray:
    """Return `value` as a finite float64 array with an allowed number of dimensions.

    With `sized` it must also pass `require_size`, without reading the data again.
    """
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"it holds {array.dtype.name} values.")
        array = np.asarray(array, dtype=np.float64)
    except Exception as error:  # the object's own methods may raise anything
        raise InputError(f"{name} is not an array of real numbers: {reason(error)}") from error
    if array.ndim not in dimensions:
        allowed = " or ".join(str(count) for count in dimensions)
        raise InputError(
            f"{name} has shape {array.shape}; pass an array with {allowed} dimension(s)."
        )
    if array.size == 0:
        raise InputError(
            f"{name} is empty (shape {array.shape}); pass at least one row and column."
        )
    squares = sum_of_squares(array)  # finite only if all numbers are, and fast
    finite = np.isfinite(squares)
    wrong = 0 if finite else array.size - int(np.count_nonzero(np.isfinite(array)))
    if wrong:
        raise InputError(
            f"{name} holds {wrong} NaN or infinite value(s) out of {array.size}; "
            "remove or impute them first."
        )
    if sized:
        require_size(name, array, squares)
    return array


def sum_of_squares(array: np.ndarray) -> float:
    """Return Σx² in one pass; infinite or zero where float64 cannot hold it."""
    with np.errstate(over="ignore", invalid="ignore"):
        flat = array.ravel(order="K")
        return float(np.dot(flat, flat))


def require_size(name: str, array: np.ndarray, squares: float | None = None) -> None:
    """Raise InputError for data so large or small that products of its moments leave float64.

    `squares` is their sum of squares, where it is known.
    """
    size = ((sum_of_squares(array) if squares is None else squares) / array.size) ** 0.5
    if not 1 / LARGEST <= size <= LARGEST:
        size = float(np.abs(array).max())
        if size != 0 and not 1 / LARGEST <= size <= LARGEST:
            raise InputError(
                f"the values of {name} are of size {size:.3g}, too far from 1 for the products "
                f"that follow from them in float64 (allowed: {1 / LARGEST:.0e} to {LARGEST:.0e}); "
                "change its unit."
            )


def positive_number(name: str, value: Any, *, zero_allowed: bool = False) -> float:
    """Return `value` as a finite float above zero (or at zero, where allowed)."""
    wanted = "a finite number of at least 0" if zero_allowed else "a finite number above 0"
    try:
        number = float(value)
    except Exception as error:  # the object's own methods may raise anything
        raise InputError(f"{name} is {shown(value)}; pass {wanted}.") from error
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero_allowed):
        raise InputError(f"{name} is {number:g}; pass {wanted}.")
    return number


def whole_number(name: str, value: Any, *, minimum: int = 1, maximum: int = 2**63 - 1) -> int:
    """Return `value` as an int from `minimum` to `maximum`."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number: Any = value if real else None
    if number is None or not (isinstance(number, numbers.Integral) or float(number).is_integer()):
        raise InputError(f"{name} is {shown(value)}; pass a whole number of at least {minimum}.")
    if not minimum <= int(number) <= maximum:
        limit = " and at most 2⁶³ − 1" if int(number) > maximum == 2**63 - 1 else ""
        raise InputError(
            f"{name} is {shown(value)}; pass a whole number of at least {minimum}{limit}."
        )
    return int(number)


def seed_number(value: Any, name: str = "seed") -> int:
    """Return a seed: a whole number from 0 to 2⁶³ − 1, which every generator here takes."""
    return whole_number(name, value, minimum=0)


def shown(value: Any) -> str:
    """Return the value, or its type where the value is long, for use in an error message."""
    try:
        text = repr(value)
    except Exception:  # the object's `repr` failed
        text = "\n"
    return text if len(text) <= 60 and "\n" not in text else f"of type {type(value).__name__}"


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Convert any exception of a library that reads a file into an `InputError`.

    A damaged file may raise any exception (zlib, zipfile, tokenize, struct, Arrow, out of memory
    for a wrong header, …), so all are caught, around calls that only read.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"cannot read {str(path)!r}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return the message of a library's exception, in one line."""
    return next(iter(str(error).splitlines()), "")[:300] or type(error).__name__
