"""Problems with another convex loss: their optimum, curvature, gap, and what they refuse."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

import deeplin as dl
from deeplin import InputError, Problem

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 4)) * [1, 0.5, 2, 1]
NOISE = RNG.normal(size=60)
SIGNAL = X @ [1, -1, 0.3, 0]
TARGETS = {
    "logistic": np.where(SIGNAL + 1.5 * NOISE > 0, "yes", "no"),
    "poisson": RNG.poisson(np.exp(0.3 * SIGNAL)),
    "huber": SIGNAL + RNG.standard_t(1.5, size=60),
    "softmax": np.argmax(np.stack([SIGNAL, -SIGNAL, 0 * SIGNAL], 1) + RNG.gumbel(size=(60, 3)), 1),
}


def _cosh(z, y):
    return jnp.log(jnp.cosh(z - y))


CUSTOM = (_cosh, lambda z, y: jnp.tanh(z - y), lambda z, y: 1 - jnp.tanh(z - y) ** 2)


def _problem(loss) -> Problem:
    return Problem.from_data(X, TARGETS.get(loss, SIGNAL + NOISE), loss)


@pytest.fixture(params=[*TARGETS, CUSTOM], ids=[*TARGETS, "custom"])
def problem(request) -> Problem:
    return _problem(request.param)


def _plain(problem: Problem):
    """The mean loss as a function of the linear map, flattened, by JAX."""
    y = jnp.asarray(problem.target_columns)

    def risk(flat):
        z = X @ flat.reshape(-1, 4).T
        if problem.loss == "logistic":
            return jnp.mean(jnp.logaddexp(0.0, -y * z))
        if problem.loss == "poisson":
            return jnp.mean(jnp.exp(z) - y * z)
        if problem.loss == "softmax":
            return jnp.mean(jax.nn.logsumexp(z, axis=1) - jnp.sum(z * y, axis=1))
        if problem.loss == "huber":
            r = jnp.abs(z - y)
            return jnp.mean(jnp.where(r <= 1, r**2 / 2, r - 0.5))
        return jnp.mean(_cosh(z, y))

    return jax.jit(risk)


def test_the_optimum_is_that_of_a_search_and_its_curvature_that_of_autodiff(problem):
    risk = _plain(problem)
    gradient = jax.jit(jax.grad(risk))
    flat = problem.optimum.reshape(-1)
    assert np.abs(gradient(flat)).max() < 1e-14
    found = minimize(lambda v: float(risk(v)), np.zeros_like(flat), jac=gradient, tol=1e-12)
    assert problem.minimal_risk == pytest.approx(found.fun, abs=1e-12)
    hessian = np.asarray(jax.jit(jax.hessian(risk))(flat))
    np.testing.assert_allclose(problem.curvature, hessian, atol=1e-14)
    half = np.linalg.eigvalsh(problem.curvature) / 2
    assert problem.largest_eigenvalue == pytest.approx(half[-1])
    assert problem.smallest_eigenvalue == pytest.approx(half[half > 1e-12][0])


def test_value_gradient_and_curvature_product_are_those_of_autodiff(problem):
    risk, q = _plain(problem), problem.outputs
    theta = np.random.default_rng(0).normal(size=(4, q))
    direction = np.random.default_rng(1).normal(size=(4, q))
    flat = theta.T.reshape(-1)
    value, gradient = problem.value_and_gradient(theta[:, 0] if q == 1 else theta.T)
    assert value == pytest.approx(float(risk(flat)), rel=1e-13)
    expected = np.asarray(jax.jit(jax.grad(risk))(flat)).reshape(q, 4).T
    np.testing.assert_allclose(gradient, expected[:, 0] if q == 1 else expected.T, atol=1e-14)
    device_risk = problem.device_risk
    gap, slope = jax.jit(lambda r, t: r.value_and_gradient(t))(device_risk, theta)
    assert float(gap) == pytest.approx(value - problem.minimal_risk, rel=1e-12)
    np.testing.assert_allclose(slope, expected, atol=1e-14)
    push = jax.jvp(jax.grad(risk), (flat,), (direction.T.reshape(-1),))[1]
    found = device_risk.curvature_product(jnp.asarray(theta), jnp.asarray(direction))
    np.testing.assert_allclose(found, np.asarray(push).reshape(q, 4).T, atol=1e-13)


@pytest.mark.parametrize("loss", [*TARGETS])
def test_tiny_gaps_keep_their_digits(loss):
    """At ε beside the optimum the gap is ε²⟨D, HD⟩/2 up to third order, far below rounding of R."""
    problem, epsilon = _problem(loss), 1e-9
    direction = np.random.default_rng(2).normal(size=(4, problem.outputs)).T
    flat = direction.reshape(-1)
    expected = epsilon**2 * flat @ problem.curvature @ flat / 2
    theta = problem.optimum + epsilon * direction.reshape(problem.optimum.shape)
    assert problem.gap(theta) == pytest.approx(expected, rel=1e-5)


def test_probabilities_are_those_of_scikit_learn():
    problem = _problem("logistic")
    reference = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-12).fit(
        X, TARGETS["logistic"]
    )
    assert list(problem.classes) == list(reference.classes_) == ["no", "yes"]
    np.testing.assert_allclose(problem.optimum, reference.coef_[0], rtol=1e-5)


@pytest.mark.parametrize("loss", [*TARGETS])
def test_the_optimum_of_dependent_columns_has_the_least_norm(loss):
    wide = np.column_stack([X, X[:, 0] + X[:, 1], np.ones(60), np.ones(60)])
    problem = Problem.from_data(wide, TARGETS[loss], loss)
    outside = np.linalg.svd(wide)[2][np.linalg.matrix_rank(wide) :]
    np.testing.assert_allclose(outside @ problem.optimum.T, 0, atol=1e-10)
    whole = Problem.from_data(wide[:, [0, 1, 2, 3, 5]], TARGETS[loss], loss)
    assert problem.minimal_risk == pytest.approx(whole.minimal_risk, rel=1e-12)


def test_huber_with_several_minimizers_takes_the_least_norm():
    """Two outliers on opposite sides: w_2 from −9 to 19 is as good, and 0 has the least norm."""
    rows = np.array([[1.0, 0], [2, 0], [0, 1], [0, 1]])
    problem = Problem.from_data(rows, [1.0, 2.0, 20.0, -10.0], "huber")
    np.testing.assert_allclose(problem.optimum, [1, 0], atol=1e-12)
    assert problem.rank == 1


def test_a_risk_that_does_not_bend_has_no_minimal_sharpness():
    problem = Problem.from_data(np.ones((4, 1)), [1.0, 1.0, 11.0, 11.0], "huber")
    assert problem.minimal_risk == pytest.approx(4.5)
    with pytest.raises(InputError, match="is undefined"):
        dl.theory.minimal_sharpness(problem, 2)


@pytest.mark.parametrize("margin", [1e-2, 1e-5, 1e-8])
def test_nearly_separable_data_have_their_optimum(margin):
    """One input; all samples but one of size `margin` are on the right side."""
    x = np.append(np.linspace(0.5, 2, 20) * np.tile([1, -1], 10), margin)
    problem = Problem.from_data(x[:, None], np.append(np.sign(x[:-1]), -1), "logistic")
    w = float(problem.optimum[0])
    slopes = -np.abs(x[:-1]) / (1 + np.exp(np.abs(x[:-1]) * w))
    assert np.sum(slopes) + margin / (1 + np.exp(-margin * w)) == pytest.approx(
        0, abs=1e-12 * margin
    )


def test_separable_data_have_an_infimum_and_no_optimum():
    apart = Problem.from_data(X, SIGNAL > 0, "logistic")
    assert not apart.has_minimizer
    assert apart.minimal_risk == pytest.approx(0, abs=1e-15)
    with pytest.raises(InputError, match="linearly separable"):
        _ = apart.optimum
    # the first input separates some samples, and says nothing about the others
    half = np.column_stack(
        [np.r_[np.ones(5), -np.ones(5), np.zeros(10)], np.r_[np.zeros(10), np.ones(10)]]
    )
    labels = np.r_[np.ones(5), np.zeros(5), np.ones(6), np.zeros(4)]
    quasi = Problem.from_data(half, labels, "logistic")
    assert not quasi.has_minimizer
    entropy = -(0.6 * np.log(0.6) + 0.4 * np.log(0.4))
    assert quasi.minimal_risk == pytest.approx(entropy / 2, abs=1e-12)
    labels = np.argmax(X @ RNG.normal(size=(4, 3)), 1)
    assert not Problem.from_data(X, labels, "softmax").has_minimizer


def test_counts_of_zero_can_leave_no_optimum():
    rows = np.column_stack([np.ones(20), np.r_[np.zeros(15), np.ones(5)]])
    counts = np.r_[RNG.poisson(3, 15) + 1, np.zeros(5)]
    with pytest.raises(InputError, match="count 0"):
        _ = Problem.from_data(rows, counts, "poisson").optimum


BAD = [
    (np.ones(60), "logistic", "one class"),
    (np.arange(60) % 3, "logistic", "3 distinct values"),
    (np.full(60, np.nan), "logistic", "NaN"),
    (np.array(["a", None] * 30, object), "softmax", "missing"),
    (np.array(["a", 1] * 30, object), "softmax", "different kinds"),
    (X, "softmax", "one label for each row"),
    (-np.ones(60), "poisson", "counts"),
    (np.full(60, 0.5), "poisson", "counts"),
    (X, "huber", "4 columns"),
    (SIGNAL, "hinge", "loss is 'hinge'"),
    (SIGNAL, (np.exp, np.exp), "three functions"),
    (SIGNAL, (lambda z, y: z**2, lambda z, y: z, lambda z, y: 1 + 0 * z), "dphi is not"),
    (SIGNAL, (lambda z, y: -(z**2), lambda z, y: -2 * z, lambda z, y: 0 * z - 2), "convex"),
    (SIGNAL[:5] > 0, "logistic", "60 rows and y has 5"),
]


@pytest.mark.parametrize(("y", "loss", "words"), BAD, ids=[words for *_, words in BAD])
def test_bad_targets_and_losses_are_refused(y, loss, words):
    with pytest.raises(InputError, match=words):
        Problem.from_data(X, y, loss)


def test_moments_and_chunks_are_for_squared_loss_alone():
    with pytest.raises(InputError, match="squared loss alone"):
        Problem.from_moments(np.eye(2), np.ones(2), 3.0, 10, loss="logistic")
    with pytest.raises(InputError, match="squared loss alone"):
        Problem.from_chunks([(X, SIGNAL)], loss="huber")
    with pytest.raises(InputError, match="delta"):
        Problem.from_data(X, SIGNAL, "huber", delta=-1)


@pytest.mark.parametrize("hidden", [3, 20])
def test_descent_and_flow_end_in_the_optimum(hidden):
    """In both memory layouts."""
    problem = _problem("logistic")
    keys = jax.random.split(jax.random.key(0), 3)
    nets = dl.initialize.gaussian(keys, (4, hidden, 1), scale=0.3)
    run = dl.gradient_descent(problem, nets, 0.1, 5000)
    assert list(run.status) == ["converged"] * 3
    np.testing.assert_allclose(run.network.product, np.tile(problem.optimum, (3, 1)), atol=1e-6)
    one = jax.tree.map(lambda leaf: leaf[0], nets)
    flow = dl.gradient_flow(problem, one, gap=1e-12)
    np.testing.assert_allclose(flow.network.product, problem.optimum, atol=1e-4)
