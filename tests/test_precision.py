"""Importing the library turns on float64, unless the environment says otherwise."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl


@pytest.mark.parametrize(
    ("setting", "imports", "digits"),
    [(None, "deeplin, jax", 64), (None, "jax, deeplin", 64), ("0", "deeplin, jax", 32)],
)
def test_import_turns_on_float64_and_respects_the_environment(setting, imports, digits):
    environment = {name: value for name, value in os.environ.items() if name != "JAX_ENABLE_X64"}
    environment |= {} if setting is None else {"JAX_ENABLE_X64": setting}
    code = f"import {imports}; print(jax.numpy.ones(1).dtype)"
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == f"float{digits}"


STARTS = {
    "gaussian": lambda **own: dl.initialize.gaussian(jax.random.key(0), (3, 4, 1), 0.5, **own),
    "zero_layer": lambda **own: dl.initialize.zero_layer(jax.random.key(0), (3, 4, 1), 0.5, **own),
    "residual": lambda **own: dl.initialize.residual(
        jax.random.key(0), 3, 2, 0.5, np.ones(3), **own
    ),
    "rank_one": lambda **own: dl.initialize.rank_one(np.ones(3), 2, **own),
    "identity_middle": lambda **own: dl.initialize.identity_middle(
        jax.random.key(0), 3, 4, 1, 3, 0.1, 1.0, **own
    ),
    "pytorch": lambda **own: dl.initialize.pytorch(jax.random.key(0), (3, 4, 1), **own),
    "modified_identity": lambda **own: dl.initialize.modified_identity(3, 1, 3, **own),
    "unit_readout": lambda **own: dl.initialize.unit_readout(jax.random.key(0), 3, **own),
}


@pytest.mark.parametrize("start", STARTS)
def test_a_float32_start_is_the_float64_start_rounded(start):
    exact, single = STARTS[start](), STARTS[start](dtype="float32")
    for leaf, rounded in zip(jax.tree.leaves(exact), jax.tree.leaves(single), strict=True):
        assert leaf.dtype == jnp.float64
        assert rounded.dtype == jnp.float32
        assert np.array_equal(rounded, np.asarray(leaf).astype(np.float32))


@pytest.mark.parametrize("dtype", ["float16", "double precision", int])
def test_other_precisions_are_refused(dtype):
    with pytest.raises(dl.InputError, match=r"dtype is .*; pass 'float64' or 'float32'"):
        dl.initialize.gaussian(jax.random.key(0), (3, 1), 0.5, dtype=dtype)
