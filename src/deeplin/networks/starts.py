"""Starting networks by name, with one set of defaults for the whole library."""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike

from deeplin.checks import InputError, whole_number
from deeplin.networks import initialize
from deeplin.networks.network import Network
from deeplin.problems import Problem

STARTS = ("gaussian", "zero_layer", "residual", "identity")
SCALES = {"residual": 0.25, "identity": 0.01}
"""Scales that do not depend on the problem; the others follow the size of the solution."""


def start_by_name(
    name: str,
    problem: Problem,
    key: Array,
    *,
    depth: int,
    width: int | None = None,
    scale: ArrayLike | None = None,
    readout: ArrayLike | None = None,
    activation: str = "linear",
) -> Network:
    """The start `name` for this problem; a batch of keys (and of scales) gives a batch.

    - `gaussian`: entries N(0, scale²), by default half of ‖W*‖^{1/L}/√width;
    - `zero_layer`: the same with a first layer of zeros (meets FM-A1);
    - `residual`: identity plus noise of this scale (default 0.25) and a read-out of norm one,
      random unless it is given;
    - `identity`: BO-D2.3 with α = scale (default 0.01) and β = 1.

    ```python
    import deeplin as dl, jax, numpy as np
    from deeplin.networks.starts import start_by_name
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    assert start_by_name("gaussian", problem, jax.random.key(0), depth=3).widths == (5, 5, 5, 1)
    ```
    """
    d, q, L = problem.dimension, problem.outputs, whole_number("depth", depth)
    m = whole_number("width", default_width(problem) if width is None else width)
    if name not in STARTS:
        raise InputError(f"initialization is {name!r}; pass one of {', '.join(STARTS)}.")
    if scale is None and name not in SCALES:
        problem.require_signal("a scale that fits the solution")
        scale = 0.5 * problem.optimum_norm ** (1 / L) / np.sqrt(m)
    scale = SCALES[name] if scale is None else scale
    widths = (d, *[m] * (L - 1), q)
    if name == "gaussian":
        return initialize.gaussian(key, widths, scale, activation=activation)
    if activation != "linear":
        raise InputError(f"activation is {activation!r}; pass initialization='gaussian' for it.")
    if name == "zero_layer":
        return initialize.zero_layer(key, widths, scale)
    if name == "identity":
        return initialize.identity_middle(key, d, m, q, L, alpha=scale, beta=1.0)
    problem.require_single_target("the residual network")
    if readout is None:
        key, own = jax.random.split(key)
        readout = initialize.unit_readout(own, d)
    return initialize.residual(key, d, L, scale, readout)


def default_width(problem: Problem) -> int:
    """At most 32 hidden units, and never fewer than the solution may need."""
    return max(min(problem.dimension, 32), min(problem.dimension, problem.outputs))
