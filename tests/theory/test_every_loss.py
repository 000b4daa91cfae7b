"""Everything that is promised for every loss, run for every loss, each against an oracle.

The oracle is the mean loss written down once more and differentiated by JAX: plain descent, a
dense Hessian over all weights, SciPy's minimizer and ODE solver.
"""

from __future__ import annotations

from functools import lru_cache

import convex_losses as data
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

import deeplin as dl
from deeplin import Problem, theory

LOSSES = ["squared", "logistic", "poisson", "huber", "softmax", "custom"]
DEPTH = 3


def _inputs() -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    X = rng.normal(size=(40, 3)) * [1, 0.6, 1.5]
    return rng, X, X @ [0.8, -0.8, 0.4]


@pytest.fixture(params=LOSSES)
def problem(request) -> Problem:
    rng, X, z = _inputs()
    if request.param == "softmax":
        return data.softmax()
    targets = {
        "logistic": np.where(z + 1.5 * rng.normal(size=40) > 0, 1, -1),
        "poisson": rng.poisson(np.exp(0.5 * z)),
        "huber": z + rng.standard_t(2, size=40),
    }
    y = targets.get(request.param, z + 0.5 * rng.normal(size=40))
    if request.param != "custom":
        return Problem.from_data(X, y, loss=request.param)
    return Problem.from_data(
        X,
        y,
        loss=(
            lambda z, y: jnp.log(jnp.cosh(z - y)),
            lambda z, y: jnp.tanh(z - y),
            lambda z, y: 1 - jnp.tanh(z - y) ** 2,
        ),
    )


def _risk(problem: Problem):
    """The mean loss as a function of a list of layers."""
    X, y = (
        jnp.asarray(problem.inputs),
        jnp.asarray(problem.target_columns),
    )

    def risk(weights):
        theta = data.product(weights)
        if problem.loss == "squared":
            return jnp.mean(jnp.sum((X @ theta - y) ** 2, axis=1))
        if not isinstance(problem.loss, str):
            return jnp.mean(jnp.log(jnp.cosh(X @ theta - y)))
        return data.plain_risk(problem)(theta)

    return risk


def _net(problem: Problem, width: int = 3, seed: int = 0, scale: float = 0.4) -> dl.Network:
    shape = (problem.dimension, width, width, problem.outputs)
    return dl.initialize.gaussian(jax.random.key(seed), shape, scale=scale)


def _hessian(problem: Problem, weights) -> np.ndarray:
    return np.asarray(_compiled_hessian(problem)([jnp.asarray(w) for w in weights]))


@lru_cache(1)
def _compiled_hessian(problem: Problem):
    """The dense Hessian as one program: tests ask for it at many weights of one problem."""

    @jax.jit
    def hessian(weights):
        flat, unravel = ravel_pytree(weights)
        return jax.hessian(lambda x: _risk(problem)(unravel(x)))(flat)

    return hessian


@pytest.mark.parametrize("width", [3, 24])
def test_descent_is_that_of_the_plain_loss_in_both_layouts(problem, width):
    """Narrow networks are trained side by side, wide ones one after the other."""
    nets = dl.initialize.gaussian(
        jax.random.split(jax.random.key(1), 3),
        (problem.dimension, width, width, problem.outputs),
        scale=1 / np.sqrt(4 * width),
    )
    run = dl.gradient_descent(problem, nets, 0.05, 100, momentum=0.5)
    weights = [jnp.asarray(w[0]) for w in nets.weights]
    gradient, before = jax.jit(jax.grad(_risk(problem))), weights
    for _ in range(100):
        pairs = zip(weights, gradient(weights), before, strict=True)
        weights, before = [w - 0.05 * g + 0.5 * (w - b) for w, g, b in pairs], weights
    for found, expected in zip(run.network.weights, weights, strict=True):
        np.testing.assert_allclose(found[0], expected, atol=1e-10)


