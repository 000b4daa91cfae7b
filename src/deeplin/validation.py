"""Check the arguments of public functions against their annotations.

Only the kind of each argument is checked here (a Problem, a Network, text, a function, something to
iterate over, an array); what values are allowed is checked by `deeplin.errors` where they are used.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from deeplin.errors import InputError, reason, shown

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")

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
    """Wrap a public function: an argument of a wrong type raises `InputError` with one sentence."""
    names = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
        kinds = _kinds(function)
        # Wrong names, and too many values, get a TypeError of Python's own below.
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            _check(name, value, kinds.get(name, (Any,)))
        return function(*args, **kwargs)

    return checked


@functools.cache
def _kinds(function: Callable) -> dict[str, list[Any]]:
    """The kinds each argument may have; none if only a type checker can resolve them."""
    try:
        hints = typing.get_type_hints(function)
    except NameError:
        return {}
    return {name: _members(kind) for name, kind in hints.items()}


def _check(name: str, value: Any, members: Sequence[Any]) -> None:
    if not any(_is(value, member) for member in members):
        wanted = [_described(member) for member in members]
        raise InputError(f"{name} is {shown(value)}; pass {' or '.join(dict.fromkeys(wanted))}.")
    if name != "key" and _is_key(value):
        raise InputError(f"{name} is a random key; pass it as key, and here what the name says.")
    if hasattr(value, "__array__") and not inspect.isclass(value):
        _require_array(name, value)


def _members(kind: Any) -> list[Any]:
    """The alternatives of an annotation."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(kind) for member in _members(part)]
    return [kind]


def _is(value: Any, kind: Any) -> bool:
    """Whether a value is of this kind; numbers and arrays are left to the checks of values."""
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
    """Whether a collection holds what its annotation says; what can be read only once is not."""
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


def _is_key(value: Any) -> bool:
    return "key<" in str(getattr(value, "dtype", ""))


def _require_array(name: str, value: Any) -> None:
    """Arrays of other libraries: NumPy must be able to read them."""
    if isinstance(value, np.ndarray) or type(value).__module__.startswith("jax"):
        return
    try:
        np.asarray(value)
    except Exception as error:
        raise InputError(
            f"{name} is a {type(value).__name__} that does not become a NumPy array "
            f"({reason(error)}); pass a NumPy or JAX array."
        ) from error
