"""The Hessian of any PyTorch module, against dense ones from `torch.func`."""

import copy
import subprocess
import sys

import numpy as np
import pytest

import deeplin as dl

pytestmark = pytest.mark.extended
torch = pytest.importorskip("torch")
nn = torch.nn


class Block(nn.Module):
    """A transformer block with causal attention, and a read-out of the last token."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, activation="gelu", batch_first=True)
        self.readout = nn.Linear(4, 3)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return self.readout(self.layer(x, src_mask=mask, is_causal=True)[:, -1])


class Attention(nn.Module):
    """Attention by PyTorch's fused kernel, which has no second derivative of its own."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 12)
        self.readout = nn.Linear(4, 3)

    def forward(self, x):
        q, k, v = self.project(x)[:, None].chunk(3, dim=-1)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.readout(mixed[:, 0, -1])


def perceptron(activation):
    return nn.Sequential(nn.Linear(4, 6), activation, nn.Linear(6, 5), activation, nn.Linear(5, 3))


def normalized():
    module = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.GELU(), nn.Dropout(0.5), nn.Linear(6, 3)
    ).double()
    with torch.no_grad():  # statistics of their own
        module[1].running_mean.uniform_(-0.5, 0.5)
        module[1].running_var.uniform_(0.5, 2)
    return module


MODULES = {
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)
        ),
        (1, 6, 6),
    ),
    "relu": (lambda: perceptron(nn.ReLU()), (4,)),
    "gelu": (lambda: perceptron(nn.GELU()), (4,)),
    "batch norm": (normalized, (4,)),
    "transformer": (Block, (5, 4)),
    "attention": (Attention, (5, 4)),
}


def drawn(name, dtype=torch.float64):
    """A module with inputs and labels for it, the same every time."""
    build, shape = MODULES[name]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = build().to(dtype)
        return module, torch.randn(23, *shape, dtype=dtype), torch.randint(3, (23,))


def dense(module, loss, X, y):
    """The Hessian of loss(module(X), y) in evaluation mode, by `torch.func`.

    Not for layer normalization, nor for batch normalization with the statistics of the batch: there
    it is not even symmetric (PyTorch 2.13), and finite differences are the reference.
    """
    module = copy.deepcopy(module).double().eval()
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def risk(p):
        return loss(torch.func.functional_call(module, p, (X.double(),)), y)

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        blocks = torch.func.hessian(risk)(parameters)
    sizes = {name: p.numel() for name, p in parameters.items()}
    H = np.block([[blocks[a][b].reshape(sizes[a], sizes[b]).numpy() for b in sizes] for a in sizes])
    assert np.abs(H - H.T).max() < 1e-12
    return H


def finite_differences(module, loss, X, y, step=1e-5):
    """The same to about 1e-9, from gradients on both sides of the parameters."""
    module = copy.deepcopy(module).eval()
    parameters = list(module.parameters())
    here = nn.utils.parameters_to_vector(parameters).detach()

    def gradient(vector):
        nn.utils.vector_to_parameters(vector, parameters)
        slopes = torch.autograd.grad(loss(module(X), y), parameters)
        return nn.utils.parameters_to_vector(slopes).numpy()

    moves = step * torch.eye(len(here), dtype=here.dtype)
    H = np.stack([gradient(here + v) - gradient(here - v) for v in moves]) / (2 * step)
    assert np.abs(H - H.T).max() < 1e-7
    return (H + H.T) / 2


def batches(X, y):
    """Batches of different sizes."""
    data = torch.utils.data.TensorDataset(X, y)
    return torch.utils.data.DataLoader(data, batch_size=7)


