"""Activations of the papers, by name."""

from __future__ import annotations

from collections.abc import Callable

import jax
from jaxtyping import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "linear": lambda h: h,
    "gelu": lambda h: jax.nn.gelu(h, approximate=True),  # tanh approximation, as FM-7 was run
    "relu": jax.nn.relu,
}
