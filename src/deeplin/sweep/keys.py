"""Random keys that depend on what a run is, not on where or with whom it is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from deeplin.checks import seed_number
from deeplin.sweep.config import digest


def run_key(seed: int, **coordinates: Any) -> Array:
    """The JAX key of one run: a hash of the seed and the run's own coordinates.

    Two runs with different coordinates have independent keys, and a run keeps its key however
    runs are grouped into units and whichever worker computes it.

    ```python
    import deeplin as dl
    key = dl.sweep.run_key(0, scale=0.35, repetition=3)
    ```
    """
    return run_keys(seed, [coordinates])[0]


def run_keys(seed: int, runs: Iterable[Mapping[str, Any]]) -> Array:
    """The keys of many runs, each given by its coordinates: an array for `jax.vmap`."""
    words = [coordinate_words(seed, **coordinates) for coordinates in runs]
    data = jnp.asarray(np.asarray(words, dtype=np.uint32).reshape(-1, 2))
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def coordinate_words(seed: int, **coordinates: Any) -> tuple[int, int]:
    """The 64 bits behind `run_key` as two words, for generators other than JAX's.

    ```python
    import deeplin as dl, numpy as np
    rng = np.random.default_rng(dl.sweep.coordinate_words(0, repetition=3))
    ```
    """
    identity = {"seed": seed_number(seed), "coordinates": coordinates}
    number = int.from_bytes(digest(identity, size=8), "big")
    return number >> 32, number & 0xFFFFFFFF
