"""Networks built by other libraries are the same functions here."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin.networks.bridges import from_arrays, from_torch


class Tensor:
    """What a PyTorch parameter offers: NumPy values only after `detach` and `cpu`."""

    def __init__(self, values, *, on_cpu=False, tracked=True):
        self.values, self.on_cpu, self.tracked = np.asarray(values), on_cpu, tracked

    def detach(self):
        return Tensor(self.values, on_cpu=self.on_cpu, tracked=False)

    def cpu(self):
        return Tensor(self.values, on_cpu=True, tracked=self.tracked)

    def __array__(self, dtype=None, copy=None):
        if self.tracked or not self.on_cpu:
            raise RuntimeError("Can't call numpy() on a tensor that requires grad or is elsewhere.")
        return np.asarray(self.values, dtype=dtype)


class Linear:
    def __init__(self, weight, bias=None):
        self.weight, self.bias = Tensor(weight), bias

    def __call__(self, x):
        return x @ self.weight.values.T


class ReLU:
    def __call__(self, x):
        return np.maximum(x, 0)


class GELU:
    def __init__(self, approximate="none"):
        self.approximate = approximate

    def __call__(self, x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


class Identity:
    def __call__(self, x):
        return x


class Dropout:
    pass


class Sequential:
    def __init__(self, *layers):
        self.layers = layers

    def children(self):
        return iter(self.layers)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("between", [Identity, ReLU, lambda: GELU("tanh"), None])
def test_a_sequential_is_the_same_function(rng, between):
    shapes = [(4, 3), (6, 4), (2, 6)]
    layers = []
    for shape in shapes:
        layers += [Linear(rng.normal(size=shape))] + ([] if between is None else [between()])
    layers = layers if between is None else layers[:-1]
    module = Sequential(Sequential(*layers[:2]), *layers[2:])
    inputs = rng.normal(size=(7, 3))
    network = from_torch(module)
    assert network.widths == (3, 4, 6, 2)
    np.testing.assert_allclose(network(jnp.asarray(inputs)), module(inputs), rtol=1e-12, atol=1e-14)


def test_a_read_out_and_the_precision_are_kept(rng):
    module = Sequential(Linear(rng.normal(size=(3, 3)).astype(np.float32)))
    network = from_torch(module, readout=Tensor(np.ones(3, np.float32)))
    assert network.outputs == 1
    assert network.weights[0].dtype == np.float32


def test_arrays_of_either_orientation_give_one_network(rng):
    weights = [rng.normal(size=(4, 3)), rng.normal(size=(1, 4))]
    network = from_arrays(weights)
    turned = from_arrays([Tensor(weights[0].T), weights[1].T.tolist()], inputs_first=True)
    np.testing.assert_array_equal(network.product, turned.product)
    np.testing.assert_allclose(network.product, (weights[1] @ weights[0])[0])
    assert from_arrays([[[1, 2]]]).weights[0].dtype == np.float64


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (Sequential(Linear(np.ones((2, 2)), bias=Tensor([1.0]))), "bias"),
        (Sequential(Linear(np.ones((2, 2))), Dropout(), Linear(np.ones((1, 2)))), "Dropout"),
        (Sequential(Linear(np.ones((2, 2))), GELU(), Linear(np.ones((1, 2)))), "tanh"),
        (Sequential(Linear(np.ones((2, 2))), ReLU()), "last layer"),
        (Sequential(ReLU(), Linear(np.ones((2, 2)))), "follow"),
        (Sequential(Linear(np.ones((2, 2))), ReLU(), ReLU(), Linear(np.ones((2, 2)))), "follow"),
        (
            Sequential(*[Linear(np.ones((2, 2))), ReLU()] * 2, *[Linear(np.ones((2, 2)))] * 2),
            "differ",
        ),
        (Sequential(), "no layers"),
        (Sequential(Linear(np.full((2, 2), np.nan))), "NaN"),
        (Sequential(Linear(np.ones((2, 2))), Linear(np.ones((1, 3)))), "chain"),
    ],
)
def test_what_is_no_bias_free_network_is_refused(module, sentence):
    with pytest.raises(dl.InputError, match=sentence):
        from_torch(module)


def test_torch_is_not_imported():
    code = "import sys, deeplin.networks.bridges; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
