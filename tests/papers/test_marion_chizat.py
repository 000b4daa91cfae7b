"""The FM authors' own draws, against the check values of their public runs."""

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.papers import setting as starts

CHECK = 1e-6
"""Processors may differ in the last bits of float32."""


def test_the_linear_data_set_is_the_authors_own():
    data = dl.problems.synthetic.marion_chizat("linear")
    problem = data.problem
    critical = dl.theory.minimal_sharpness(problem, 10).critical_learning_rate()
    found = [problem.alignment, problem.smallest_eigenvalue, problem.largest_eigenvalue, critical]
    np.testing.assert_allclose(found, [0.932805, 0.597488, 1.594182, 0.106954], atol=CHECK)
    assert problem.samples == data.test.samples == 50
    np.testing.assert_allclose(problem.optimum_norm, 1.0, atol=CHECK)


@pytest.mark.parametrize(("name", "samples", "dimension"), [("underdetermined", 15, 20)])
def test_the_underdetermined_data_set_has_a_unit_minimum_norm_solution(name, samples, dimension):
    problem = dl.problems.synthetic.marion_chizat(name).problem
    assert (problem.samples, problem.dimension) == (samples, dimension)
    np.testing.assert_allclose(problem.optimum_norm, 1.0, atol=CHECK)
    np.testing.assert_allclose(problem.minimal_risk, 0.0, atol=CHECK)


def test_the_nonlinear_data_set_has_the_same_inputs_and_no_noise():
    linear, quiet = (dl.problems.synthetic.marion_chizat(name) for name in ("linear", "nonlinear"))
    np.testing.assert_array_equal(linear.problem.inputs, quiet.problem.inputs)
    np.testing.assert_allclose(quiet.problem.minimal_risk, 0.0, atol=1e-12)
    np.testing.assert_allclose(np.ravel(quiet.problem.optimum), quiet.truth, atol=CHECK)


def test_the_generator_is_left_as_it_was():
    before = jax.random.normal(jax.random.key(3), (2,))
    dl.problems.synthetic.marion_chizat("linear")
    np.testing.assert_array_equal(jax.random.normal(jax.random.key(3), (2,)), before)
    assert jax.config.jax_threefry_partitionable


def test_the_start_of_FM_1c_is_the_authors_own():
    problem = dl.problems.synthetic.marion_chizat("linear").problem
    network = starts.training_start("FM-1")
    row = [0.0673192, -0.0499579, 0.0601111, 0.3553090, 0.0555318]
    np.testing.assert_allclose(network.weights[0][0], row, atol=CHECK)
    distance = np.sum((np.ravel(network.product) - np.ravel(problem.optimum)) ** 2)
    np.testing.assert_allclose(distance, 1.033139, atol=CHECK)


def one_start(name, rate, repetition, scale):
    """The recipe for a single network, word by word."""
    protocol = starts.SWEEPS[name]
    with jax.threefry_partitionable(False):
        key = jax.random.PRNGKey(0)
        for _ in range(protocol.place + 1):
            key, sub = jax.random.split(key)
        _, steps, repetitions = protocol.rates[rate]
        key = jax.random.split(sub, len(protocol.rates))[rate]
        key = jax.random.split(key, repetitions)[repetition]
        key = jax.random.split(key, len(protocol.scales))[scale]
        key = jax.random.split(key, steps + 2)[-1]
        key = jax.random.split(key, protocol.depth)[1]
        return jax.random.normal(key, (protocol.width,) * 2, np.float32)


@pytest.mark.parametrize("name", ["FM-1", "FM-2-20", "FM-4", "FM-6"])
def test_sweeps_start_where_the_recipe_says(name):
    protocol = starts.SWEEPS[name]
    rate, scale = len(protocol.rates) - 1, len(protocol.scales) - 1
    networks = starts.sweep_starts(name, protocol.rates[rate][0], repetitions=3)
    normal = np.asarray(one_start(name, rate, 2, scale))
    size = protocol.scales[scale]
    expected = size * normal
    if protocol.readout is not None:
        d = protocol.width
        expected = np.eye(d) + size / np.sqrt(protocol.depth * d) * normal
    np.testing.assert_allclose(networks.weights[1][3 * scale + 2], expected, atol=CHECK)
    assert len(networks.weights) == protocol.depth
    assert networks.batch == 3 * len(protocol.scales)


def test_fewer_repetitions_are_the_first_ones():
    many, few = (starts.sweep_starts("FM-1", 0.1, count) for count in (4, 2))
    chosen = np.arange(40).reshape(10, 4)[:, :2].ravel()
    np.testing.assert_array_equal(np.asarray(many.weights[3])[chosen], few.weights[3])
