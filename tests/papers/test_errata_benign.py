"""Where BO's printed statements and the algebra disagree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deeplin as dl
from deeplin.certificates.certificate import certify
from deeplin.dynamics import UnstableStep, simulate_wide
from deeplin.networks.network import Data, data_risk
from deeplin.problems import Population, synthetic
from deeplin.theory import risk_split

N, D, M = 8, 20, 40


@pytest.fixture(scope="module")
def zero_start():
    """E-4: β = 0 and a Gaussian first layer; the flow goes on to a loss below 1e-20."""
    rng = np.random.default_rng(0)
    problem = dl.Problem.from_data(rng.normal(size=(N, D)), rng.normal(size=(N, 2)))
    wide = simulate_wide(
        problem,
        M,
        3,
        1 / np.sqrt(M),
        0.0,
        jax.random.key(1),
        dynamics="flow",
        loss_target=1e-21,
        record_every=5,
    )
    return problem, wide


def test_errata_E4_a_zero_initial_function_does_not_keep_theta_perp_at_zero(zero_start):
    problem, wide = zero_start
    assert wide.status == "converged"
    assert wide.loss < 1e-20
    assert np.all(np.asarray(wide.as_run().initial.product) == 0)
    assert np.linalg.norm(wide.theta_perp) > 0.1
    assert np.linalg.norm(problem.inputs @ wide.theta.T - problem.target_columns) < 1e-9


def test_errata_E4_the_certificate_reports_the_printed_case_as_violated(zero_start):
    problem, wide = zero_start
    table = certify(problem, wide.as_run(), only=["E-4", "BO-L4.5", "BO-L5.5", "X-6"])
    assert list(table["verdict"]) == ["violated", "holds", "holds", "holds"]


def test_errata_E4_the_printed_case_holds_where_its_correct_condition_does(zero_start):
    """X-6: for α = 0 the part VᵀW_1(0)(I − P_X) vanishes, and Θ_⊥ stays at zero."""
    problem, _ = zero_start
    wide = simulate_wide(
        problem, M, 3, 0.0, 1 / np.sqrt(M), jax.random.key(1), dynamics="flow", loss_target=1e-21
    )
    table = certify(problem, wide.as_run(), only=["E-4", "X-6"])
    assert set(table["verdict"]) == {"holds"}
    assert np.linalg.norm(wide.theta - problem.optimum) < 1e-9


def test_errata_E5_the_gradient_of_the_sum_of_squares_has_a_factor_two(zero_start):
    """BO eq. (4) prints ∇_{W_j}ℒ without it; automatic differentiation finds it."""
    problem, _ = zero_start
    X, Y = problem.inputs, problem.target_columns
    net = dl.initialize.gaussian(jax.random.key(2), (D, 6, 5, 2), 0.4)

    def loss(weights):
        return jnp.sum((Y - X @ dl.Network(weights).product.T) ** 2)

    _, W2, W3 = net.weights
    printed = (W3 @ W2).T @ (X @ net.product.T - Y).T @ X
    assert np.allclose(jax.jit(jax.grad(loss))(net.weights)[0], 2 * printed, rtol=1e-12)


@given(st.integers(2, 8), st.integers(1, 7), st.integers(0, 10**6))
def test_errata_E5_what_couples_the_data_to_the_rest_is_half_a_norm(d, rank, seed):
    """‖(I−P)MP‖ ≤ ‖M‖/2 for M ⪰ 0, so Lemma 4.5 keeps its printed constant: 2 · ½ = 1.

    Applied to M = A_jᵀA_j in dΘ_⊥/dt = −2Σ_j (I−P)A_jᵀA_jP Xᵀ(XΘ−Y)B_jB_jᵀ.
    """
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(rng.integers(1, d + 1), d)) * rng.lognormal(size=d)
    basis = np.linalg.qr(rng.normal(size=(d, min(rank, d))))[0]
    inside = basis @ basis.T
    M = factor.T @ factor
    coupling = np.linalg.norm((np.eye(d) - inside) @ M @ inside, 2)
    assert coupling <= np.linalg.norm(M, 2) / 2 * (1 + 1e-12)


def test_errata_E5_the_constant_of_lemma_4_5_is_attained():
    """One sample, one unit, W_1 = (1, 1)/√2, W_2 = 0: ‖dΘ_⊥/dt‖ = (L−1)B²‖X‖√ℒ with B = 1."""
    x, y, time = np.array([1.0, 0.0]), 1.0, 1e-6
    first, last = np.array([1.0, 1.0]) / np.sqrt(2), 0.0

    def loss(weights):
        return (y - weights[1] * (weights[0] @ x)) ** 2

    slope = jax.jit(jax.grad(loss))((first, last))
    moved = (last - time * slope[1]) * (first - time * slope[0])
    assert abs(moved[1]) / time == pytest.approx(1.0, rel=1e-5)  # L − 1 = ‖X‖ = √ℒ(0) = 1


def test_errata_E6_entries_of_size_alpha_have_singular_values_of_size_alpha_root_m():
    alpha, m, d = 0.3, 2000, 50
    rng = np.random.default_rng(0)
    singular = np.linalg.svd(alpha * rng.normal(size=(m, d)), compute_uv=False)
    assert singular[-1] > 10 * (2 * alpha)  # printed: all of them below 2α
    scaled = singular / np.sqrt(m)
    assert alpha / 2 < scaled[-1]
    assert scaled[0] < 2 * alpha


def test_errata_E10_at_alpha_zero_the_relu_network_is_dead():
    data = synthetic.relu_teacher(0, samples=40)
    linear = dl.initialize.identity_middle(jax.random.key(0), 10, 50, 3, 3, 0.0, 1.0)
    network = dl.Network(linear.weights, activation="relu")
    rows = Data(*map(jnp.asarray, (data.problem.inputs, data.problem.target_columns)))
    gradient = jax.jit(jax.grad(data_risk, argnums=1))
    slope = gradient(rows, network)
    assert all(np.all(np.asarray(weight) == 0) for weight in slope.weights)
    assert np.all(np.asarray(network(rows.inputs)) == 0)
    alive = dl.Network(
        dl.initialize.identity_middle(jax.random.key(0), 10, 50, 3, 3, 1e-3, 1.0).weights,
        activation="relu",
    )
    assert any(np.any(np.asarray(weight) != 0) for weight in gradient(rows, alive).weights)


def test_errata_E11_the_authors_step_is_past_the_stability_limit_at_d_2000():
    """Step 1e-4 catapults to another minimiser than a tenth of it, which follows the flow."""
    d, runs = 2000, 4
    problems = [synthetic.spiked(seed, d).problem for seed in range(runs)]
    keys = jax.random.split(jax.random.key(0), runs)
    predicted = 1e-6 * (d - 100) * 10 * (d + 3) * 3  # α²(d−n)mq
    with pytest.warns(UnstableStep, match="4 of 4"):
        as_run, careful = (
            simulate_wide(problems, 10 * (d + 3), 3, 1e-3, 1.0, keys, learning_rate=rate)
            for rate in (1e-4, 1e-5)
        )
    numbers = [1e-4 / 3 * start.curvature() for start in as_run.starts]
    assert np.mean(numbers) == pytest.approx(2.45, rel=0.05)
    assert set(as_run.status) == {"converged"}
    assert careful.distance.mean() == pytest.approx(predicted, rel=0.05)
    assert as_run.distance.mean() < 0.8 * predicted


def test_errata_E11_some_draws_are_past_the_limit_already_at_d_1600():
    d, runs = 1600, 6
    problems = [synthetic.spiked(seed, d).problem for seed in range(runs)]
    keys = jax.random.split(jax.random.key(0), runs)
    with pytest.warns(UnstableStep, match="1 of 6"):
        wide = simulate_wide(problems, 10 * (d + 3), 3, 1e-3, 1.0, keys, max_steps=1)
    numbers = np.array([1e-4 / 3 * start.curvature() for start in wide.starts])
    assert numbers.min() < 2 < numbers.max()


def _deep(depth, alpha=0.001):
    """A flow whose start meets the conditions of BO-P5.2, and its certificate."""
    problem = synthetic.spiked(0, 6, samples=2, outputs=1, spikes=6).problem
    m, beta = 10**6, 30 * np.sqrt(depth)
    scales = alpha / np.sqrt(m), beta / np.sqrt(m)
    wide = simulate_wide(
        problem,
        m,
        depth,
        *scales,
        jax.random.key(0),
        dynamics="flow",
        loss_target=1e-6,
        record_every=4,
    )
    table = certify(problem, wide.as_run(), only="E-19", parts=True)
    assert set(table["verdict"]) == {"measured"}
    assert not any(table["hypotheses"])
    return wide.as_run(), table["left"].to_numpy()


@pytest.mark.extended
def test_errata_E19_the_constant_over_all_subsets_grows_like_the_depth():
    (_, shallow), (_, deep) = (_deep(depth) for depth in (3, 24))
    assert shallow[0] == pytest.approx(3, rel=0.1)  # B/((α + 1/L)β) ≈ L
    assert deep[0] == pytest.approx(24, rel=0.1)
    assert max(shallow[1], deep[1]) < 1  # over the subsets with layer 1


def test_errata_E19_the_two_factors_of_lemma_5_5_differ_in_size():
    """Products over [L]∖{1, j} have size β, over [L]∖{j} size (α + 1/L)β: by brute force."""
    run, _ = _deep(3)
    norms = [np.linalg.norm(np.asarray(w), 2, axis=(-2, -1)) for w in run.trajectory.weights]
    beta = 30 * np.sqrt(3)
    for j in (1, 2):
        beside = np.prod([norms[k] for k in range(3) if k not in (0, j)], axis=0).max()
        through = np.prod([norms[k] for k in range(3) if k != j], axis=0).max()
        expected = beta if j == 1 else 1.0  # without the last layer nothing has size β
        assert beside == pytest.approx(expected, rel=0.1)
        assert through < (0.001 + 1 / 3) * beta


def test_errata_E20_the_risk_of_one_draw_is_not_the_sum_of_its_parts():
    cell = synthetic.spiked(0, 30, samples=6, outputs=2, spikes=2)
    population = Population(cell.truth, cell.spectrum)
    split = risk_split(cell.problem, population, cell.problem.optimum)
    X, noise = cell.problem.inputs, cell.problem.target_columns - cell.problem.inputs @ cell.truth.T
    inverse = np.linalg.pinv(X)
    missed = cell.truth.T - inverse @ X @ cell.truth.T
    cross = -2 * np.trace(missed.T @ (cell.spectrum[:, None] * (inverse @ noise)))
    assert split.total == pytest.approx(split.bias + split.noise + cross, rel=1e-10)
    assert abs(cross) > 1e-3 * split.total


def test_errata_E21_each_column_needs_no_factor_q():
    """P(ωᵀCω ≤ Tr(C)(1 + 2√t + 2t)) ≥ 1 − e^{−t}, t = log(q/δ), by 20 000 draws."""
    rng = np.random.default_rng(0)
    q, delta = 50, 0.1
    weights = rng.lognormal(0, 1, size=8)
    draws = rng.normal(size=(20_000, 8)) ** 2 @ weights
    t = np.log(q / delta)
    bound = weights.sum() * (1 + 2 * np.sqrt(t) + 2 * t)
    assert np.mean(draws > bound) <= delta / q
    assert bound < q * t * weights.sum() / 2  # what is printed for each column, with c = 1/2


@pytest.mark.parametrize("unit", [0.01, 1.0, 100.0])
def test_errata_E30_the_deviation_must_scale_with_the_inputs(unit):
    """‖X‖ and √(ns_0) scale with the unit of the inputs; √(nr_0) = √(ns_0/λ_1) does not."""
    rng, n = np.random.default_rng(0), 30
    spectrum = unit**2 / np.arange(1, 41)
    X = rng.normal(size=(n, 40)) * np.sqrt(spectrum)
    lemma, printed = np.sqrt(n * spectrum.sum()), np.sqrt(n * spectrum.sum() / spectrum[0])
    assert np.linalg.norm(X) < 2 * lemma
    assert printed == pytest.approx(lemma / unit, rel=1e-12)
    # η² = ns_0 makes the exponent η²/λ_1 the nr_0 that the next words need
    assert lemma**2 / spectrum[0] == pytest.approx(printed**2, rel=1e-12)


def test_errata_E31_a_good_first_layer_has_singular_values_below_one():
    m, d, alpha, beta = 4000, 12, 0.5, 2.0
    scales = alpha / np.sqrt(m), beta / np.sqrt(m)
    net = dl.initialize.identity_middle(jax.random.key(0), d, m, 2, 2, *scales)
    first, last = (np.linalg.svd(np.asarray(w), compute_uv=False) for w in net.weights)
    assert alpha / 2 < first[-1] < first[0] < 2 * alpha  # good, and below 1
    assert first[0] < 1
    assert last[-1] > beta / 2


def test_errata_E31_the_layers_above_lose_at_most_a_factor_e():
    depths = np.arange(2, 2000)
    assert ((1 - 1 / (2 * depths)) ** (2 * (depths - 1)) >= np.exp(-1)).all()
