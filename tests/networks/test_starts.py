"""Starts by name: the same networks as the initializations they stand for."""

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.networks import initialize
from deeplin.networks.initialize import FRAMEWORK_STARTS, STARTS, start_by_name

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
        nets = start_by_name(name, problem, keys, depth=2, scale=scales)
        assert nets.batch == 3
        alone = start_by_name(name, problem, keys[1], depth=2, scale=scales[1])
        jax.tree.map(np.testing.assert_array_equal, nets[1], alone)


def test_unknown_names_and_activations_are_named(problem):
    with pytest.raises(dl.InputError, match="gaussian, zero_layer, residual, identity"):
        start_by_name("balanced", problem, KEY, depth=2)
    with pytest.raises(dl.InputError, match="initialization='gaussian'"):
        start_by_name("zero_layer", problem, KEY, depth=2, activation="gelu")


@pytest.mark.parametrize("kind", FRAMEWORK_STARTS)
def test_starts_of_pytorch_have_the_biases_of_its_linear_layers(kind):
    """U(±1/√fan_in), whatever draws the weights: variance 1/(3 fan_in)."""
    net = initialize.pytorch(KEY, (100, 400, 50), kind)
    first, last = map(np.asarray, net.biases)
    assert np.abs(first).max() <= 0.1
    assert np.abs(last).max() <= 0.05
    assert first.var() == pytest.approx(1 / 300, rel=0.15)
    assert last.var() == pytest.approx(1 / 1200, rel=0.4)
    assert initialize.pytorch(KEY, (100, 400, 50), kind, biases=False).biases is None


def test_a_batch_of_starts_of_pytorch_is_that_of_its_keys():
    keys = jax.random.split(KEY, 3)
    nets = initialize.pytorch(keys, (5, 4, 1), "he", dtype="float32")
    assert nets.weights[0].dtype == nets.biases[0].dtype == np.float32
    for net, key in zip(nets, keys, strict=True):
        alone = initialize.pytorch(key, (5, 4, 1), "he", dtype="float32")
        for ours, theirs in zip(net.parameters, alone.parameters, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.extended
def test_the_default_start_is_that_of_pytorch():
    """The bounds and the variance of 400 layers of `torch.nn.Linear`."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs = [torch.nn.Linear(9, 4) for _ in range(400)]
    ours = initialize.pytorch(jax.random.split(KEY, 400), (9, 4))
    for mine, name in ((ours.weights[0], "weight"), (ours.biases[0], "bias")):
        drawn = np.stack([getattr(layer, name).detach().numpy() for layer in theirs])
        assert np.asarray(mine).std() == pytest.approx(drawn.std(), rel=0.05)
        assert np.abs(mine).max() == pytest.approx(np.abs(drawn).max(), rel=0.02)
