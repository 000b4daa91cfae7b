from dataclasses import replace
from itertools import pairwise

import counterexamples
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deeplin as dl
from deeplin.certificates.certificate import HOLDS, MEASURED, UNMET, VIOLATED, certify
from deeplin.dynamics import gradient_flow
from deeplin.networks.products import extreme_singular, singular_values
from deeplin.theory import balanced_sharpness, minimal_sharpness
from deeplin.theory.bounds import flow_end_bounds, initialization_scale, lojasiewicz_constant

STRICT = ["FM-A1", "FM-L1", "FM-ε", "FM-L2", "FM-T3", "FM-L7", "FM-A2", "FM-C1", "FM-C2", "X-19"]


@pytest.fixture(scope="module")
def strict():
    """A start small enough for FM-A2, and its flow to a minimizer."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(40, 3))
    y = X @ rng.normal(size=3) + 0.5 * rng.normal(size=40)
    scale = 1.5 / dl.Problem.from_data(X, y).optimum_norm
    problem = dl.Problem.from_data(X, scale * y)
    net = dl.initialize.zero_layer(jax.random.key(0), (3, 3, 1), 0.002)
    return problem, gradient_flow(problem, net, until=20.0, record_every=0.5)


def test_scale_of_the_start_is_its_definition(rng):
    weights = [rng.normal(size=shape) for shape in ((4, 5), (3, 4), (1, 3))]
    norms = [np.sum(w**2) for w in weights]
    gaps = [np.linalg.norm(a @ a.T - b.T @ b, 2) for a, b in pairwise(weights)]
    expected = 3 * max(norms) + 2 * sum(gaps)
    assert initialization_scale(dl.Network(weights)) == pytest.approx(expected, rel=1e-12)
    batch = dl.Network([np.stack([w, 2 * w]) for w in weights])
    np.testing.assert_allclose(initialization_scale(batch), [expected, 4 * expected], rtol=1e-12)


@given(depth=st.integers(2, 6), log_epsilon=st.floats(-12, 0), share=st.floats(0.01, 0.99))
def test_best_constant_is_the_maximum_over_all_thresholds(depth, log_epsilon, share):
    problem = dl.problems.synthetic.flat_minima(0).problem
    epsilon = np.exp(log_epsilon)
    start = problem.target_moment - problem.minimal_risk
    best = lojasiewicz_constant(problem, depth, epsilon, share * start)
    size, Lambda = problem.optimum_norm, problem.largest_eigenvalue
    b = min((1 - share) * start / (4 * Lambda * size), size)
    floor = np.sqrt(2 * epsilon) * depth
    C = floor + np.geomspace(1e-9, 1e3, 20_001)
    tried = 4 * problem.smallest_eigenvalue * np.minimum((C - floor) ** (depth - 1), b / C) ** 2
    assert best.constant >= tried.max() * (1 - 1e-12)
    assert best.constant == pytest.approx(tried.max(), rel=2e-2)  # the grid is that coarse
    assert best.threshold > floor


def test_no_progress_gives_no_constant(problem):
    start = problem.target_moment - problem.minimal_risk
    assert lojasiewicz_constant(problem, 3, 0.01, 2 * start).constant == 0


def test_every_statement_holds_from_a_strictly_small_start(strict):
    table = certify(*strict, only=STRICT)
    expected = [MEASURED if id == "FM-ε" else HOLDS for id in STRICT]
    assert list(table["verdict"]) == expected, table.to_string()


def test_strict_run_breaks_nothing_else(strict):
    table = certify(*strict)
    assert table.all_hold, table.violated.to_string()


def test_measured_convergence_is_faster_than_the_certified_rate(strict):
    row = certify(*strict, only="FM-L7").iloc[0]
    assert row.left < row.right


def test_a_large_start_meets_no_second_assumption(problem):
    net = dl.initialize.gaussian(jax.random.key(0), (5, 5, 1), 0.5)
    table = certify(problem, net, only=["FM-A2", "FM-C1", "FM-C2"])
    assert list(table["verdict"]) == [UNMET] * 3
    assert "FM-A2" in table.iloc[1].hypotheses


def test_final_sharpness_tends_to_the_balanced_one_as_the_start_vanishes(strict):
    """X-3: the distance to S_bal falls with ε; the factor 4Λ/λ of FM-C2 is far from it."""
    problem, _ = strict
    distances = []
    for scale in (0.2, 0.06, 0.02):
        net = dl.initialize.zero_layer(jax.random.key(0), (3, 3, 1), scale)
        run = gradient_flow(problem, net, gap=1e-13)
        reached = dl.sharpness(problem, run.network, method="exact").value
        distances.append(abs(reached / balanced_sharpness(problem, 2) - 1))
    assert distances[0] > 5 * distances[1] > 25 * distances[2]
    assert distances[-1] < 1e-3
    assert balanced_sharpness(problem, 2) < 1.5 * minimal_sharpness(problem, 2).exact


@pytest.fixture(scope="module")
def five_inputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 5))
    return dl.Problem.from_data(X, X @ rng.normal(size=5) + 0.5 * rng.normal(size=50))


@pytest.mark.parametrize(("depth", "scale"), [(2, 0.05), (3, 0.03), (5, 0.02)])
def test_sharpness_at_the_end_lies_in_its_interval_without_the_second_assumption(
    five_inputs, depth, scale
):
    """X-19: |S/S_bal − 1| is far below FM's factor 4Λ/λ, and inside an interval that is too."""
    net = dl.initialize.zero_layer(jax.random.key(1), (5,) * depth + (1,), scale)
    run = gradient_flow(five_inputs, net, gap=1e-11)
    bounds = flow_end_bounds(net, five_inputs.optimum_norm)
    reached = dl.sharpness(five_inputs, run.network, method="exact").value
    low, high = bounds.sharpness_ratio
    assert low <= reached / balanced_sharpness(five_inputs, depth) <= high
    assert high < 0.3 * 4 * five_inputs.condition_number
    r = five_inputs.optimum_norm ** (2 / depth)
    sigma = [np.linalg.norm(np.asarray(w), 2) for w in run.network.weights]
    assert np.max(np.abs(np.square(sigma) - r)) <= 2 * bounds.imbalance + 1e-5 * r  # of the gap
    table = certify(five_inputs, run, only=["FM-A2", "X-19"])
    assert list(table["verdict"]) == [UNMET, HOLDS], table.to_string()


