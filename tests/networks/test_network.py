import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deeplin as dl
from deeplin.networks import stack
from deeplin.networks.network import Data, data_risk, linear_gradient, linear_risk, risk_and_data

# Few shapes, because each is compiled: one layer and many, widths that grow, shrink and are one,
# fewer samples than inputs and more; with a read-out or without.
SHAPES = [((3, 2), 5), ((1, 1, 1), 1), ((4, 6, 1, 2), 9), ((6, 3, 3, 5, 2, 4, 1), 2)]
cases = st.tuples(st.sampled_from(SHAPES), st.booleans(), st.integers(0, 2**31))


def draw(case):
    (widths, n), with_readout, seed = case
    rng = np.random.default_rng(seed)
    readout = rng.normal(size=widths[-1]) if with_readout else None
    q = 1 if with_readout else widths[-1]
    weights = [rng.normal(size=(b, a)) for a, b in itertools.pairwise(widths)]
    problem = dl.Problem.from_data(rng.normal(size=(n, widths[0])), rng.normal(size=(n, q)))
    return problem, dl.Network(weights, readout=readout)


@jax.jit  # one compilation for each shape, not one for each operation
def values_of(quadratic, net, inputs):
    return net.product, linear_risk(quadratic, net), net(inputs)


@jax.jit
def gradients_of(quadratic, data, net):
    automatic = jax.grad(lambda weights: data_risk(data, dl.Network(weights, readout=net.readout)))
    return linear_gradient(quadratic, net), automatic(net.weights)


@given(cases)
def test_product_and_risk_are_those_of_the_written_out_network(case):
    problem, net = draw(case)
    chain = np.eye(problem.dimension)
    for weight in net.weights:
        chain = np.asarray(weight) @ chain
    theta = chain.T if net.readout is None else chain.T @ np.asarray(net.readout)[:, None]
    product, loss, outputs = values_of(problem.device_risk, net, problem.inputs)
    assert product.shape == (theta.T.shape if net.outputs > 1 else theta[:, 0].shape)
    np.testing.assert_allclose(np.atleast_2d(product).T, theta, rtol=1e-10, atol=1e-10)
    risk = np.sum((problem.target_columns - problem.inputs @ theta) ** 2) / problem.samples
    assert float(loss) == pytest.approx(risk, rel=1e-8, abs=1e-9)
    np.testing.assert_allclose(outputs, problem.inputs @ theta, rtol=1e-9, atol=1e-9)


@given(cases)
def test_closed_form_gradient_is_that_of_autodiff_on_the_rows(case):
    problem, net = draw(case)
    data = Data(*map(jnp.asarray, (problem.inputs, problem.target_columns)))
    for closed, auto in zip(*gradients_of(problem.device_risk, data, net), strict=True):
        scale = max(1.0, float(jnp.abs(auto).max()))
        np.testing.assert_allclose(closed, auto, atol=1e-9 * scale)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_nonlinear_networks_apply_the_activation_after_every_layer_but_the_last(activation, rng):
    net = dl.initialize.gaussian(jax.random.key(1), (4, 3, 3, 2), 1.0, activation=activation)

    def apply(h):
        if activation == "relu":
            return np.maximum(h, 0)
        return 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))

    X = rng.normal(size=(6, 4))
    W1, W2, W3 = map(np.asarray, net.weights)
    expected = apply(apply(X @ W1.T) @ W2.T) @ W3.T
    np.testing.assert_allclose(net(X), expected, rtol=1e-10)
    problem = dl.Problem.from_data(X, np.zeros((6, 2)))
    risk, data = risk_and_data(problem, net)
    assert float(risk(data, net)) == pytest.approx(np.sum(expected**2) / 6, rel=1e-10)


def test_moments_alone_serve_linear_networks_but_not_others(problem):
    moments = dl.Problem.from_moments(
        problem.covariance, problem.cross_moment, problem.target_moment, 50
    )
    net = dl.initialize.gaussian(jax.random.key(0), (5, 3, 1), 0.5)
    for source in (problem, moments):
        risk, data = risk_and_data(source, net)
        residual = problem.targets - problem.inputs @ np.asarray(net.product)
        assert float(risk(data, net)) == pytest.approx(np.mean(residual**2), rel=1e-12)
    gelu = dl.initialize.gaussian(jax.random.key(0), (5, 3, 1), 0.5, activation="gelu")
    with pytest.raises(dl.InputError, match="gelu activation needs the data"):
        risk_and_data(moments, gelu)


