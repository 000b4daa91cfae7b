"""Networks with biases: outputs, training, Hessians, saved runs; X-38."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import deeplin as dl
from deeplin.networks import ACTIVATIONS, products

WIDTHS = (3, 4, 5, 1)
SHAPES = [(4, 3), (5, 4), (1, 5)]


def drawn(seed=0, biased=(1, 1, 1), activation="linear", scale=0.5, outputs=1):
    rng = np.random.default_rng(seed)
    shapes = [*SHAPES[:-1], (outputs, 5)]
    weights = [scale * rng.normal(size=shape) for shape in shapes]
    biases = [
        rng.normal(size=len(w)) if here else None for w, here in zip(weights, biased, strict=True)
    ]
    return dl.Network(weights, biases, activation=activation)


def data(seed=1, outputs=1, centered=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(9, 3)) + 0.5
    Y = X @ rng.normal(size=(3, outputs)) + 0.3 * rng.normal(size=(9, outputs)) + 1
    if centered:
        X, Y = X - X.mean(0), Y - Y.mean(0)
    return dl.Problem.from_data(X, Y[:, 0] if outputs == 1 else Y)


def written_out(network, inputs):
    activation = ACTIVATIONS[network.activation]
    hidden = jnp.asarray(inputs)
    for k, weight in enumerate(network.weights):
        hidden = (activation(hidden) if k else hidden) @ weight.T
        bias = None if network.biases is None else network.biases[k]
        hidden = hidden if bias is None else hidden + bias
    return hidden


def plain_risk(network, inputs, targets):
    return jnp.sum((written_out(network, inputs) - targets) ** 2) / len(inputs)


plain_gradient = jax.jit(jax.grad(plain_risk))


def hessian(problem, network):
    """All second derivatives in weights and biases, by nested automatic differentiation."""
    flat, unravel = jax.flatten_util.ravel_pytree(network)
    rows = problem.inputs, problem.target_columns
    return np.asarray(jax.hessian(lambda x: plain_risk(unravel(x), *rows))(flat))


@pytest.mark.parametrize("activation", ["linear", "relu"])
@pytest.mark.parametrize("biased", [(1, 1, 1), (0, 1, 0)])
def test_training_is_plain_descent_on_weights_and_biases(activation, biased):
    problem, network = data(), drawn(0, biased, activation)
    run = dl.gradient_descent(problem, network, 0.02, 30, record_every=15, record=["risk"])
    expected = network
    for _ in range(30):
        slope = plain_gradient(expected, problem.inputs, problem.target_columns)
        expected = jax.tree.map(lambda w, g: w - 0.02 * g, expected, slope)
    for ours, theirs in zip(run.network.parameters, expected.parameters, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    risk = plain_risk(expected, problem.inputs, problem.target_columns)
    assert run.records["risk"][-1] == pytest.approx(float(risk), rel=1e-9)


def test_a_linear_network_with_biases_fits_the_regression_with_intercept():
    problem = data()
    run = dl.gradient_descent(problem, drawn(), 0.02, 20_000, gap=1e-14, record_every=5000)
    assert run.status == "converged"
    rows = np.column_stack([problem.inputs, np.ones(9)])
    expected = np.linalg.lstsq(rows, problem.targets)[0]
    np.testing.assert_allclose(run.network.product, expected[:3], atol=1e-5)
    assert float(run.network.intercept) == pytest.approx(expected[3], abs=1e-5)
    residual = np.mean((problem.targets - rows @ expected) ** 2)
    assert run.evidence["risk"] == pytest.approx(residual, rel=1e-9)
    assert run.records["distance"][-1] == pytest.approx(0, abs=1e-9)


def test_the_gap_of_a_bottleneck_is_that_of_reduced_rank_regression_with_intercept():
    rng = np.random.default_rng(3)
    problem = data(outputs=2)
    net = dl.Network([rng.normal(size=(1, 3)), rng.normal(size=(2, 1))], [None, np.zeros(2)])
    run = dl.gradient_descent(problem, net, 0.05, 20_000, gap=1e-12)
    assert run.status == "converged"
    centered = dl.Problem.from_data(
        problem.inputs - problem.inputs.mean(0), problem.targets - problem.targets.mean(0)
    )
    assert run.evidence["risk"] == pytest.approx(centered.best_of_rank(1).risk, rel=1e-9)


def test_moments_with_means_train_networks_with_biases():
    problem, network = data(), drawn()
    parts = (problem.inputs[:4], problem.targets[:4]), (problem.inputs[4:], problem.targets[4:])
    known = dl.Problem.from_chunks(parts)
    runs = [dl.gradient_descent(one, network, 0.02, 30).network for one in (problem, known)]
    for ours, theirs in zip(*(net.parameters for net in runs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    moments = problem.covariance, problem.cross_moment, problem.target_moment
    with pytest.raises(dl.InputError, match="needs the means"):
        dl.gradient_descent(dl.Problem.from_moments(*moments, 9), network, 0.02, 3)


def test_weight_decay_rates_of_layers_and_optimizers_reach_biases():
    problem, network = data(), drawn()
    slope = plain_gradient(network, problem.inputs, problem.target_columns)
    rates = (0.01, 0.02, 0.03)
    run = dl.gradient_descent(problem, network, rates, 1, weight_decay=0.1)
    triples = zip(network.parameters, slope.parameters, rates * 2, strict=True)
    for moved, (w, g, rate) in zip(run.network.parameters, triples, strict=True):
        np.testing.assert_allclose(moved, w - rate * (g + 0.2 * w), rtol=1e-12)
    adam = dl.gradient_descent(problem, network, 0.01, 1, optimizer=optax.adam)
    for moved, w, g in zip(
        adam.network.parameters, network.parameters, slope.parameters, strict=True
    ):
        np.testing.assert_allclose(moved, w - 0.01 * np.sign(g), rtol=1e-5)


def test_mini_batches_see_the_constant_input():
    problem, network = data(), drawn()
    key = jax.random.key(0)
    run = dl.gradient_descent(problem, network, 0.02, 1, batch_size=9, key=key)
    whole = dl.gradient_descent(problem, network, 0.02, 1)
    for ours, theirs in zip(run.network.parameters, whole.network.parameters, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_eigenvalues_are_those_of_the_hessian_by_autodiff(activation):
    problem, network = data(), drawn(3, (1, 0, 1), activation)
    matrix = hessian(problem, network)
    expected = np.linalg.eigvalsh(matrix)
    for method in ("auto", "lanczos", "dense"):
        found = dl.sharpness(problem, network, method=method)
        assert found.value == pytest.approx(expected[-1], rel=1e-8)
        assert np.linalg.norm(matrix @ found.vector - found.value * found.vector) < 1e-4
    h = dl.hessian_spectrum(problem, network, count=5)
    np.testing.assert_allclose(h.values, expected[:-6:-1], atol=1e-8 * expected[-1])
    cuts = np.repeat([0, 1, 2, 0, 2], [12, 20, 5, 4, 1])  # weights, then the biases of 1 and 3
    tops = [np.linalg.eigvalsh(matrix[cuts == k][:, cuts == k])[-1] for k in range(3)]
    np.testing.assert_allclose(h.layers, tops, rtol=1e-8)
    assert h.trace == pytest.approx(np.trace(matrix))


@pytest.mark.parametrize("outputs", [1, 2])
def test_at_minimizers_the_small_matrix_is_exact_for_data_that_are_not_centered(outputs):
    problem = data(outputs=outputs)
    network = minimizer(problem, drawn(5, outputs=outputs))
    matrix = hessian(problem, network)
    expected = np.linalg.eigvalsh(matrix)
    found = dl.sharpness(problem, network)
    assert found.method == "exact"
    assert abs(found.value - expected[-1]) <= found.error + 1e-12 * expected[-1]
    h = dl.hessian_spectrum(problem, network, count=4)
    assert h.method == "exact"
    np.testing.assert_allclose(h.values, expected[:-5:-1], rtol=1e-9)
    np.testing.assert_allclose(h.vectors @ matrix, h.values[:, None] * h.vectors, atol=1e-8)


def minimizer(problem, network):
    """Set the last layer so that the network is the least-squares solution."""
    hidden = written_out(dl.Network(network.weights[:-1], network.biases[:-1]), problem.inputs)
    rows = np.column_stack([hidden, np.ones(len(hidden))])
    found = np.linalg.lstsq(rows, problem.target_columns)[0].T
    weights = [*network.weights[:-1], found[:, :-1]]
    return dl.Network(weights, [*network.biases[:-1], found[:, -1]])


def test_X38_centered_data_split_into_weights_and_biases():
    """2λ_max of the two blocks; hidden offsets are zero."""
    problem = data(centered=True)
    zero = [np.zeros(width) for width in WIDTHS[1:]]
    weights = drawn(6).weights
    network = minimizer(problem, dl.Network(weights, [*zero[:2], np.zeros(1)]))
    without = dl.Network(network.weights)
    backward = products.backward_products([np.asarray(w) for w in network.weights])
    of_biases = 2 * sum(float(np.sum(v**2)) for v in backward[1:])
    expected = max(dl.sharpness(problem, without).value, of_biases)
    found = dl.sharpness(problem, network)
    assert found.method == "exact"
    assert found.value == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("away", [1e-8, 1e-3])
def test_the_error_of_exact_bounds_the_distance_from_the_hessian(away):
    problem = data()
    network = minimizer(problem, drawn(7))
    rng = np.random.default_rng(0)
    moved = jax.tree.map(lambda leaf: leaf + away * rng.normal(size=leaf.shape), network)
    truth = np.linalg.eigvalsh(hessian(problem, moved))[-1]
    found = dl.sharpness(problem, moved, method="exact")
    assert abs(found.value - truth) <= found.error + 1e-12 * truth


def test_a_saved_run_keeps_its_biases(tmp_path):
    problem, network = data(), drawn(0, (0, 1, 1))
    run = dl.gradient_descent(problem, network, 0.02, 4, record_every=2, record=["sharpness"])
    dl.save_run(tmp_path / "run.npz", problem, run)
    _, again = dl.load_run(tmp_path / "run.npz")
    assert again.network.biases[0] is None
    for ours, theirs in zip(again.network.parameters, run.network.parameters, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(again.trajectory[1].biases[2], run.trajectory[1].biases[2])


def test_the_sharpness_along_a_run_is_that_of_each_record():
    problem, network = data(), drawn()
    run = dl.gradient_descent(problem, network, 0.02, 4, record_every=2, record=["sharpness"])
    for k, found in enumerate(run.records["sharpness"]):
        assert found == pytest.approx(dl.sharpness(problem, run.trajectory[k]).value, rel=1e-4)
    h = dl.hessian_spectrum(problem, run.network, count=1)
    assert h.values[0] == pytest.approx(run.records["sharpness"][-1], rel=1e-4)


def test_what_is_known_without_biases_alone_says_so():
    problem, network = data(), drawn()
    with pytest.raises(dl.InputError, match="networks without biases"):
        dl.reduce(problem, network)


@pytest.mark.parametrize(
    ("biases", "words"),
    [
        ([np.ones(4)], "list of 1, for 3 layers"),
        (np.ones(3), "readout="),
        ([np.ones(3), None, None], r"bias of layer 1 has shape \(3,\)"),
    ],
)
def test_biases_of_another_shape_are_refused(biases, words):
    with pytest.raises(dl.InputError, match=words):
        dl.Network(drawn().weights, biases)
