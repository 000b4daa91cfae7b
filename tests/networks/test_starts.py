"""Starts by name: the same networks as the initializations they stand for."""

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.networks import initialize
from deeplin.networks.initialize import STARTS, start_by_name

KEY = jax.random.key(3)


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a.weights, b.weights, strict=True))


def test_each_name_is_the_initialization_it_stands_for(problem):
    widths = (5, 4, 4, 1)
    named = {
        name: start_by_name(name, problem, KEY, depth=3, width=4, scale=0.3) for name in STARTS
    }
    draw, own = jax.random.split(KEY)
    readout = initialize.unit_readout(own, 5)
    assert equal(named["gaussian"], initialize.gaussian(KEY, widths, 0.3))
    assert equal(named["zero_layer"], initialize.zero_layer(KEY, widths, 0.3))
    assert equal(named["identity"], initialize.identity_middle(KEY, 5, 4, 1, 3, 0.3, 1.0))
    assert equal(named["residual"], initialize.residual(draw, 5, 3, 0.3, readout))
    assert np.linalg.norm(named["residual"].readout) == pytest.approx(1, rel=1e-12)


def test_without_a_scale_gaussian_layers_are_half_the_share_of_the_solution(problem):
    """E‖W_k x‖² = m s² ‖x‖² = (½‖w*‖^{1/L})² ‖x‖²: the same factor for every layer."""
    net = start_by_name("gaussian", problem, KEY, depth=3)
    size = 0.5 * np.linalg.norm(problem.optimum) ** (1 / 3) / np.sqrt(5)
    assert equal(net, initialize.gaussian(KEY, (5, 5, 5, 1), size))


def test_a_batch_of_keys_gives_a_batch(problem):
    keys, scales = jax.random.split(KEY, 3), np.array([0.1, 0.2, 0.3])
    for name in ("gaussian", "residual"):
        readout = np.eye(5)[0]
        nets = start_by_name(name, problem, keys, depth=2, scale=scales, readout=readout)
        assert nets.batch == 3


def test_unknown_names_and_activations_are_named(problem):
    with pytest.raises(dl.InputError, match="gaussian, zero_layer, residual, identity"):
        start_by_name("balanced", problem, KEY, depth=2)
    with pytest.raises(dl.InputError, match="initialization='gaussian'"):
        start_by_name("zero_layer", problem, KEY, depth=2, activation="gelu")
