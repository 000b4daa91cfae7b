import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import deeplin as dl
from deeplin.networks import landscape
from deeplin.networks.products import backward_products


@pytest.fixture
def hessian():
    """The dense Hessian over the weights, by automatic differentiation of the risk."""

    def of(problem, network):
        risk, data = landscape(problem, network)
        vector, unravel = ravel_pytree(network.weights)

        def loss(x):
            return risk(data, dl.Network(unravel(x), network.readout, network.activation))

        return np.asarray(jax.jit(jax.hessian(loss))(vector))

    return of


@pytest.fixture
def minimizer():
    """A random network moved onto the minimisers: the first layer solves for the optimum."""

    def of(problem, key, widths, readout=None, scale=0.6):
        net = dl.initialize.gaussian(key, widths, scale)
        if readout is not None:
            net = dl.Network(net.weights, readout)
        optimum = jnp.asarray(problem.optimum).reshape(problem.dimension, -1)
        rest = backward_products(net.weights, net.readout)[1]
        first = jnp.asarray(np.linalg.lstsq(rest.T, optimum.T)[0])
        return dl.Network((first, *net.weights[1:]), readout)

    return of
