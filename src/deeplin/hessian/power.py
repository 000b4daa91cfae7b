"""The papers' power iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from deeplin.hessian.operators import linear_operator, over_batch


@eqx.filter_jit
def power_iteration(
    risk: Callable, data: Any, trees: PyTree, starts: Array, steps: Array
) -> tuple[Array, Array, Array]:
    """Rayleigh quotient, residual ‖Hv − θv‖ and vector after `steps` products for each tree.

    The papers' iteration, for comparison: it approaches the eigenvalue of largest *modulus*, and
    the residual says only that some eigenvalue is near.
    """

    def one(tree, start):
        multiply = linear_operator(risk, data, tree)

        def step(_, pair):
            image = pair[1]
            vector = image / jnp.maximum(jnp.linalg.norm(image), jnp.finfo(image.dtype).tiny)
            return vector, multiply(vector)

        vector, image = jax.lax.fori_loop(0, steps, step, (start, start))
        value = vector @ image
        return value, jnp.linalg.norm(image - value * vector), vector

    return over_batch(one)(trees, starts)
