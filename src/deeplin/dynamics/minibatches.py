"""What stochastic descent draws at a step: B of the n rows, or a key for a loss that takes one."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt32

from deeplin.errors import InputError, shown, whole_number
from deeplin.problems import Problem


class Draws(NamedTuple):
    """Random numbers of a batch of runs; those of a run depend on its key and the step only."""

    keys: UInt32[np.ndarray, "runs 2"]
    samples: int = 0
    size: int | None = None
    """B; None where the loss takes the key of the step."""

    @classmethod
    def of_loss(cls, key: Any, runs: int | None) -> Draws:
        """Return the keys of the steps for a user-defined `loss(parameters, key)`."""
        if key is None:
            raise InputError(
                "the loss takes (parameters, key); pass key=jax.random.key(seed), from which every "
                "step gets its own."
            )
        return cls(keys_of_runs(key, runs))


def minibatches_of(problem: Any, size: Any, key: Any, runs: int | None) -> Draws | None:
    """Return the requested mini-batches, or None; `runs` is None for a single network."""
    if size is None:
        return None
    size = whole_number("batch_size", size)
    if not isinstance(problem, Problem):
        raise InputError(
            "mini-batches are rows of a Problem; with a loss of your own leave batch_size out."
        )
    problem.require_data("descent on mini-batches")
    if size > problem.samples:
        raise InputError(
            f"batch_size is {size} and there are {problem.samples} samples; pass at most that."
        )
    if key is None:
        raise InputError("mini-batches are random; pass key=jax.random.key(seed).")
    return Draws(keys_of_runs(key, runs), problem.samples, size)


def key_of_step(words: UInt32[Array, 2], step: Int[Array, ""]) -> Array:
    """Return the key of a step, from the two words of a run's key."""
    return jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), step)


def draw_rows(
    key: UInt32[Array, 2], step: Int[Array, ""], samples: int, size: int
) -> Int[Array, " size"]:
    """Draw different rows for one run and step; every set of rows is equally likely.

    By Floyd's algorithm (Bentley and Floyd, 1987): entry r is uniform among the first n − B + r + 1
    rows, or the last of these if the batch has that row already. It draws B random numbers, where a
    permutation would draw and sort n.
    """
    own = key_of_step(key, step)
    last = jnp.arange(samples - size, samples, dtype=jnp.int32)
    # `randint` takes twice as long, for a uniformity beyond the 52 digits of `uniform`.
    drawn = jnp.floor(jax.random.uniform(own, (size,)) * (last + 1)).astype(jnp.int32)

    def add(rows: Array, entry: tuple[Array, Array, Array]) -> tuple[Array, None]:
        place, row, otherwise = entry
        row = jnp.where(jnp.any(rows == row), otherwise, row)
        return rows.at[place].set(row), None

    entries = (jnp.arange(size), drawn, last)
    return jax.lax.scan(add, jnp.full(size, -1, jnp.int32), entries)[0]


def key_words(key: Any) -> np.ndarray:
    """Return the words of a key, (words,), or of a batch of keys, (runs, words)."""
    try:
        keys = jnp.asarray(key)
        typed = jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
        words = np.asarray(jax.random.key_data(keys) if typed else keys)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"key is {shown(key)}; pass jax.random.key(seed).") from error
    if words.dtype != np.uint32 or words.ndim not in (1, 2):
        raise InputError(
            f"key has shape {words.shape} and type {words.dtype}; pass jax.random.key(seed), or "
            "jax.random.split(key, runs) for a batch."
        )
    return words


def keys_of_runs(key: Any, runs: int | None) -> UInt32[np.ndarray, "runs 2"]:
    """Return two words for each run, from its own key or from `fold_in(key, i)`.

    They are keys of JAX's default generator, whichever generator `key` is for: the draws of others
    would depend under `vmap` on how runs are grouped.
    """
    words = key_words(key)
    if words.ndim == 1 and runs is not None:
        each = [jax.random.fold_in(key, run) for run in range(runs)]
        words = np.stack([key_words(own) for own in each])
    words = np.atleast_2d(words)
    if len(words) != (runs or 1):
        raise InputError(
            f"key holds {len(words)} keys for {runs or 1} network(s); pass one, or one for each."
        )
    return words[:, [0, -1]]