@pytest.mark.parametrize("name", MODULES)
def test_sharpness_and_spectrum_of_any_module_are_those_of_its_dense_hessian(name):
    module, X, y = drawn(name)
    cross_entropy = nn.CrossEntropyLoss()
    layer_norm = name == "transformer"
    H = (finite_differences if layer_norm else dense)(module, cross_entropy, X, y)
    inexact = 1e-7 if layer_norm else 0.0
    expected, vectors = np.linalg.eigh(H)
    loss = dl.TorchLoss(cross_entropy, batches(X, y))
    assert loss(module) == pytest.approx(cross_entropy(module.eval()(X), y).item(), rel=1e-12)
    module.train()
    for options in ({}, {"method": "lanczos"}, {"method": "dense"}, {"which": "smallest"}):
        found = dl.sharpness(loss, module, **options)
        index = 0 if "which" in options else -1
        assert found.converged
        assert found.error <= 1e-8 * abs(expected).max()
        assert abs(found.value - expected[index]) <= found.error + inexact
        assert abs(found.vector @ vectors[:, index]) == pytest.approx(1, abs=1e-5)
    h = dl.hessian_spectrum(loss, module, count=5)
    np.testing.assert_allclose(h.values, expected[:-6:-1], atol=1e-8 + inexact)
    assert np.all(abs(h.values - expected[:-6:-1]) <= h.errors + inexact)
    residual = H @ h.vectors.T - h.vectors.T * h.values
    assert np.linalg.norm(residual, axis=0).max() < 1e-5
    shaped = dl.unflatten(module, h.vectors)
    for key, parameter in module.named_parameters():
        assert shaped[key].shape == (5, *parameter.shape)
    flat = torch.cat([part.reshape(5, -1) for part in shaped.values()], dim=1)
    np.testing.assert_array_equal(flat, h.vectors)


def test_single_precision_is_certified_with_its_own_rounding():
    module, X, y = drawn("gelu", torch.float32)
    expected = np.linalg.eigvalsh(dense(module, nn.CrossEntropyLoss(), X, y))
    found = dl.sharpness(dl.TorchLoss(nn.CrossEntropyLoss(), (X, y)), module, method="lanczos")
    assert found.converged
    assert abs(found.value - expected[-1]) <= found.error < 1e-4 * expected[-1]
    wide = nn.Sequential(nn.Linear(100, 500), nn.ReLU(), nn.Linear(500, 10))  # 55 510 parameters
    rows = torch.randn(20, 100, generator=torch.Generator().manual_seed(0))
    large = dl.sharpness(dl.TorchLoss(nn.MSELoss(), (rows, rows[:, :10])), wide)
    assert large.converged


def test_trace_density_and_layers_are_those_of_the_dense_hessian():
    module, X, y = drawn("relu")
    loss = dl.TorchLoss(nn.CrossEntropyLoss(), batches(X, y))
    H = dense(module, nn.CrossEntropyLoss(), X, y)
    expected = np.linalg.eigvalsh(H)
    trace = dl.hessian_trace(loss, module, samples=60)
    variance = 2 * (np.sum(H**2) - np.sum(np.diag(H) ** 2))
    assert trace.error == pytest.approx(np.sqrt(variance / 60), rel=0.5)
    assert abs(trace.value - np.trace(H)) < 4 * trace.error
    exact = dl.hessian_trace(loss, module, samples=len(H))
    assert (exact.error, exact.products) == (0, len(H))
    assert exact.value == pytest.approx(np.trace(H), rel=1e-10)
    h = dl.hessian_spectrum(loss, module)
    assert h.trace == pytest.approx(np.trace(H), rel=1e-10)
    assert h.layers[0] == pytest.approx(np.linalg.eigvalsh(H[:24, :24])[-1], rel=1e-8)
    density = dl.spectral_density(loss, module, samples=40, steps=30)
    for power in (0, 1, 2):  # moments of the quadrature are those of each random vector
        found = np.sum(density.weights * density.points**power, axis=1)
        moments = expected**power
        spread = np.std(moments) * np.sqrt(2 / (len(H) + 2))  # of vᵀH^k v, v uniform on the sphere
        assert abs(found.mean() - moments.mean()) <= 4 * spread / np.sqrt(40) + 1e-12
    share, error = density.share_above(0.01)
    assert abs(share - np.mean(expected > 0.01)) < 4 * error
    grid = np.linspace(-3, 6, 400)
    smooth = density.at(grid, width=0.1)
    assert np.sum(smooth) * (grid[1] - grid[0]) == pytest.approx(1, abs=1e-6)


