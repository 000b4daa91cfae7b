"""Every method against the dense Hessian, on problems and on losses of one's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin.hessian import sharpness
from deeplin.networks import stack

WIDTHS = (5, 4, 3, 1)


@pytest.fixture
def net():
    return dl.initialize.gaussian(jax.random.key(0), WIDTHS, 0.5)


@pytest.mark.parametrize("which", ["largest", "smallest"])
@pytest.mark.parametrize("activation", ["linear", "gelu", "relu"])
def test_lanczos_and_dense_are_within_their_errors(problem, hessian, activation, which):
    net = dl.initialize.gaussian(jax.random.key(1), WIDTHS, 0.7, activation=activation)
    truth = np.linalg.eigvalsh(hessian(problem, net))[-1 if which == "largest" else 0]
    for method in ("lanczos", "dense"):
        found = sharpness(problem, net, method=method, which=which)
        assert found.converged
        assert abs(found.value - truth) <= found.error + 1e-13 * abs(truth)


def test_error_of_lanczos_covers_the_truth_on_a_batch_of_deep_networks(problem):
    scales = jnp.linspace(0.1, 1.5, 12)
    nets = dl.initialize.gaussian(jax.random.split(jax.random.key(0), 12), (5,) * 6 + (1,), scales)
    found = sharpness(problem, nets, method="lanczos")
    oracle = sharpness(problem, nets, method="dense")
    assert found.converged.all()
    assert np.all(np.abs(found.value - oracle.value) <= found.error + oracle.error)


def test_auto_is_exact_at_minimizers_and_certified_elsewhere_in_one_batch(problem, minimizer):
    widths = (5,) * 6 + (1,)
    settled = [minimizer(problem, jax.random.key(k), widths) for k in range(3)]
    moving = [dl.initialize.gaussian(jax.random.key(k), widths, 0.5) for k in range(2)]
    nets = stack([settled[0], moving[0], settled[1], moving[1], settled[2]])
    found = sharpness(problem, nets)
    assert list(found.method) == ["exact", "lanczos", "exact", "lanczos", "exact"]
    oracle = sharpness(problem, nets, method="dense")
    assert np.all(np.abs(found.value - oracle.value) <= found.error + oracle.error)
    assert found.converged.all()


def test_a_network_that_is_not_finite_leaves_the_others_alone(problem, net):
    lost = dl.Network([weight * jnp.nan for weight in net.weights])
    for method in ("auto", "lanczos", "dense"):
        found = sharpness(problem, stack([net, lost]), method=method)
        assert np.isnan(found.value[1])
        assert not found.converged[1]
        alone = sharpness(problem, net, method=method)
        assert abs(found.value[0] - alone.value) <= alone.error


def test_any_loss_of_a_pytree_has_a_sharpness():
    matrix = np.diag([1.0, 5.0, -2.0])

    def loss(tree):
        return 0.5 * tree["a"] @ jnp.asarray(matrix) @ tree["a"] + 3.0 * tree["b"] ** 2

    tree = {"a": jnp.ones(3), "b": jnp.asarray(2.0), "name": "kept", "count": jnp.asarray(3)}
    for method in ("auto", "lanczos", "dense"):
        found = sharpness(loss, tree, method=method)
        assert found.value == pytest.approx(6.0, rel=1e-10)
        assert sharpness(loss, tree, method=method, which="smallest").value == pytest.approx(-2.0)


def test_the_readout_is_not_a_parameter_of_a_loss_of_a_network(problem):
    readout = jnp.asarray([1.0, 2.0, 3.0])
    net = dl.Network(
        dl.initialize.gaussian(jax.random.key(0), (5, 4, 3), 0.5).weights, readout=readout
    )
    inputs, targets = problem.require_data("test")

    def loss(network):
        return jnp.sum((network(jnp.asarray(inputs)) - targets) ** 2) / len(targets)

    own = sharpness(loss, net, method="dense")
    assert own.value == pytest.approx(sharpness(problem, net, method="dense").value, rel=1e-12)


def test_single_precision_networks_get_a_single_precision_error(problem):
    net = dl.initialize.gaussian(jax.random.key(0), (5,) * 6 + (1,), 0.5)
    single = dl.Network([weight.astype(jnp.float32) for weight in net.weights])
    found = sharpness(problem, single, method="lanczos")
    truth = sharpness(problem, dl.Network([w.astype(jnp.float64) for w in single.weights])).value
    assert found.converged
    assert 1e-8 * truth < found.error < 1e-3 * truth
    assert abs(found.value - truth) <= found.error


@pytest.mark.parametrize("which", ["largest", "smallest"])
@pytest.mark.parametrize("widths", [(5, 1), (5, 1, 1), (5, 4, 1), (5, 6, 3, 7, 1)], ids=str)
def test_lanczos_in_the_range_of_a_linear_hessian_is_lanczos_in_all_directions(
    problem, hessian, widths, which
):
    start = dl.initialize.gaussian(jax.random.key(3), widths, 0.6)
    nothing = jax.tree.map(jnp.zeros_like, start)
    for net in (start, nothing):
        matrix = hessian(problem, net)
        truth = np.linalg.eigvalsh(matrix)[-1 if which == "largest" else 0]
        for guess in (None, np.ones(len(matrix))):
            found = sharpness(problem, net, method="lanczos", which=which, start=guess)
            assert found.converged
            assert abs(found.value - truth) <= found.error + 1e-13 * np.abs(matrix).max()
            assert np.linalg.norm(found.vector) == pytest.approx(1, rel=1e-12)
            image = matrix @ found.vector
            np.testing.assert_allclose(image, found.value * found.vector, atol=1e-5)


def test_a_network_without_curvature_has_a_direction_too(problem):
    """Zero weights, three layers: a zero Hessian, whose range has no direction at all."""
    moving = dl.initialize.gaussian(jax.random.key(3), (5, 4, 4, 1), 0.6)
    batch = stack([jax.tree.map(jnp.zeros_like, moving), moving])
    found = sharpness(problem, batch, method="lanczos")
    assert found.value[0] == found.error[0] == 0
    np.testing.assert_allclose(np.linalg.norm(found.vector, axis=1), 1, rtol=1e-12)
    assert found.value[1] == pytest.approx(sharpness(problem, moving).value, rel=1e-9)


def test_lanczos_that_may_not_finish_says_so(problem):
    net = dl.initialize.gaussian(jax.random.key(0), (5,) * 6 + (1,), 0.5)
    found = sharpness(problem, net, method="lanczos", max_products=4)
    truth = sharpness(problem, net, method="dense").value
    assert not found.converged
    assert found.products == 4
    assert abs(found.value - truth) <= found.error


def test_another_network_of_the_same_shape_does_not_compile_again(problem, net):
    traces = []

    def loss(network):
        traces.append(1)
        return sum(jnp.sum(weight**4) for weight in network.weights)

    sharpness(loss, net, method="lanczos")
    first = len(traces)
    sharpness(loss, dl.Network([2 * weight for weight in net.weights]), method="lanczos")
    assert len(traces) == first


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "magic"}, "method is 'magic'"),
        ({"which": "middle"}, "which is 'middle'"),
        ({"tolerance": 0.0}, "tolerance is 0"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"start": np.ones(3)}, "start has shape"),
    ],
)
def test_bad_arguments_are_named(problem, net, arguments, words):
    with pytest.raises(dl.InputError, match=words):
        sharpness(problem, net, **arguments)


def test_bad_subjects_are_named(problem, net):
    with pytest.raises(dl.InputError, match=r"pass a deeplin\.Network"):
        sharpness(problem, {"a": jnp.ones(3)})
    with pytest.raises(dl.InputError, match=r"pass a deeplin\.Problem"):
        sharpness(3.0, net)
    with pytest.raises(dl.InputError, match="no floating-point parameters"):
        sharpness(lambda tree: 0.0, {"count": jnp.asarray(3)})
    with pytest.raises(dl.InputError, match="inputs"):
        sharpness(problem, dl.initialize.gaussian(jax.random.key(0), (4, 1), 1.0))
