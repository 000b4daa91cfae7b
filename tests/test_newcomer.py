"""Twenty tasks of a newcomer, with public calls alone and no configuration."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import deeplin as dl


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, 4))
    return X, X @ [1.0, -0.5, 0.0, 2.0] + 0.3 * rng.normal(size=60)


@pytest.fixture(scope="module")
def problem(table):
    return dl.Problem.from_data(*table)


@pytest.fixture(scope="module")
def networks():
    keys = jax.random.split(jax.random.key(0), 5)
    return dl.initialize.gaussian(keys, widths=(4, 4, 4, 1), scale=0.4)


@pytest.fixture(scope="module")
def run(problem, networks):
    rate = 0.5 * dl.critical_learning_rate(problem, depth=3)
    return dl.gradient_descent(problem, networks, rate, 1500, record=["risk", "sharpness"])


def test_1_numbers_are_float64_without_a_line_of_configuration(networks, run):
    assert networks.weights[0].dtype == run.network.weights[0].dtype == np.float64


def test_2_least_squares_solution_has_one_entry_for_each_input(table, problem):
    expected = np.linalg.lstsq(*table, rcond=None)[0]
    assert problem.optimum == pytest.approx(expected)


def test_3_largest_stable_learning_rate_is_a_number_for_one_depth(problem):
    rate = dl.critical_learning_rate(problem, depth=3)
    assert isinstance(rate, float)
    assert rate == pytest.approx(2 / dl.minimal_sharpness(problem, depth=3).exact)


def test_4_largest_stable_learning_rates_are_an_array_for_a_range_of_depths(problem):
    rates = dl.critical_learning_rate(problem, depth=range(2, 5))
    assert rates.shape == (3,)
    assert rates[1] == dl.critical_learning_rate(problem, depth=3)


def test_5_product_of_a_network_has_the_shape_of_the_optimum(problem, run):
    assert run[0].network.product.shape == problem.optimum.shape == (4,)
    assert run[0].network.product == pytest.approx(problem.optimum, abs=1e-3)


def test_6_product_of_several_outputs_is_outputs_by_inputs():
    W1, W2 = np.ones((2, 4)), np.ones((3, 2))
    assert dl.Network(weights=(W1, W2)).product.shape == (3, 4)


def test_7_batch_of_networks_predicts_for_each_of_them(table, networks):
    X, _ = table
    outputs = networks(X)
    assert outputs.shape == (5, 60, 1)
    for k, network in enumerate(networks):
        np.testing.assert_allclose(outputs[k], network(X), rtol=1e-12)


def test_8_networks_are_counted_taken_and_put_together_again(networks):
    assert len(networks) == 5
    again = dl.stack([networks[k] for k in range(5)])
    np.testing.assert_array_equal(again.weights[0], networks.weights[0])


def test_9_run_tells_how_it_ended(run):
    assert set(run.status) == {"converged"}
    assert np.all(run.evidence["gap"] < 1e-6)


def test_10_recording_without_a_stride_keeps_about_two_hundred_odd_steps(run):
    step = run.records["step"]
    assert 100 <= len(step) <= 400
    assert (step[1] - step[0]) % 2 == 1


def test_11_sharpness_at_the_end_is_stable_and_has_an_error(problem, run):
    found = dl.sharpness(problem, run.network)
    assert np.all(found.value <= 2 / run.learning_rate + found.error)
    assert np.all(found.value >= dl.minimal_sharpness(problem, depth=3).exact - found.error)


def test_12_top_eigenvalues_of_one_network_come_with_vectors(problem, run):
    found = dl.hessian_spectrum(problem, run[0].network, count=2)
    assert found.values.shape == (2,)
    assert found.vectors.shape == (2, 36)


def test_13_training_continues_with_momentum_or_an_optax_optimizer(problem, run):
    more = dl.gradient_descent(problem, run[0].network, 0.01, 50, momentum=0.9)
    other = dl.gradient_descent(problem, run[0].network, steps=50, optimizer=optax.adam(1e-3))
    assert more.status != "diverged"
    assert other.status != "diverged"


def test_14_loss_of_ones_own_takes_a_batch_of_parameters():
    def loss(w):
        return jnp.sum((w["a"] * w["b"] - 1.0) ** 2)

    starts = {"a": np.array([[0.5], [1.5]]), "b": np.array([[1.0], [0.2]])}
    run = dl.gradient_descent(loss, starts, 0.1, 300)
    assert np.asarray(run.network["a"] * run.network["b"]).ravel() == pytest.approx(1, abs=1e-6)


def test_15_loss_of_ones_own_may_use_a_key_for_each_step():
    def loss(w, key):
        return (w - 1.0 + 0.1 * jax.random.normal(key)) ** 2

    run = dl.gradient_descent(loss, np.array(0.0), 0.1, 100, key=jax.random.key(0))
    again = dl.gradient_descent(loss, np.array(0.0), 0.1, 100, key=jax.random.key(0))
    assert run.network == again.network
    assert abs(float(run.network) - 1) < 0.3


def test_16_swapped_arguments_are_named(problem, networks):
    with pytest.raises(dl.InputError, match="problem"):
        dl.gradient_descent(networks, problem, 0.1, 10)


def test_17_a_rate_of_text_is_refused(problem, networks):
    with pytest.raises(dl.InputError, match="learning_rate"):
        dl.gradient_descent(problem, networks, "0.1", 10)


def test_18_certificate_of_a_true_run_has_no_violation(problem, run):
    table = dl.certify(problem, run[0])
    assert "violated" not in set(table["verdict"])


def test_19_rate_for_a_table_is_the_number_on_the_screen(table):
    import pandas as pd

    X, y = table
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y)
    answer = dl.diagnose(frame, target="y", depth=2)
    assert f"{answer.learning_rate:.3g}" in str(answer)


def test_20_saved_run_comes_back_and_predicts(problem, run, tmp_path):
    dl.save_run(tmp_path / "run.npz", problem, run)
    loaded, again = dl.load_run(tmp_path / "run.npz")
    np.testing.assert_array_equal(again.network.weights[0], run.network.weights[0])
    assert loaded.minimal_risk == pytest.approx(problem.minimal_risk)
