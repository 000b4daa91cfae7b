"""Our own figures: their answers follow the data, their numbers agree with other routes to them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from grids import grid

from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.papers import bo_2, bo_bounds, fm_small
from deeplin.problems.synthetic import flat_minima
from deeplin.theory import minimal_sharpness
from deeplin.theory.minimizers import balanced_network

STARTS = fm_small.SmallStarts(2, (0.05, 0.01, 2e-3, 4e-4, 1e-4), (1, 2))
DEPTHS = bo_bounds.Depths((3, 6, 12), repetitions=3)
BENIGN = bo_bounds.Benign((10, 20, 40), repetitions=4, noises=20)
RELU = bo_2.Interpolating((1e-4, 1e-3), repetitions=5)


@pytest.fixture
def small():
    table = grid(data_seed=STARTS.data_seeds, scale=STARTS.scales, status=("converged",))
    table["epsilon"] = table["scale"] ** 2
    return table.assign(
        excess=0.1 * table["epsilon"],
        misaligned=0.1 * table["epsilon"],
        sharpness=1 + table["epsilon"],
    )


def test_answers_about_small_starts_follow_the_data(check_changed, small):
    bad = small.copy()
    bad.loc[bad["data_seed"] == 2, "sharpness"] = 1.1
    check_changed("FM-small", STARTS, small, bad)


def test_the_ratio_is_that_of_the_exact_sharpnesses_and_the_flow_gets_there():
    config = fm_small.Ratios((3, 10), (10.0,), data_sets=1, widths=(6,))
    table = fm_small.run_ratio(config, 10.0)
    limits, flows = table[table["width"] == 0], table[table["width"] > 0]
    problem = flat_minima(0, condition_number=10.0).problem
    exact = minimal_sharpness(problem, 3)
    balanced = balanced_network(problem, 3)
    ratio = float(sharpness(problem, balanced).value) / exact.exact
    assert limits.set_index("depth").loc[3, "ratio"] == pytest.approx(ratio, rel=1e-9)
    assert flows["ratio"].item() == pytest.approx(ratio, rel=1e-3)
    assert (limits["ratio"] >= 1 - 1e-9).all()


@pytest.fixture
def depths():
    table = grid(depth=DEPTHS.depths, repetition=range(3))
    return table.assign(xi=1e-3, printed=1.0, corrected=1.0)


@pytest.fixture
def benign():
    table = grid(samples=BENIGN.samples, repetition=range(4))
    size = 1 / table["samples"] * (1 + 0.01 * table["repetition"])
    return table.assign(
        risk=size,
        bias=0.2 * size,
        noise=0.2 * size,
        xi=0.2 * size,
        bias_bound=size,
        variance_bound=size,
        xi_bound=size,
        spike_bound=2 * size,
        lower_variance=0.4,
        expected_variance=1.0,
        measured_variance=np.where(table["repetition"] == 0, 1.1, np.nan),
        variance_error=0.1,
    )


@pytest.mark.parametrize(
    ("fragment", "column", "factor"),
    [
        ("holds with one constant", "noise", lambda t: 9.0),
        ("do not grow with n", "xi", lambda t: t["samples"] / 10),
        ("conditional variance", "measured_variance", lambda t: 1.3),
        ("approaches zero", "risk", lambda t: t["samples"]),
    ],
)
def test_answers_about_the_bounds_follow_the_data(fragment, column, factor, check_changed, benign):
    bad = benign.assign(**{column: benign[column] * factor(benign)})
    check_changed("BO-bounds-risk", BENIGN, benign, bad)


def test_the_standard_error_of_the_variance_is_that_of_many_draws():
    config = bo_bounds.Benign((6,), repetitions=1, noises=5)
    data = bo_bounds.draw(0, 0, 6, 15, 0.1)
    population, X = bo_bounds.population_of(data), np.asarray(data.problem.inputs)
    rng = np.random.default_rng(0)
    maps = np.linalg.pinv(X) @ rng.normal(size=(4000, config.noises, 6, bo_bounds.OUTPUTS))
    centred = maps - maps.mean(axis=1, keepdims=True)
    traces = np.einsum("rnij,i,rnij->r", centred, data.spectrum, centred) / (config.noises - 1)
    expected = bo_bounds.conditional_variance(data.problem, population)
    error = bo_bounds._variance_error(config, data.problem, population)
    # four standard errors of the mean and of the deviation of 4000 traces
    assert np.mean(traces) == pytest.approx(expected, rel=4 * error / np.sqrt(4000))
    assert np.std(traces) / expected == pytest.approx(error, rel=0.1)


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


RATES = bo_bounds.Rates(repetitions=3)


def rates(power=1.0, size=1.0):
    table = grid(term=bo_bounds.SWEEPS, step=range(5), repetition=range(3))
    term = 2.0 ** -table["step"]
    risk = size * (1 + 0.02 * table["repetition"]) * term**power
    return table.assign(size=term, risk=risk, status="converged")


@pytest.mark.parametrize(
    ("fragment", "bad"), [("at the rate", rates(power=0.5)), ("One constant", rates(size=4.0))]
)
def test_answers_about_the_rates_of_benign_overfitting_follow_the_data(
    fragment, bad, check_changed
):
    check_changed("BO-bounds-rates", RATES, rates(), bad)


def test_each_sweep_sends_only_its_own_term_to_zero():
    n = RATES.samples
    for term, values in bo_bounds.SWEEPS.items():
        sizes = []
        for value in values:
            k, d, epsilon, noise = bo_bounds.population_sizes(n, term, value)
            sizes.append({"k/n": noise * k / n, "n/d": noise * n / d, "εd/n": epsilon * d / n})
        first, last = sizes[0], sizes[-1]
        assert last[term] == pytest.approx(first[term] / 16)
        assert all(last[other] == pytest.approx(first[other]) for other in last if other != term)
