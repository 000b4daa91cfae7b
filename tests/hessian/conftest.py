import dense_network
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin.networks.products import backward_products


@pytest.fixture
def hessian():
    """The dense Hessian over the weights, by automatic differentiation of the risk."""

    return dense_network.hessian


@pytest.fixture
def minimizer():
    """A random network moved onto the minimizers: the first layer solves for the optimum."""

    def of(problem, key, widths, readout=None, scale=0.6):
        net = dl.initialize.gaussian(key, widths, scale)
        if readout is not None:
            net = dl.Network(net.weights, readout=readout)
        optimum = jnp.asarray(problem.optimum_columns)
        rest = backward_products(net.weights, net.readout)[1]
        first = jnp.asarray(np.linalg.lstsq(rest.T, optimum.T)[0])
        return dl.Network((first, *net.weights[1:]), readout=readout)

    return of
