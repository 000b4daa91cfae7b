"""A step that overflows: the gap then comes out as NaN or as either infinity."""

import jax
import numpy as np
import pytest

import deeplin as dl


@pytest.mark.parametrize("backend", ["kernel", "jax"])
@pytest.mark.parametrize("goal", [{}, {"gap": 1e-3}, {"loss_target": 1e-3}])
def test_overflow_is_divergence_whatever_sign_it_comes_out_with(problem, backend, goal):
    # a fused multiply-add turns ∞ − ∞ into −∞ where the first term is negative
    keys = jax.random.split(jax.random.key(0), 64)
    nets = dl.initialize.gaussian(keys, widths=(5, 5, 1), scale=1.0)
    run = dl.gradient_descent(problem, nets, 1e100, 5, backend=backend, **goal)
    assert set(run.status) == {"diverged"}
    assert all(np.isfinite(weight).all() for weight in run.network.weights)
    np.testing.assert_array_equal(run.network.weights[0], nets.weights[0])
