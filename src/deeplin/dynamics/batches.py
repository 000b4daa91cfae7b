"""Mini-batches of stochastic descent: which rows each run sees at each step (X-10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, UInt64

from deeplin.errors import InputError, shown, whole_number
from deeplin.problems import Problem

MOST_ROWS = 2**21
"""Numbers of rows drawn ahead for a batch of runs, before the next piece of training."""


@dataclass(frozen=True, eq=False)
class Batches:
    """B of the n rows at every step, without replacement, independent from step to step.

    The rows of a run depend on its key and the step only.
    """

    seeds: UInt64[np.ndarray, " batch"]
    samples: int
    size: int
    steps: int | None = None
    """Steps of the descent, beyond which nothing is drawn; None where that is not known."""

    @classmethod
    def of(
        cls, problem: Any, size: Any, key: Any, runs: int | None, steps: int | None = None
    ) -> Batches | None:
        """The batches a caller asks for, or None; `runs` is None for a single network."""
        if size is None:
            if key is not None:
                raise InputError("key draws mini-batches; pass batch_size with it, or no key.")
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
        return cls(seeds_of(key, runs), problem.samples, size, steps)

    @property
    def ahead(self) -> int:
        """Steps drawn at a time."""
        most = np.clip(MOST_ROWS // (len(self.seeds) * self.size), 1, 4096)
        return int(most if self.steps is None else min(most, max(1, self.steps)))

    def rows(self, first: int, count: int) -> Int[np.ndarray, "batch steps size"]:
        """Return the rows of `count` steps from `first` on."""
        return draw(self.seeds, np.arange(first, first + count), self.samples, self.size)


def draw(
    seeds: UInt64[np.ndarray, " batch"], steps: Int[np.ndarray, " steps"], samples: int, size: int
) -> Int[np.ndarray, "batch steps size"]:
    """Return the first `size` entries of a random permutation of the rows, for each seed and step.

    A partial Fisher-Yates shuffle whose r-th swap is with r + ⌊(n − r)u⌋, where u are the first 53
    bits of a hash of (seed, step, r). So batches depend neither on how runs are grouped nor on
    where a run was resumed. In NumPy, because the hash needs 64-bit integers.
    """
    words = _mix(seeds[:, None] ^ _mix(steps.astype(np.uint64) + _GOLDEN))
    swaps = np.empty((size, *words.shape), np.int32)
    for r in range(size):
        words = words + _GOLDEN
        uniform = (_mix(words) >> np.uint64(11)) * 2.0**-53
        swaps[r] = r + ((samples - r) * uniform).astype(np.int64)
    rows = (_shuffled if samples <= 64 * size else _traced)(swaps.reshape(size, -1), samples)
    return np.ascontiguousarray(np.moveaxis(rows.reshape(swaps.shape), 0, -1))


def _shuffled(swaps: Int[np.ndarray, "size batches"], samples: int) -> np.ndarray:
    """Make the swaps in a permutation of all rows for each batch, some batches at a time."""
    rows, block = np.empty_like(swaps), max(1, MOST_ROWS // samples)
    for begin in range(0, swaps.shape[1], block):
        part = swaps[:, begin : begin + block]
        order = np.tile(np.arange(samples, dtype=np.int32)[:, None], part.shape[1])
        each = np.arange(part.shape[1])
        for r, other in enumerate(part):
            chosen = order[other, each]
            order[other, each] = order[r]
            rows[r, begin : begin + block] = chosen
    return rows


def _traced(swaps: Int[np.ndarray, "size batches"], _samples: int) -> np.ndarray:
    """The same for few of many rows, following only the entries that are swapped."""
    rows, moved = swaps.copy(), np.empty_like(swaps)
    for r in range(len(swaps)):
        moved[r] = r  # what stands at place r before swap r
        for s in range(r):
            np.copyto(moved[r], moved[s], where=swaps[s] == r)
            np.copyto(rows[r], moved[s], where=swaps[s] == swaps[r])
    return rows


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(words: UInt64[np.ndarray, " ..."]) -> UInt64[np.ndarray, " ..."]:
    """Scatter the bits of each word: the finalizer of SplitMix64 (Steele, Lea, Flood 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def seeds_of(key: Any, runs: int | None) -> np.ndarray:
    """One seed for each run (None: a single one): from its own key, or from `fold_in(key, i)`."""
    words = key_words(key)
    if words.ndim == 1 and runs is not None:
        each = [jax.random.fold_in(key, run) for run in range(runs)]
        words = np.stack([key_words(own) for own in each])
    words = np.atleast_2d(words)
    if len(words) != (runs or 1):
        raise InputError(
            f"key holds {len(words)} keys for {runs or 1} network(s); pass one, or one for each."
        )
    return (words[:, 0].astype(np.uint64) << np.uint64(32)) | words[:, -1].astype(np.uint64)


def key_words(key: Any) -> np.ndarray:
    """The words of a key (words,), or of a batch of keys (runs, words)."""
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
