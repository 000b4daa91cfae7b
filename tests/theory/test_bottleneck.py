"""X-34: hidden layers narrower than the target, and LoRA."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

import deeplin as dl
from deeplin.theory import minimal_sharpness

REFERENCE = {
    (1, 2): 14.77977267,
    (1, 3): 25.26876795,
    (1, 5): 47.58244993,
    (2, 2): 14.68623582,
    (2, 3): 25.31073742,
    (2, 5): 47.65160585,
    (3, 2): 14.67599137,
    (3, 3): 25.31416150,
    (3, 5): 47.65792354,
}
FLATTEST = {
    (1, 1): 25.26876795,
    (1, 3): 25.26876795,
    (3, 1): 25.26876795,
    (4, 1, 4): 36.31233747,
    (1, 3, 1): 36.31233747,
    (3, 2, 3): 36.3778982,
    (2, 3, 2): 36.3778982,
}


def reference_problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4)) * [1, 0.8, 0.5, 1.5]
    return dl.Problem.from_data(X, X @ rng.normal(size=(4, 3)) + 0.5 * rng.normal(size=(40, 3)))


def of_moments(covariance, optimum):
    """Squared loss with these Σ̂ and Θ*."""
    optimum = np.asarray(optimum, float)
    cross = covariance @ optimum.T
    target = optimum @ cross + np.eye(len(optimum))
    return dl.Problem.from_moments(covariance, cross, target, samples=10)


def top_of_hessian(problem, weights):
    """The largest eigenvalue of the whole Hessian, by automatic differentiation."""
    flat, unravel = ravel_pytree([jnp.asarray(w) for w in weights])
    covariance, optimum = jnp.asarray(problem.covariance), jnp.asarray(problem.optimum)

    def risk(x):
        theta = jnp.linalg.multi_dot(unravel(x)[::-1]) - optimum
        return jnp.trace(theta @ covariance @ theta.T)

    return float(jnp.linalg.eigvalsh(jax.hessian(risk)(flat))[-1])


def least_found(problem, widths, seeds=2):
    """min λ_max of the dense Hessian over networks of these hidden widths with product Θ_r.

    A network is a gauge transform of one factorization, plus parts that the others do not see
    (wider layers): descent of a smooth norm of the Hessian with a penalty on the product.
    """
    d, q, r = problem.dimension, problem.outputs, min(widths)
    target = jnp.asarray(problem.best_of_rank(r).product)
    sizes = [d, *widths, q]
    shapes = [(b, a) for a, b in itertools.pairwise(sizes)]
    narrow = int(np.argmin(widths))  # layers before and after the bottleneck
    U, s, Vt = np.linalg.svd(np.asarray(target))
    left, right = jnp.asarray(U[:, :r]), jnp.asarray(s[:r, None] * Vt[:r])
    covariance, optimum = jnp.asarray(problem.covariance), jnp.asarray(problem.optimum)
    start = [np.zeros(shape) for shape in shapes]
    _, unravel = ravel_pytree([jnp.asarray(part) for part in start])

    def layers(x):
        """Free layers, of which the first and the last are corrected to have the product."""
        W = list(unravel(x))
        before = jnp.eye(widths[0])
        for layer in W[1 : narrow + 1]:
            before = layer @ before  # r × widths[0]
        after = jnp.eye(r)
        for layer in W[narrow + 1 : -1]:
            after = layer @ after  # widths[-1] × r
        gauge = W[-1] @ after  # q × r, projected on the range of the target
        inside = left.T @ gauge
        inverse = (
            after.T @ jnp.linalg.inv(after @ after.T + 0.0)
            if after.shape[0] < r
            else (jnp.linalg.solve(after.T @ after, after.T))
        )
        last = left @ inside @ inverse + W[-1] @ (jnp.eye(after.shape[0]) - after @ inverse)
        rows = jnp.linalg.solve(inside, right)  # r × d, what W_m…W_1 has to be
        pseudo = before.T @ jnp.linalg.inv(before @ before.T)
        first = W[0] + pseudo @ (rows - before @ W[0])
        return [first, *W[1:-1], last] if len(W) > 1 else [first]

    def risk(flat):
        theta = jnp.linalg.multi_dot(unravel(flat)[::-1]) - optimum
        return jnp.trace(theta @ covariance @ theta.T)

    @jax.jit
    def log_norm(x, power):
        flat, _ = ravel_pytree(layers(x))
        values = jnp.linalg.eigvalsh(jax.hessian(risk)(flat))
        shares = jnp.clip(values / values[-1], 0.0, None)
        return jnp.log(values[-1]) + jnp.log(jnp.sum(shares**power)) / power, values[-1]

    slope = jax.jit(jax.value_and_grad(lambda x, power: log_norm(x, power)[0]))
    best = np.inf
    for seed in range(seeds):
        x = np.random.default_rng(seed).normal(size=sum(a * b for a, b in shapes))
        for power in (10.0, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7):
            x = minimize(lambda v, p: tuple(map(np.asarray, slope(v, p))), x, (power,), jac=True).x
        best = min(best, float(log_norm(x, 1.0)[1]))
    return best


@pytest.mark.parametrize(("rank", "depth"), REFERENCE)
def test_the_minimal_sharpness_is_the_reference_and_certified(rank, depth):
    problem = reference_problem()
    found = minimal_sharpness(problem, depth, width=rank)
    assert found.exact == pytest.approx(REFERENCE[rank, depth], rel=1e-8)
    assert found.lower <= found.exact <= found.upper
    if rank < 3:
        assert found.lower == pytest.approx(found.exact, rel=1e-7)


@pytest.mark.parametrize(("rank", "depth"), [(1, 3), (2, 2), (2, 3)])
def test_the_minimizer_has_the_best_product_and_the_minimal_sharpness(rank, depth):
    problem = reference_problem()
    found = minimal_sharpness(problem, depth, width=rank)
    network = found.attaining(rank)
    weights = [np.asarray(weight) for weight in network.weights]
    product = np.linalg.multi_dot(weights[::-1])
    np.testing.assert_allclose(product, problem.best_of_rank(rank).product, atol=1e-12)
    assert top_of_hessian(problem, weights) == pytest.approx(found.exact, rel=1e-9)
    wide = [np.asarray(weight) for weight in found.attaining(4).weights]
    if depth > 2:  # padded units add zero eigenvalues only
        assert top_of_hessian(problem, wide) == pytest.approx(found.exact, rel=1e-9)


@pytest.mark.extended
@pytest.mark.parametrize("widths", [(1,), (2,), *FLATTEST, (2, 2)], ids=str)
def test_direct_minimization_finds_no_flatter_network(widths):
    problem = reference_problem()
    exact = minimal_sharpness(problem, len(widths) + 1, width=min(widths)).exact
    if widths in FLATTEST:
        assert exact == pytest.approx(FLATTEST[widths], rel=1e-8)
    found = least_found(problem, widths)
    assert found == pytest.approx(exact, rel=1e-6)
    assert found >= exact * (1 - 1e-9)


def test_a_dropped_direction_of_large_curvature_counts():
    """The bound of X-7 with Θ_r is 20.1 here, the sharpness 38."""
    problem = of_moments(np.diag([1.0, 100.0]), np.diag([1.0, 0.09]))
    assert minimal_sharpness(problem, 2, width=1).exact == pytest.approx(38, rel=1e-9)
    assert minimal_sharpness(problem, 3, width=1).exact == pytest.approx(17.21843778, rel=1e-8)


@pytest.mark.extended
def test_tied_directions_are_chosen_as_the_flattest_network_needs_them():
    problem = of_moments(np.diag([1.0, 100.0]), np.diag([1.0, 0.1]))
    assert not problem.best_of_rank(1).unique
    found = minimal_sharpness(problem, 3, width=1)
    assert found.exact == pytest.approx(17.602980, rel=1e-6)
    assert found.lower <= found.exact <= 27.85
    weights = [np.asarray(weight) for weight in found.attaining(1).weights]
    assert top_of_hessian(problem, weights) == pytest.approx(found.exact, rel=1e-9)


@pytest.mark.extended
def test_the_dual_bound_holds_where_the_program_is_solved_roughly(monkeypatch):
    """100 inputs, 20 outputs and width 10: the bound is below the value of a better solution."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 100)) * np.geomspace(1, 0.1, 100)
    Y = X @ rng.normal(size=(100, 20)) + 0.5 * rng.normal(size=(400, 20))
    problem = dl.Problem.from_data(X, Y)
    fine = minimal_sharpness(problem, 3, width=10)
    assert fine.exact == pytest.approx(fine.lower, rel=1e-7)
    monkeypatch.setattr("deeplin.theory.interior_point.CENTERED", 1e-4)
    rough = minimal_sharpness(problem, 3, width=10)
    assert rough.lower <= fine.exact <= rough.exact
    assert rough.exact == pytest.approx(rough.lower, rel=1e-6)


