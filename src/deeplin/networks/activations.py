"""Activations by name: those of the papers, and two that networks of other libraries bring."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "linear": lambda h: h,
    "gelu": lambda h: jax.nn.gelu(h, approximate=True),  # tanh approximation, as FM-7 was run
    "gelu_exact": lambda h: jax.nn.gelu(h, approximate=False),
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
}
GIVES_ONE = {
    "linear": 1.0,
    "gelu": 1.1446303090227823,
    "gelu_exact": 1.1444507183528788,
    "relu": 1.0,
    "tanh": 20.0,  # saturated: 1 to rounding, with slope 0
}
"""For each activation a number c with activation(c) = 1: what keeps a unit constant."""