def test_bounds_of_the_end_are_their_definition(rng):
    weights = [0.1 * rng.normal(size=shape) for shape in ((4, 5), (3, 4), (1, 3))]
    size, L = 2.0, 3
    gaps = [np.linalg.norm(a @ a.T - b.T @ b, 2) for a, b in pairwise(weights)]
    norms = [np.sum(w**2) for w in weights]
    Delta, r = sum(gaps), size ** (2 / L)
    omega = Delta + max(0, *(norm - norms[-1] for norm in norms))
    found = flow_end_bounds(dl.Network(weights), size)
    assert (found.imbalance, found.excess) == pytest.approx((Delta, omega), rel=1e-12)
    assert found.singular_squares == pytest.approx((r - 2 * Delta, r + 2 * Delta), rel=1e-12)
    delta = 2 * Delta / r
    low = min((1 - delta) ** 2, 1 / (1 + delta))
    high = max((1 + delta) ** 2 * (1 + 2 * omega / (r + 2 * Delta)), 1 / (1 - delta))
    assert found.sharpness_ratio == pytest.approx((low, high), rel=1e-12)
    batch = dl.Network([np.stack([w, 10 * w]) for w in weights])
    found = flow_end_bounds(batch, [size, size])
    np.testing.assert_allclose(found.imbalance, [Delta, 100 * Delta], rtol=1e-12)
    assert (found.sharpness_ratio[0][1], found.sharpness_ratio[1][1]) == (0, np.inf)