def test_how_rows_are_cut_into_batches_does_not_matter():
    module, X, y = drawn("gelu")
    whole = dl.sharpness(dl.TorchLoss(nn.CrossEntropyLoss(), (X, y)), module)
    ways = [
        batches(X, y),
        iter([(X[:20], y[:20]), (X[20:], y[20:])]),
        [((X[:5],), y[:5]), ({"input": X[5:]}, y[5:].numpy())],
    ]
    for data in ways:
        part = dl.sharpness(dl.TorchLoss(nn.CrossEntropyLoss(), data), module)
        assert part.value == pytest.approx(whole.value, rel=1e-10)
    summed = dl.TorchLoss(nn.CrossEntropyLoss(reduction="sum"), batches(X, y))
    assert dl.sharpness(summed, module).value == pytest.approx(23 * whole.value, rel=1e-10)
    own = dl.sharpness(lambda m: nn.functional.cross_entropy(m(X), y), module)
    assert own.value == pytest.approx(whole.value, rel=1e-10)


def test_the_module_and_random_numbers_are_left_as_they_were():
    module, X, y = drawn("batch norm")
    module[1].eval()  # one part in another mode
    cross_entropy = nn.CrossEntropyLoss()
    cross_entropy(module(X), y).backward()
    state = copy.deepcopy(module.state_dict())
    slopes = [p.grad.clone() for p in module.parameters()]
    modes = [child.training for child in module.modules()]
    numbers = torch.get_rng_state()
    for training in (True, False):
        if not training:
            waiting = cross_entropy(module(X), y)  # its graph must stay usable
            torch.set_rng_state(numbers)
        loss = dl.TorchLoss(cross_entropy, batches(X, y), training=training)
        with torch.no_grad():
            first = dl.sharpness(loss, module)
        assert first.converged  # dropout drops the same units in every product
        assert first.value == dl.sharpness(loss, module).value
    waiting.backward()
    for parameter, slope in zip(module.parameters(), slopes, strict=True):
        assert not torch.equal(parameter.grad, slope)  # by `waiting`, and only by it
        parameter.grad = slope
    for name, values in module.state_dict().items():
        assert torch.equal(values, state[name]), name
    assert [child.training for child in module.modules()] == modes
    assert torch.equal(torch.get_rng_state(), numbers)


def test_batch_normalization_in_training_uses_the_statistics_of_the_batch():
    module, X, y = drawn("batch norm")
    module[3] = nn.Identity()  # no dropout
    for child in module.modules():  # the same function, in evaluation mode
        if isinstance(child, nn.BatchNorm1d):
            child.track_running_stats, child.running_mean, child.running_var = False, None, None
    H = finite_differences(module, nn.CrossEntropyLoss(), X, y)
    loss = dl.TorchLoss(nn.CrossEntropyLoss(), (X, y), training=True)
    assert dl.sharpness(loss, module).value == pytest.approx(np.linalg.eigvalsh(H)[-1], abs=1e-7)


def test_frozen_and_unused_parameters_are_no_directions():
    module, X, y = drawn("relu")
    module[0].requires_grad_(False)
    module.extra = nn.Parameter(torch.ones(2, dtype=torch.float64))

    def loss(module):
        return nn.functional.cross_entropy(perceptron_part(module)(X), y)

    H = dense(perceptron_part(module), nn.CrossEntropyLoss(), X, y)
    largest = np.linalg.eigvalsh(H[30:, 30:])[-1]
    found = dl.sharpness(loss, module)
    assert found.value == pytest.approx(largest, rel=1e-8)
    assert len(found.vector) == len(H) - 30 + 2


