"""Checks of what a caller passes: one sentence that says what came and what to pass instead."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np


class InputError(ValueError):
    """The input cannot be used; the message says what was received and what to pass instead."""


def finite_array(name: str, value: Any, dimensions: tuple[int, ...]) -> np.ndarray:
    """Return `value` as a finite float64 array with an allowed number of dimensions."""
    try:
        if np.iscomplexobj(value):
            raise TypeError("it holds complex numbers.")
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not an array of real numbers: {error}") from error
    if array.ndim not in dimensions:
        allowed = " or ".join(str(count) for count in dimensions)
        raise InputError(
            f"{name} has shape {array.shape}; pass an array with {allowed} dimension(s)."
        )
    if array.size == 0:
        raise InputError(
            f"{name} is empty (shape {array.shape}); pass at least one row and column."
        )
    wrong = array.size - int(np.count_nonzero(np.isfinite(array)))
    if wrong:
        raise InputError(
            f"{name} holds {wrong} NaN or infinite value(s) out of {array.size}; "
            "remove or impute them first."
        )
    return array


def positive_number(name: str, value: Any, *, zero_allowed: bool = False) -> float:
    """Return `value` as a finite float above zero (or at zero, where allowed)."""
    wanted = "a finite number of at least 0" if zero_allowed else "a finite number above 0"
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is {value!r}; pass {wanted}.") from error
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero_allowed):
        raise InputError(f"{name} is {number:g}; pass {wanted}.")
    return number


def whole_number(name: str, value: Any, *, minimum: int = 1) -> int:
    """Return `value` as an int of at least `minimum`."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number = float(value) if real else float("nan")
    if not number.is_integer() or number < minimum:
        raise InputError(f"{name} is {value!r}; pass a whole number of at least {minimum}.")
    return int(number)


def require_float64(what: str, tree: Any) -> None:
    """Raise unless every floating leaf of `tree` is float64 (JAX's default is float32)."""
    import jax  # a second, which checks of other things need not wait for
    import jax.numpy as jnp

    for leaf in jax.tree.leaves(tree):
        dtype = jnp.result_type(leaf)
        if jnp.issubdtype(dtype, jnp.floating) and dtype != jnp.float64:
            raise InputError(
                f"{what} needs float64 but received {dtype}. Switch it on before creating arrays: "
                "jax.config.update('jax_enable_x64', True)."
            )