@pytest.mark.parametrize("width", [1, 3, 6])
@pytest.mark.parametrize("depth", [2, 5])
def test_an_autoencoder_has_twice_the_depth_times_the_largest_eigenvalue(width, depth):
    X = np.random.default_rng(5).normal(size=(30, 6)) * np.geomspace(2, 0.2, 6)
    problem = dl.Problem.from_data(X, X)
    expected = 2 * depth * problem.largest_eigenvalue
    found = minimal_sharpness(problem, depth, width=width)
    assert found.exact == pytest.approx(expected, rel=1e-11)
    assert dl.critical_learning_rate(problem, depth, width=width) == pytest.approx(2 / expected)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_white_inputs_do_not_feel_the_bottleneck(width):
    optimum = np.random.default_rng(1).normal(size=(4, 5))
    for target in (optimum, np.eye(5)):  # with ties, too
        problem = of_moments(np.eye(5), target)
        expected = 6 * np.linalg.norm(target, 2) ** (4 / 3)
        assert minimal_sharpness(problem, 3, width=width).exact == pytest.approx(expected)


def test_a_width_of_at_least_the_rank_changes_nothing():
    problem, low = reference_problem(), of_moments(np.diag([1.0, 2.0, 3.0]), np.eye(2, 3)[:1])
    assert minimal_sharpness(problem, 3, width=3).exact == minimal_sharpness(problem, 3).exact
    assert minimal_sharpness(low, 3, width=1).exact == minimal_sharpness(low, 3).exact