def test_under_the_second_assumption_the_interval_is_a_part_in_a_thousand():
    """X-19: 2Δ ≤ ε, ω ≤ ε/2, r ≥ 1 and 32L√ε ≤ 1 make S/S_bal at most 1.0015, for every depth."""
    for L in range(2, 60):
        epsilon = (32 * L) ** -2.0
        delta, omega = epsilon, epsilon / 2
        high = max((1 + delta) ** (L - 1) * (1 + (L - 1) * omega / (1 + delta)), 1 / (1 - delta))
        assert high <= np.exp(1.5 * (L - 1) * epsilon) + 1e-15
        assert high <= 1.0015


def test_no_flow_at_random_leaves_its_bounds():
    """200 flows here, at eleven times each; `counterexamples.py` integrates 10 000."""
    margins = counterexamples.along_the_flow(200, seed=1, steps=400)
    assert min(margins.values()) >= -1e-12


def test_a_corrupted_flow_violates_the_bounds_of_its_end(strict):
    """The same end from another start: what is conserved no longer fits."""
    problem, run = strict
    first, last = run.network.weights
    moved = replace(run, network=dl.Network([2 * first, last / 2]), trajectory=None)
    parts = certify(problem, moved, only="X-19", parts=True).set_index("part")
    assert parts.loc["σ_k² ≤ r + 2Δ", "verdict"] == VIOLATED
    assert parts.loc["S/S_bal, upper", "verdict"] == VIOLATED


def test_bounds_of_the_end_need_one_output():
    net = dl.initialize.gaussian(jax.random.key(0), (3, 3, 2), 0.1)
    with pytest.raises(dl.InputError, match="one output"):
        flow_end_bounds(net, 1.0)


@given(
    shape=st.sampled_from([(1, 1), (1, 5), (5, 1), (5, 5), (3, 7), (7, 3), (20, 18)]),
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["gaussian", "rank one", "orthogonal", "clustered", "tiny", "graded"]),
)
def test_extreme_singular_values_are_those_of_lapack(shape, seed, kind):
    rng = np.random.default_rng(seed)
    stack = rng.normal(size=(3, 2, *shape))
    if kind == "rank one":
        stack = stack[..., :1] * stack[..., :1, :]
    elif kind == "orthogonal":
        stack = np.broadcast_to(np.eye(*shape), stack.shape)
    elif kind == "clustered":  # cosines are slight and the angles to turn are not
        stack = np.eye(*shape) + 1e-9 * stack
    elif kind == "tiny":
        stack = stack * 1e-150
    elif kind == "graded":
        stack = stack * np.geomspace(1, 1e-12, shape[1])
    found = extreme_singular(stack)
    values = np.linalg.svd(stack, compute_uv=False)
    size = values[..., 0]
    np.testing.assert_allclose(found.largest, size, rtol=1e-13)
    assert np.all(np.abs(found.smallest - values[..., -1]) <= 1e-14 * size)
    both = np.stack([found.largest, found.smallest], axis=-1)
    ends = singular_values(stack)[..., [0, -1]]
    np.testing.assert_allclose(ends, both, rtol=0, atol=1e-14 * size.max())
    carried = np.einsum("abi,abij,abj->ab", found.left, stack, found.right)
    np.testing.assert_allclose(carried, size, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found.left, axis=-1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found.right, axis=-1), 1, rtol=1e-12)


def test_a_matrix_that_is_not_finite_does_not_change_the_others(rng):
    stack = rng.normal(size=(5, 3, 3))
    expected = singular_values(stack)
    stack[1, 0, 2], stack[3, 1, 1] = np.nan, np.inf
    found = singular_values(stack)
    np.testing.assert_array_equal(found[::2], expected[::2])
    assert np.isnan(found[1::2]).all()


def test_zero_matrices_have_singular_value_zero_and_unit_vectors():
    found = extreme_singular(np.zeros((2, 3, 3)))
    np.testing.assert_array_equal(found.largest, 0)
    np.testing.assert_array_equal(np.linalg.norm(found.left, axis=-1), 1)
    np.testing.assert_array_equal(np.linalg.norm(found.right, axis=-1), 1)
