"""The dense oracles agree with each other."""

import numpy as np
import pytest
from dense_network import automatic_hessian, hessian

import deeplin as dl


@pytest.mark.parametrize(("widths", "readout"), [((5, 3, 4, 2), False), ((5, 5, 5), True)])
def test_the_hessian_by_products_of_layers_is_that_by_automatic_differentiation(
    rng, widths, readout
):
    weights = [rng.normal(size=shape) for shape in zip(widths[1:], widths, strict=False)]
    p = rng.normal(size=widths[-1]) if readout else None
    net = dl.Network(weights, readout=p)
    X, outputs = rng.normal(size=(7, 5)), 1 if readout else widths[-1]
    problem = dl.Problem.from_data(X, rng.normal(size=(7, outputs)))
    automatic = automatic_hessian(net, problem.inputs, problem.target_columns)
    np.testing.assert_allclose(hessian(problem, net), automatic, rtol=1e-11, atol=1e-11)