def test_softmax_takes_a_width_and_its_minimizer_attains_the_value():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3)) * [1, 0.5, 1.5]
    scores = X @ rng.normal(size=(3, 4)) + 2 * rng.gumbel(size=(60, 4))
    problem = dl.Problem.from_data(X, scores.argmax(axis=1), loss="softmax")
    found = minimal_sharpness(problem, 2, width=1)
    assert found.lower == pytest.approx(found.exact, rel=1e-6)
    W1, W2 = (np.asarray(weight) for weight in found.attaining(1).weights)
    np.testing.assert_allclose(W2 @ W1, problem.best_of_rank(1).product, atol=1e-12)
    dense = dl.sharpness(problem, found.attaining(1), method="dense").value
    assert dense == pytest.approx(found.exact, rel=1e-8)


def test_the_scale_of_lora_divides_the_rate_and_rates_count_by_their_mean():
    problem = reference_problem()
    plain = dl.critical_learning_rate(problem, 2, width=1)
    assert dl.critical_learning_rate(problem, 2, width=1, scale=4.0) == pytest.approx(plain / 4)
    heavy = dl.critical_learning_rate(problem, 2, width=1, momentum=0.5)
    assert heavy == pytest.approx(1.5 * plain)
    layerwise = dl.theory.layerwise_sharpness(problem, [4.0, 0.25], width=1)
    assert layerwise == pytest.approx(2 / plain)
    several = dl.critical_learning_rate(problem, range(2, 4), width=1)
    assert several.shape == (2,)
    assert several[0] == plain


def test_a_program_that_is_too_large_gives_its_bracket():
    rng = np.random.default_rng(0)
    optimum = rng.normal(size=(60, 60))
    problem = of_moments(np.diag(np.geomspace(1, 0.1, 60)), optimum)
    found = minimal_sharpness(problem, 3, width=50)
    assert 0 < found.lower < found.upper < 1.1 * found.lower
    with pytest.raises(dl.InputError, match="too large"):
        _ = found.exact
    with pytest.raises(dl.InputError, match="between"):
        dl.critical_learning_rate(problem, 3, width=50)


def test_what_is_not_known_for_a_bottleneck_is_refused():
    problem = reference_problem()
    for arguments in ({"weight_decay": 0.1}, {"paths": 2}, {"batch_size": 4}):
        with pytest.raises(dl.InputError, match="width 1"):
            dl.critical_learning_rate(problem, 2, width=1, **arguments)
