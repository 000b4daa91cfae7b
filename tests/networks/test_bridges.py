"""Networks built by other libraries are the same functions here."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

import deeplin as dl
from deeplin.networks.torch import from_arrays, from_torch


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
        self.weight, self.bias = Tensor(weight), None if bias is None else Tensor(bias)

    def __call__(self, x):
        return x @ self.weight.values.T + (0 if self.bias is None else self.bias.values)


class ReLU:
    def __call__(self, x):
        return np.maximum(x, 0)


class GELU:
    def __init__(self, approximate="none"):
        self.approximate = approximate

    def __call__(self, x):
        if self.approximate == "none":
            return 0.5 * x * (1 + erf(x / np.sqrt(2)))
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


class Tanh:
    def __call__(self, x):
        return np.tanh(x)


class Identity:
    def __call__(self, x):
        return x


class Dropout:
    def __init__(self, training=True):
        self.training = training


class LayerNorm:
    pass


class Conv2d:
    pass


class Sequential:
    def __init__(self, *layers):
        self.layers = layers

    def __iter__(self):
        return iter(self.layers)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("between", [Identity, ReLU, lambda: GELU("tanh"), GELU, Tanh, None])
@pytest.mark.parametrize("biased", [(1, 1, 1), (0, 1, 0), (0, 0, 0)])
def test_a_sequential_is_the_same_function_of_the_same_parameters(rng, between, biased):
    shapes = [(4, 3), (6, 4), (2, 6)]
    pairs = zip(shapes, biased, strict=True)
    biases = [rng.normal(size=shape[0]) if here else None for shape, here in pairs]
    first, second, third = (
        Linear(rng.normal(size=s), b) for s, b in zip(shapes, biases, strict=True)
    )
    middle = [] if between is None else [between()]
    module = Sequential(Sequential(first, *middle), second, *middle, third)
    inputs = rng.normal(size=(7, 3))
    network = from_torch(module)
    assert network.widths == (3, 4, 6, 2)
    np.testing.assert_allclose(network(inputs), module(inputs), rtol=1e-12, atol=1e-13)
    given = [*(m.weight for m in (first, second, third)), *(m.bias for m in (first, second, third))]
    given = [array.values for array in given if array is not None]
    for found, expected in zip(network.parameters, given, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("activation", ["tanh", "gelu_exact"])
def test_descent_of_other_activations_is_that_of_autodiff(rng, activation):
    problem = dl.Problem.from_data(rng.normal(size=(9, 3)), rng.normal(size=9))
    start = dl.Network([rng.normal(size=(4, 3)), rng.normal(size=(1, 4))], activation=activation)
    run = dl.gradient_descent(problem, start, 0.01, 20)
    weights = start.weights

    @jax.jit
    @jax.grad
    def gradient(w):
        outputs = dl.Network(w, activation=activation)(problem.inputs)
        return jnp.mean((outputs - problem.target_columns) ** 2)

    for _ in range(20):
        slopes = gradient(weights)
        weights = [w - 0.01 * slope for w, slope in zip(weights, slopes, strict=True)]
    for found, expected in zip(run.network.weights, weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_parameters_of_equinox_are_read_as_they_are(rng):
    model = eqx.nn.MLP(3, 2, 5, depth=2, activation=jnp.tanh, key=jax.random.key(0))
    weights = [layer.weight for layer in model.layers]
    biases = [layer.bias for layer in model.layers]
    network = from_arrays(weights, biases=biases, activation="tanh")
    inputs = rng.normal(size=(7, 3)).astype(weights[0].dtype)
    np.testing.assert_allclose(network(inputs), jax.vmap(model)(inputs), rtol=1e-6, atol=1e-6)


@pytest.fixture
def torch():
    """The library itself, where it is installed; it is too large for the development tools."""
    return pytest.importorskip("torch")


def torch_layer(torch, inputs, outputs, **options):
    return torch.nn.Linear(inputs, outputs, bias=False, **{"dtype": torch.float64, **options})


@pytest.mark.parametrize("activation", ["linear", "relu", "gelu", "gelu_exact", "tanh"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_sequential_of_pytorch_is_the_same_function(torch, rng, activation, precision):
    shared = {
        "linear": torch.nn.Identity(),
        "relu": torch.nn.ReLU(inplace=True),
        "gelu": torch.nn.GELU(approximate="tanh"),
        "gelu_exact": torch.nn.GELU(),
        "tanh": torch.nn.Tanh(),
    }[activation]
    kind = {"dtype": getattr(torch, precision)}
    first, middle, last = (torch_layer(torch, a, b, **kind) for a, b in ((3, 6), (6, 6), (6, 2)))
    # One activation object between all layers, and a layer applied twice: both are common.
    inner = torch.nn.Sequential(middle, shared, middle)
    module = torch.nn.Sequential(first, shared, inner, shared, last)
    inputs = rng.normal(size=(7, 3)).astype(precision)
    network = from_torch(module)
    assert (network.widths, network.activation) == ((3, 6, 6, 6, 2), activation)
    assert network.weights[0].dtype == precision
    expected = module(torch.from_numpy(inputs)).detach().numpy()
    rounding = 64 * np.finfo(precision).eps
    np.testing.assert_allclose(network(jnp.asarray(inputs)), expected, atol=rounding)


def test_sharpness_of_a_pytorch_network_is_its_largest_hessian_eigenvalue(torch, rng):
    inputs, targets = rng.normal(size=(9, 3)), rng.normal(size=9)
    module = torch.nn.Sequential(torch_layer(torch, 3, 4), torch_layer(torch, 4, 1))
    X, y = torch.from_numpy(inputs), torch.from_numpy(targets)

    def risk(first, second):
        return torch.mean((X @ first.T @ second.T - y[:, None]) ** 2)

    blocks = torch.autograd.functional.hessian(risk, tuple(module.parameters()))
    sizes = [weight.numel() for weight in module.parameters()]
    rows = [[blocks[i][j].reshape(sizes[i], sizes[j]) for j in range(2)] for i in range(2)]
    largest = np.linalg.eigvalsh(np.block([[b.numpy() for b in row] for row in rows]))[-1]
    found = dl.sharpness(dl.Problem.from_data(inputs, targets), from_torch(module))
    np.testing.assert_allclose(found.value, largest, rtol=1e-8)


def test_biases_and_evaluation_of_pytorch_are_the_same_function(torch, rng):
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Dropout(), torch.nn.Linear(4, 1)
    ).double()
    with pytest.raises(dl.InputError, match=r"Call module.eval\(\)"):
        from_torch(module)
    network = from_torch(module.eval())
    inputs = rng.normal(size=(7, 3))
    expected = module(torch.from_numpy(inputs)).detach().numpy()
    np.testing.assert_allclose(network(inputs), expected, atol=1e-14)


def test_a_loss_of_pytorch_gets_a_true_sentence(torch, rng):
    X, y = torch.from_numpy(rng.normal(size=(9, 3))), torch.ones(9, dtype=torch.float64)
    module = torch_layer(torch, 3, 1)
    for loss, parameters in (
        (lambda w: torch.mean((X @ w - y) ** 2), np.ones(3)),
        (lambda w: torch.nn.functional.mse_loss(w, y), np.ones(9)),
        (lambda weights: torch.mean((X @ weights[0].T) ** 2), list(module.parameters())),
    ):
        with pytest.raises(dl.InputError, match="of PyTorch, through which JAX cannot"):
            dl.sharpness(loss, parameters)
        with pytest.raises(dl.InputError, match="of PyTorch, through which JAX cannot"):
            dl.gradient_descent(loss, parameters, 0.1, 5)
    with pytest.raises(dl.InputError, match="of PyTorch, through which JAX cannot"):
        dl.gradient_descent(lambda model: torch.mean((model(X)[:, 0] - y) ** 2), module, 0.1, 5)
    with pytest.raises(dl.InputError, match="from_torch"):
        dl.sharpness(dl.Problem.from_data(np.ones((4, 3)), np.ones(4)), module)


def test_half_precision_of_pytorch_is_kept_exactly(torch):
    for kind in (torch.bfloat16, torch.float16):
        module = torch_layer(torch, 3, 2, dtype=kind)
        (weight,) = from_torch(module).weights
        assert weight.dtype == np.float64
        np.testing.assert_array_equal(weight, module.weight.detach().double().numpy())


def test_what_pytorch_cannot_hand_over_is_refused(torch):
    with pytest.raises(dl.InputError, match="no data"):
        from_torch(torch_layer(torch, 3, 2, device="meta"))
    with pytest.raises(dl.InputError, match="dense"):
        from_arrays([torch.eye(3).to_sparse()])
    normed = torch.nn.utils.parametrizations.weight_norm(torch_layer(torch, 3, 2))
    with pytest.raises(dl.InputError, match="ParametrizedLinear is not supported as a layer"):
        from_torch(normed)


def test_training_on_in_pytorch_does_not_change_the_network(torch):
    module = torch_layer(torch, 3, 2)
    network = from_torch(module)
    before = np.array(network.weights[0])
    with torch.no_grad():
        module.weight.mul_(3)
    np.testing.assert_array_equal(network.weights[0], before)


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
        (Sequential(Linear(np.ones((2, 2)), bias=[1.0])), r"bias of layer 1 has shape \(1,\)"),
        (Sequential(Linear(np.ones((2, 2)), bias=[np.nan, 1.0])), "bias of layer 1 holds 1 NaN"),
        (Sequential(Linear(np.ones((2, 2))), Dropout(), Linear(np.ones((1, 2)))), "eval"),
        (Sequential(Linear(np.ones((2, 2))), GELU("x"), Linear(np.ones((1, 2)))), "neither"),
        (
            Sequential(LayerNorm(), Linear(np.ones((2, 2)))),
            "LayerNorm is not supported as a layer.*divides",
        ),
        (Sequential(Conv2d(), Linear(np.ones((2, 2)))), "deeplin.TorchLoss"),
        (Sequential(Linear(np.ones((2, 2))), ReLU()), "last layer"),
        (Sequential(ReLU(), Linear(np.ones((2, 2)))), "follow"),
        (Sequential(Linear(np.ones((2, 2))), ReLU(), ReLU(), Linear(np.ones((2, 2)))), "follow"),
        (
            Sequential(*[Linear(np.ones((2, 2))), ReLU()] * 2, *[Linear(np.ones((2, 2)))] * 2),
            "differ",
        ),
        (Sequential(), "no layers"),
        (Dropout(), "Dropout is not supported as a layer"),
        (Sequential(Linear(np.ones((2, 2), complex))), "complex"),
        (Sequential(Linear(np.full((2, 2), np.nan))), "NaN"),
        (Sequential(Linear(np.ones((2, 2))), Linear(np.ones((1, 3)))), "chain"),
    ],
)
def test_what_is_no_network_is_refused(module, sentence):
    with pytest.raises(dl.InputError, match=sentence):
        from_torch(module)


def test_biases_must_fit_the_layers():
    with pytest.raises(dl.InputError, match="biases is a list of 1, for 2 layers"):
        from_arrays([np.ones((2, 2)), np.ones((1, 2))], biases=[None])
    with pytest.raises(dl.InputError, match="activation is 'elu'; pass one of linear"):
        from_arrays([np.ones((2, 2))], biases=[np.ones(2)], activation="elu")


def test_torch_is_not_imported():
    code = "import sys, deeplin.networks.torch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