def perceptron_part(module):
    """The layers of a `Sequential` without what was added to it."""
    return nn.Sequential(*[module[k] for k in range(5)])


def test_a_loss_that_is_linear_in_the_parameters_has_no_curvature():
    module, X, _ = drawn("relu")
    line = nn.Linear(4, 1).double()
    assert dl.sharpness(lambda m: m(X).mean(), line).value == 0
    assert dl.sharpness(lambda m: X.mean(), module).value == 0


def test_an_exploded_module_is_said_not_to_have_converged():
    module, X, y = drawn("relu")
    with torch.no_grad():
        module[0].weight[0, 0] = np.inf
    found = dl.sharpness(dl.TorchLoss(nn.CrossEntropyLoss(), (X, y)), module)
    assert np.isnan(found.value)
    assert not found.converged


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m, X, y: dl.TorchLoss("mse", (X, y)), "loss is 'mse'"),
        (lambda m, X, y: dl.TorchLoss(nn.MSELoss(), X), "pair"),
        (lambda m, X, y: dl.TorchLoss(nn.MSELoss(), 3), "data is 3"),
        (
            lambda m, X, y: dl.TorchLoss(nn.MSELoss(), torch.utils.data.TensorDataset(X, y)),
            "DataLoader",
        ),
        (lambda m, X, y: dl.sharpness(dl.TorchLoss(nn.MSELoss(), []), m), "no batches"),
        (lambda m, X, y: dl.sharpness(dl.TorchLoss(nn.MSELoss(), [X]), m), "a batch is"),
        (
            lambda m, X, y: dl.sharpness(
                dl.TorchLoss(nn.CrossEntropyLoss(reduction="none"), (X, y)), m
            ),
            r"returns a tensor \(23,\)",
        ),
        (
            lambda m, X, y: dl.sharpness(
                dl.TorchLoss(nn.CrossEntropyLoss(weight=torch.ones(3)), (X, y)), m
            ),
            "weights of classes",
        ),
        (
            lambda m, X, y: dl.sharpness(
                dl.TorchLoss(nn.CrossEntropyLoss(ignore_index=0), (X, y)), m
            ),
            "ignored targets",
        ),
        (
            lambda m, X, y: dl.sharpness(
                dl.TorchLoss(nn.CrossEntropyLoss(), (X.float(), y)), m
            ),
            "PyTorch raised RuntimeError",
        ),
        (lambda m, X, y: dl.sharpness(lambda m: 3.0, m), "returns 3.0"),
        (lambda m, X, y: dl.sharpness(dl.TorchLoss(nn.MSELoss(), (X, y)), {}), "needs a torch"),
        (
            lambda m, X, y: dl.hessian_spectrum(
                dl.TorchLoss(nn.MSELoss(), (X, y)), m.requires_grad_(False)
            ),
            "requires gradients",
        ),
        (
            lambda m, X, y: dl.sharpness(lambda m: m(X).sum(), nn.LazyLinear(3).double()),
            "no values yet",
        ),
        (
            lambda m, X, y: dl.sharpness(lambda m: m(X).sum(), m.to(torch.complex64)),
            "real numbers",
        ),
        (lambda m, X, y: dl.sharpness(lambda m: m(X).sum(), m, method="exact"), "lanczos"),
        (lambda m, X, y: dl.hessian_trace(lambda m: m(X).sum(), m, samples=1), "samples is 1"),
        (lambda m, X, y: dl.unflatten(m, np.ones(3)), "numbers in the last axis"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Lazy modules", "ignore:Complex modules")
def test_bad_input_gets_a_sentence(call, sentence):
    with pytest.raises(dl.InputError, match=sentence):
        call(*drawn("relu"))


def test_pytorch_is_not_imported_unless_it_is_used():
    code = (
        "import deeplin as dl, sys; dl.sharpness; dl.TorchLoss; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
