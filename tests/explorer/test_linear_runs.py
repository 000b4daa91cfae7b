"""The shape-free kernels agree with the library's descent and with the dense Hessian."""

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics import gradient_descent
from deeplin.dynamics.measure import measure
from deeplin.dynamics.objective import objective_of
from deeplin.explorer.linear_runs import linear_descent, linear_sharpness
from deeplin.explorer.measures import against_optimum, of_layers, product

SHAPES = [(5, 3, 7, 2, 1), (5, 1)]


def networks(widths, batch=3, scale=0.5, readout=None):
    keys = jax.random.split(jax.random.key(1), batch)
    if readout is not None:
        return dl.initialize.residual(
            keys, widths[0], len(widths) - 1, np.full(batch, 0.5), readout
        )
    return dl.initialize.gaussian(keys, widths, np.full(batch, scale))


@pytest.fixture(params=[*SHAPES, "residual"], ids=str)
def nets(request):
    if request.param == "residual":
        return networks((5,) * 4, readout=np.arange(1.0, 6.0) / 7)
    return networks(request.param)


def test_descent_is_that_of_the_library(problem, nets):
    rates = np.array([0.01, 0.02, 0.03])
    ours = linear_descent(problem, nets, rates, steps=50, every=7)
    theirs = gradient_descent(problem, nets, rates, steps=50, record_every=7, backend="jax")
    assert np.array_equal(ours.records["step"], theirs.records["step"])
    for mine, other in zip(ours.trajectory.weights, theirs.trajectory.weights, strict=True):
        assert np.allclose(mine, other, rtol=1e-11, atol=1e-13)
    for name in ("risk", "gap", "distance"):
        assert np.allclose(ours.records[name], theirs.records[name], rtol=1e-9, atol=1e-13)
    assert list(ours.status) == list(theirs.status)
    assert list(ours.steps) == list(theirs.steps)


def test_divergence_is_found_at_the_same_step_and_leaves_its_neighbour_alone(problem):
    nets = networks((5, 5, 5, 1), batch=2, scale=0.5)
    rates = np.array([3.0, 0.02])
    ours = linear_descent(problem, nets, rates, steps=200, every=10)
    theirs = gradient_descent(problem, nets, rates, steps=200, record_every=10, backend="jax")
    assert list(ours.status) == list(theirs.status)
    assert ours.status[0] == "diverged"
    assert ours.steps[0] == theirs.steps[0]
    assert np.all(np.isfinite(ours.network.weights[0]))
    alone = linear_descent(problem, networks((5, 5, 5, 1), 2), rates[[1, 1]], 200, 10)
    assert np.array_equal(ours.network.weights[0][1], alone.network.weights[0][1])


def test_sharpness_along_a_trajectory_is_the_top_of_the_dense_hessian(problem, nets):
    run = linear_descent(problem, nets, np.full(3, 0.03), steps=60, every=3)
    values = linear_sharpness(problem, run.trajectory)
    for record in (0, 7, len(values) - 1):
        there = jax.tree.map(lambda leaf, at=record: np.asarray(leaf)[at], run.trajectory)
        dense = dl.sharpness(problem, there, method="dense").value
        # a residual of 1e-3 of the value: the value itself is good to about its square
        assert values[record] == pytest.approx(dense, rel=1e-5)


def test_sharpness_is_not_a_number_where_the_weights_are_not(problem):
    nets = networks((5, 4, 1), batch=1)
    broken = jax.tree.map(lambda w: np.stack([w, w * np.nan, w]), nets)
    values = linear_sharpness(problem, broken)[:, 0]
    assert np.isnan(values[1])
    assert values[0] == pytest.approx(values[2])


def test_measures_are_those_of_the_library(problem, nets):
    theirs = measure(
        objective_of(problem, nets), nets, nets,
        ("risk", "gap", "distance", "layer_norms", "singular_values"),
    )  # fmt: skip
    ours = against_optimum(problem, nets) | of_layers(nets)
    for name, values in theirs.items():
        assert np.allclose(ours[name], values, rtol=1e-12), name
    assert np.allclose(product(nets), np.asarray(nets.product).reshape(3, -1), rtol=1e-12)
    if nets.depth > 1:
        alignment = measure(objective_of(problem, nets), nets, nets, ("alignment",))["alignment"]
        assert np.allclose(ours["alignment"], alignment, rtol=1e-9)
