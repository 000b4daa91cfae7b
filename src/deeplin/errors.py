"""`InputError`, and checks of arguments that return the checked value or raise it.

`validated` checks the type of every argument of a public function against its annotation (a
Problem, a Network, text, a function, an iterable, an array); the other functions check values where
they are used.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")

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


def require_float64(what: str, tree: Any) -> None:
    """Raise unless every floating leaf of `tree` is float64 (JAX's default is float32)."""
    import jax  # takes a second, so only here
    import jax.numpy as jnp

    for leaf in jax.tree.leaves(tree):
        dtype = jnp.result_type(leaf)
        if jnp.issubdtype(dtype, jnp.floating) and dtype != jnp.float64:
            raise InputError(
                f"{what} needs float64 but received {dtype}. Switch it on before creating arrays: "
                "jax.config.update('jax_enable_x64', True)."
            )


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


HOW = {
    "Problem": "a deeplin.Problem, such as deeplin.Problem.from_data(X, y)",
    "Network": "a deeplin.Network",
    "Run": "a run, such as what deeplin.gradient_descent returns",
    "Population": "a deeplin.Population",
    "Array": "a JAX array (for a key: jax.random.key(seed))",
    "str": "text",
    "bool": "True or False",
    "Path": "a path",
    "Iterable": "several values, such as a list",
    "Sequence": "several values, such as a list",
    "Mapping": "a dictionary",
    "Callable": "a function",
    "NoneType": "None",
}


def validated(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """Decorate a public function so that an argument of a wrong type raises `InputError`."""
    names = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
        kinds = _kinds(function)
        # Wrong names and too many values raise Python's TypeError below.
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            _check(name, value, kinds.get(name, (Any,)))
        return function(*args, **kwargs)

    return checked


@functools.cache
def _kinds(function: Callable) -> dict[str, list[Any]]:
    """Return the types each argument may have; none if only a type checker can resolve them."""
    try:
        hints = typing.get_type_hints(function)
    except NameError:
        return {}
    return {name: _members(kind) for name, kind in hints.items()}


def _check(name: str, value: Any, members: Sequence[Any]) -> None:
    if not any(_is(value, member) for member in members):
        wanted = [_described(member) for member in members]
        raise InputError(f"{name} is {shown(value)}; pass {' or '.join(dict.fromkeys(wanted))}.")
    if name != "key" and "key<" in str(getattr(value, "dtype", "")):
        raise InputError(f"{name} is a random key; pass it as key, and here what the name says.")
    if hasattr(value, "__array__") and not inspect.isclass(value):
        _require_array(name, value)


def _members(kind: Any) -> list[Any]:
    """Return the alternatives of an annotation."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(kind) for member in _members(part)]
    return [kind]


def _is(value: Any, kind: Any) -> bool:
    """Return whether a value has this type; numbers and arrays are left to the checks of values."""
    origin = typing.get_origin(kind) or kind
    if origin is Callable or origin is typing.Callable:
        return callable(value)
    if not inspect.isclass(origin) or origin in (Any, int, float, complex, np.ndarray, object):
        return True
    if getattr(origin, "_is_protocol", False):  # a part of NumPy's `ArrayLike`
        return True
    if origin is bool:
        return isinstance(value, (bool, np.bool_))
    if issubclass(origin, Iterable) and origin.__module__ == "collections.abc":
        return isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0 and _holds(value, kind)
    return isinstance(value, origin)


def _holds(values: Iterable, kind: Any) -> bool:
    """Return whether a collection holds what its annotation says; iterators are not consumed."""
    wanted = typing.get_args(kind)
    if not isinstance(values, Collection) or len(wanted) != 1:
        return True
    return all(_is(value, wanted[0]) for value in values)


def _described(kind: Any) -> str:
    """Describe the values of this type, for an error message."""
    name = getattr(typing.get_origin(kind) or kind, "__name__", str(kind)).rpartition(".")[2]
    inside = [getattr(part, "__name__", "") for part in typing.get_args(kind)]
    if name in ("Iterable", "Sequence") and inside and inside[0] not in ("", "Any"):
        return f"a list of {HOW.get(inside[0], inside[0]).removeprefix('a ')}"
    return HOW.get(name, f"a {name}")


def _require_array(name: str, value: Any) -> None:
    """Raise InputError unless NumPy can read this array of another library."""
    if isinstance(value, np.ndarray) or type(value).__module__.startswith("jax"):
        return
    try:
        np.asarray(value)
    except Exception as error:
        raise InputError(
            f"{name} is a {type(value).__name__} that does not become a NumPy array "
            f"({reason(error)}); pass a NumPy or JAX array."
        ) from error
