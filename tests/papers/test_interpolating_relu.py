"""BO-2 as printed: the solver that interpolates, and answers that follow the data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from grids import grid

from deeplin.networks import Network
from deeplin.papers import bo_2

RELU = bo_2.Interpolating((1e-4, 1e-3), repetitions=5)


def relu(alpha=0.5, beta=0.0, loss=1e-8):
    table = grid(swept=("alpha", "beta"), scale=RELU.scales, repetition=range(5))
    effect = table["swept"].map({"alpha": alpha, "beta": beta}) * (table["scale"] == 1e-3)
    risk = (5 + 0.1 * table["repetition"]) * (1 + effect)
    return table.assign(loss=loss, zero_risk=0.2, risk=risk)


@pytest.mark.parametrize(
    ("fragment", "bad"),
    [
        ("loss is below 1e-7", relu(loss=1e-3)),
        ("increases with α", relu(alpha=0.0)),
        ("unaffected by β", relu(beta=0.3)),
        ("asymmetry", relu(alpha=0.3, beta=0.3)),
    ],
)
def test_answers_about_interpolating_relu_networks_follow_the_data(fragment, bad, check_changed):
    check_changed("BO-2-printed", RELU, relu(), bad)


def test_the_solver_interpolates_what_a_network_can():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(12, 4)), rng.normal(size=(12, 2))
    start = Network(
        [rng.normal(size=s) / 2 for s in ((20, 4), (20, 20), (2, 20))], activation="relu"
    )
    network, loss, steps = bo_2.interpolate(X, Y, start, 200)
    assert loss <= bo_2.TARGET
    assert 0 < steps < 200
    np.testing.assert_allclose(np.asarray(network(X)), Y, atol=3e-3)


def test_the_gram_matrix_of_the_solver_is_that_of_the_dense_jacobian():
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(6, 4)), rng.normal(size=(6, 2))
    weights = [rng.normal(size=s) for s in ((5, 4), (5, 5), (2, 5))]

    def residual(flat):
        one, two, three = jnp.split(flat, (20, 45))
        hidden = jax.nn.relu(X @ one.reshape(5, 4).T)
        hidden = jax.nn.relu(hidden @ two.reshape(5, 5).T)
        return (hidden @ three.reshape(2, 5).T - Y).ravel()

    J = np.asarray(jax.jacrev(residual)(np.concatenate([w.ravel() for w in weights])))
    layers, value = bo_2._forward(weights, X, Y)
    backward = bo_2._backward(weights, layers)
    np.testing.assert_allclose(bo_2._gram(layers, backward), J @ J.T, rtol=1e-10)
    moves = np.concatenate([m.ravel() for m in bo_2._adjoint(layers, backward, value)])
    np.testing.assert_allclose(moves, J.T @ value.ravel(), rtol=1e-10, atol=1e-12)