def test_batches_take_the_mean_loss_of_their_rows(problem):
    """A batch of all rows is the full batch; a smaller one moves the network elsewhere."""
    net, key = _net(problem), jax.random.key(2)
    full = dl.gradient_descent(problem, net, 0.05, 5)
    whole = dl.gradient_descent(problem, net, 0.05, 5, batch_size=problem.samples, key=key)
    some = dl.gradient_descent(problem, net, 0.05, 5, batch_size=4, key=key)
    np.testing.assert_allclose(whole.network.product, full.network.product, atol=1e-12)
    assert np.max(np.abs(some.network.product - full.network.product)) > 1e-6


def test_the_flow_is_that_of_another_solver(problem):
    net = _net(problem)
    flat, unravel = ravel_pytree([jnp.asarray(w) for w in net.weights])
    slope = jax.jit(jax.grad(lambda x: _risk(problem)(unravel(x))))
    end = solve_ivp(lambda t, x: -np.asarray(slope(x)), (0, 2), flat, rtol=1e-9, atol=1e-11)
    run = dl.gradient_flow(problem, net, until=2.0, rtol=1e-9, atol=1e-11)
    found = ravel_pytree([jnp.asarray(w) for w in run.network.weights])[0]
    np.testing.assert_allclose(found, end.y[:, -1], atol=1e-6)


def test_sharpness_and_spectrum_are_those_of_the_dense_hessian(problem):
    net = _net(problem)
    values = np.linalg.eigvalsh(_hessian(problem, net.weights))
    top = max(values, key=abs)
    assert float(dl.sharpness(problem, net).value) == pytest.approx(top, rel=1e-6)
    found = dl.hessian_spectrum(problem, net, count=3).values
    np.testing.assert_allclose(np.sort(found), values[-3:], rtol=1e-6)


