import numpy as np
import pytest

import deeplin as dl
from deeplin.problems import synthetic


@pytest.mark.parametrize(("n", "d", "noise"), [(50, 5, 1.0), (15, 20, 1.0), (50, 5, 0.0)])
def test_flat_minima_data_have_an_optimum_of_unit_norm(n, d, noise):
    data = synthetic.flat_minima(7, samples=n, dimension=d, noise=noise)
    assert data.problem.optimum_norm == pytest.approx(1.0, rel=1e-12)
    assert data.problem.inputs.shape == data.test.inputs.shape == (n, d)
    if noise == 0.0:
        assert data.problem.minimal_risk < 1e-28
        np.testing.assert_allclose(data.problem.optimum, data.truth, rtol=1e-10)


def test_the_test_set_is_scaled_by_the_training_factor():
    data = synthetic.flat_minima(7, samples=4000, noise=0.0)
    np.testing.assert_allclose(data.test.optimum, data.problem.optimum, rtol=1e-10)


def test_condition_number_shapes_the_population_spectrum():
    data = synthetic.flat_minima(1, samples=100_000, dimension=4, condition_number=100.0)
    np.testing.assert_allclose(np.diag(data.problem.covariance), data.spectrum, rtol=0.05)
    assert data.spectrum[0] / data.spectrum[-1] == pytest.approx(100)


def test_spiked_data_have_the_population_second_moment_they_claim():
    data = synthetic.spiked(3, 30, samples=200_000, spikes=4, epsilon=0.25)
    np.testing.assert_allclose(np.diag(data.problem.covariance), data.spectrum, rtol=0.03)
    assert data.spectrum.tolist() == [1.0] * 4 + [0.25] * 26
    assert np.linalg.norm(data.truth) == pytest.approx(1.0)
    np.testing.assert_allclose(data.problem.optimum, data.truth, atol=0.03)


def test_relu_teacher_targets_are_the_teachers_on_noise_free_points():
    data = synthetic.relu_teacher(5)
    first, last = data.truth
    expected = np.maximum(data.test.inputs @ first.T, 0) @ last.T
    np.testing.assert_allclose(data.test.targets, expected, rtol=1e-12)
    noise = data.problem.targets - np.maximum(data.problem.inputs @ first.T, 0) @ last.T
    assert noise.std() == pytest.approx(1.0, rel=0.1)
    assert np.abs(first).max() <= 1 / np.sqrt(10)


def test_separable_labels_keep_their_margin():
    data = synthetic.separable(2, margin=0.3)
    margins = data.problem.targets * (data.problem.inputs @ data.truth)
    assert margins.min() >= 0.3 - 1e-12


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: synthetic.flat_minima(seed),
        lambda seed: synthetic.spiked(seed, 40),
        lambda seed: synthetic.relu_teacher(seed),
        lambda seed: synthetic.separable(seed),
    ],
)
def test_one_seed_gives_one_data_set(draw):
    np.testing.assert_array_equal(draw(1).problem.inputs, draw(1).problem.inputs)
    assert not np.array_equal(draw(1).problem.inputs, draw(2).problem.inputs)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: synthetic.flat_minima(-1), "seed is -1"),
        (lambda: synthetic.flat_minima(0, samples=0), "samples is 0"),
        (lambda: synthetic.flat_minima(0, noise=-1), "noise is -1"),
        (lambda: synthetic.flat_minima(0, condition_number=0.5), "condition_number is 0.5"),
        (lambda: synthetic.spiked(0, 5, spikes=9), "9 spikes do not fit"),
        (lambda: synthetic.from_spectrum(0, [-1.0, 2.0], samples=4), "spectrum runs from -1"),
    ],
)
def test_impossible_requests_are_refused(call, message):
    with pytest.raises(dl.InputError, match=message):
        call()
