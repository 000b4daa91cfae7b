"""Mini-batches drawn without replacement, each from its network's seed and its step alone.

The rows of step t are the first B of a random permutation of n: a partial Fisher–Yates shuffle
whose r-th swap is with r + ⌊(n − r)·u⌋, u the first 53 bits of a hash of (seed, t, r). So batches
do not depend on how networks are grouped, on the backend, or on where a run was resumed.
"""

from __future__ import annotations

import numba
import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11))


@numba.njit(nogil=True, cache=True)
def mix(word):
    """The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection that scatters its bits."""
    word = (word ^ (word >> _SHIFTS[0])) * _FIRST
    word = (word ^ (word >> _SHIFTS[1])) * _SECOND
    return word ^ (word >> _SHIFTS[2])


@numba.njit(nogil=True, cache=True)
def draw(seed, step, order, swaps, rows):
    """Write the rows of one batch to `rows`; `order` is 0 … n−1 before and after."""
    word = mix(seed ^ mix(np.uint64(step) + _GOLDEN))
    n, size = len(order), len(rows)
    for r in range(size):
        word += _GOLDEN
        uniform = np.float64(mix(word) >> _SHIFTS[3]) * 2.0**-53
        other = r + np.int64((n - r) * uniform)
        swaps[r] = other
        order[r], order[other] = order[other], order[r]
        rows[r] = order[r]
    for r in range(size - 1, -1, -1):
        other = swaps[r]
        order[r], order[other] = order[other], order[r]


@numba.njit(nogil=True, cache=True)
def draw_all(seeds, samples, first, rows):
    """The rows of steps first, first + 1, … for every seed: `rows` is (seeds, steps, B)."""
    order = np.arange(samples)
    swaps = np.empty(rows.shape[2], np.int64)
    for network in range(rows.shape[0]):
        for t in range(rows.shape[1]):
            draw(seeds[network], first + t, order, swaps, rows[network, t])