def test_a_batch_is_its_members_side_by_side():
    keys = jax.random.split(jax.random.key(3), 4)
    readout = np.arange(1.0, 4.0)
    batch = dl.initialize.residual(keys, 3, 2, np.array([0.1, 0.2, 0.3, 0.4]), readout=readout)
    assert batch.batch == 4
    for i, key in enumerate(keys):
        single = dl.initialize.residual(key, 3, 2, 0.1 * (i + 1), readout=readout)
        np.testing.assert_allclose(batch.product[i], single.product, rtol=1e-14)
    again = dl.stack(list(batch))
    np.testing.assert_array_equal(again.product, batch.product)


@pytest.mark.parametrize("activation", ["linear", "gelu"])
@pytest.mark.parametrize("readout", [None, np.arange(5.0)])
def test_a_batch_of_five_networks_of_width_five_has_the_outputs_of_each(rng, activation, readout):
    """With as many networks as inputs a wrong broadcast would go unnoticed by its shape."""
    weights = [rng.normal(size=(5, 5, 5)) for _ in range(2)]
    biases = [rng.normal(size=(5, 5)), None]
    nets = dl.Network(weights, biases, readout, activation)
    X = rng.normal(size=(5, 5))
    outputs = nets(X)
    assert outputs.shape == (5, 5, 5 if readout is None else 1)
    assert len(nets) == 5
    for k, net in enumerate(nets):
        alone = dl.Network([w[k] for w in weights], [biases[0][k], None], readout, activation)
        np.testing.assert_allclose(outputs[k], alone(X), rtol=1e-13)
        np.testing.assert_array_equal(net.weights[1], nets[k].weights[1])
    np.testing.assert_array_equal(nets[1:4].weights[0], weights[0][1:4])
    np.testing.assert_array_equal(nets[-1].biases[0], biases[0][-1])


def test_inputs_of_another_shape_and_single_networks_say_so():
    net = dl.Network([np.ones((2, 3))])
    for inputs in (np.ones(3), np.ones((4, 2)), np.ones((2, 4, 3))):
        with pytest.raises(dl.InputError, match="pass rows of 3 numbers"):
            net(inputs)
    with pytest.raises(TypeError, match="no length"):
        len(net)
    with pytest.raises(IndexError, match="batch of 1"):
        net.with_batch()[1]
    assert net


def test_stacking_and_taking_apart_compile_nothing(caplog):
    nets = [dl.Network([np.full((2, 7), float(k)), np.full((1, 2), 3.0)]) for k in range(3)]
    with jax.log_compiles():
        whole = dl.stack(nets)
        assert whole[1:].product.shape == (2, 7)
        assert whole[2].product.tolist() == [2 * 2.0 * 3.0] * 7
    assert not caplog.records


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: dl.Network([]), "depth 0"),
        (lambda: dl.Network([np.ones((3, 2)), np.ones((2, 2))]), "layers 1 and 2 do not chain"),
        (lambda: dl.Network([np.ones(3)]), "weights have \\[1\\] dimensions"),
        (lambda: dl.Network([np.ones((2, 3, 3)), np.ones((3, 3, 3))]), "batch sizes differ"),
        (lambda: dl.Network([np.ones((3, 2))], readout=np.ones(2)), "vector of length 3"),
        (lambda: dl.Network([np.ones((3, 2))], activation="elu"), "activation is 'elu'"),
        (
            lambda: stack([dl.Network([np.ones((3, 2))]), dl.Network([np.ones((2, 2))])]),
            "single networks of one shape; received 2",
        ),
    ],
)
def test_impossible_networks_are_refused(build, message):
    with pytest.raises(dl.InputError, match=message):
        build()


def test_a_network_that_does_not_fit_the_problem_is_refused(problem):
    with pytest.raises(dl.InputError, match="takes 4 inputs and the problem has 5"):
        risk_and_data(problem, dl.initialize.gaussian(jax.random.key(0), (4, 1), 1.0))
    with pytest.raises(dl.InputError, match="returns 2 value"):
        risk_and_data(problem, dl.initialize.gaussian(jax.random.key(0), (5, 2), 1.0))