def test_the_flattest_balanced_and_least_trace_minimizers_have_what_is_stated(problem):
    """Their dense Hessians, and no minimizer found by random rescaling is flatter."""
    minimal, trace = theory.minimal_sharpness(problem, DEPTH), theory.minimal_trace(problem, DEPTH)
    flattest = minimal.attaining(3)
    dense = _hessian(problem, flattest.weights)
    assert np.linalg.eigvalsh(dense)[-1] == pytest.approx(minimal.exact, rel=1e-6)
    assert minimal.lower <= minimal.exact * (1 + 1e-12) <= minimal.upper * (1 + 1e-9)
    least = np.trace(_hessian(problem, trace.attaining(3).weights))
    assert least == pytest.approx(trace.exact, rel=1e-6)
    balanced = theory.balanced.balanced_network(problem, DEPTH)
    measured = np.linalg.eigvalsh(_hessian(problem, balanced.weights))[-1]
    assert measured == pytest.approx(theory.balanced_sharpness(problem, DEPTH), rel=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(20):
        weights = [np.asarray(w) for w in flattest.weights]
        for k in range(DEPTH - 1):
            G = np.eye(3) + 0.3 * rng.normal(size=(3, 3))
            weights[k], weights[k + 1] = G @ weights[k], weights[k + 1] @ np.linalg.inv(G)
        other = _hessian(problem, weights)
        assert np.linalg.eigvalsh(other)[-1] >= minimal.exact * (1 - 1e-9)
        assert np.trace(other) >= trace.exact * (1 - 1e-9)


def test_critical_rates_scale_as_their_optimizers_do(problem):
    """The largest eigenvalue of one step's Jacobian at the flattest minimizer has modulus one."""
    minimal = theory.minimal_sharpness(problem, DEPTH)
    H = _hessian(problem, minimal.attaining(3).weights)
    eye = np.eye(len(H))

    def radius(rate, beta=0.0, rho=0.0):
        step = rate * H @ (eye + rho * H)
        top = np.block([[(1 + beta) * eye - step, -beta * eye], [eye, 0 * eye]])
        return np.max(np.abs(np.linalg.eigvals(top if beta else eye - step)))

    for options in ({}, {"beta": 0.9}, {"rho": 0.05}):
        arguments = {
            "momentum": options.get("beta", 0.0),
            "sam_radius": options.get("rho", 0.0),
        }
        rate = theory.critical_learning_rate(problem, DEPTH, **arguments)
        assert radius(0.999 * rate, **options) <= 1 + 1e-6
        assert radius(1.001 * rate, **options) > 1
    rates = np.array([0.5, 3.0, 0.7])
    network = minimal.attaining(3, rates=rates)
    D = np.concatenate(
        [np.full(np.size(w), r) for w, r in zip(network.weights, rates, strict=True)]
    )
    scaled = np.sqrt(D)[:, None] * _hessian(problem, network.weights) * np.sqrt(D)
    expected = theory.layerwise_sharpness(problem, rates)
    assert np.linalg.eigvalsh(scaled)[-1] == pytest.approx(expected, rel=1e-6)
    adam = theory.adam_critical_learning_rate(problem, DEPTH, beta1=0.9, epsilon=0.01)
    rmsprop = theory.adam_critical_learning_rate(problem, DEPTH, beta1=0.0, epsilon=0.01)
    assert adam * minimal.exact == pytest.approx(0.38)
    assert rmsprop * minimal.exact == pytest.approx(0.02)


def test_batches_have_a_rate_where_every_sample_is_fitted_and_a_sentence_elsewhere(problem):
    with pytest.raises(dl.InputError, match=r"settle|one target"):
        theory.critical_learning_rate(problem, DEPTH, batch_size=4)


def test_the_minimum_with_weight_decay_is_that_of_a_search(problem):
    decay = 0.01
    if problem.loss == "softmax":
        with pytest.raises(dl.InputError, match="one output"):
            theory.decayed_minimum(problem, DEPTH, decay)
        return
    found = theory.decayed_minimum(problem, DEPTH, decay)
    flat, unravel = ravel_pytree([jnp.asarray(w) for w in found.attaining(2).weights])

    def cost(x):
        return _risk(problem)(unravel(x)) + decay * jnp.sum(x**2)

    slope, rng = jax.jit(jax.value_and_grad(cost)), np.random.default_rng(0)
    ends = [
        minimize(
            lambda x: tuple(map(np.asarray, slope(x))),
            rng.normal(size=flat.size),
            jac=True,
            options={"gtol": 1e-9},
        ).fun
        for _ in range(6)
    ]
    assert found.objective == pytest.approx(min(ends), rel=1e-8)
    assert float(cost(flat)) == pytest.approx(found.objective, rel=1e-10)
    top = np.linalg.eigvalsh(np.asarray(jax.jit(jax.hessian(cost))(flat)))[-1]
    assert top == pytest.approx(found.sharpness, rel=1e-8)
    rate = theory.critical_learning_rate(problem, DEPTH, weight_decay=decay)
    assert rate == pytest.approx(2 / found.sharpness)
    critical = theory.critical_weight_decay(problem, DEPTH).value
    assert not theory.decayed_minimum(problem, DEPTH, 0.99 * critical).collapsed
    assert theory.decayed_minimum(problem, DEPTH, 1.01 * critical).collapsed


def test_certificates_judge_and_runs_come_back(problem, tmp_path):
    run = dl.gradient_descent(problem, _net(problem), 0.05, 20_000)
    table = dl.certify(problem, run, scope="all").set_index("id")
    assert not (table["verdict"] == "violated").any()
    several = "X-7" if problem.loss == "squared" else "X-17"
    alone = "X-2" if problem.loss == "squared" else "X-14"
    judged = several if problem.outputs > 1 else alone
    assert table.loc[judged, "verdict"] == "holds"
    if judged in ("X-14", "X-17"):
        assert "squared loss" in table.loc["X-2", "hypotheses"]
    assert table.loc["FM-grad", "verdict"] == table.loc["X-23", "verdict"] == "holds"
    if not isinstance(problem.loss, str):
        with pytest.raises(dl.InputError, match="loss"):
            dl.save_run(tmp_path / "run.npz", problem, run)
        return
    dl.save_run(tmp_path / "run.npz", problem, run)
    again, loaded = dl.load_run(tmp_path / "run.npz")
    assert again.loss == problem.loss
    np.testing.assert_array_equal(loaded.network.product, run.network.product)
    np.testing.assert_array_equal(again.optimum, problem.optimum)
    assert np.array_equal(again.classes, problem.classes)
