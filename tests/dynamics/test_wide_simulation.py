"""Simulated wide networks against the networks they stand for."""

import warnings

import dense_network
import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics import UnstableStep, reduce, simulate_wide
from deeplin.problems import Population, synthetic

KEY = jax.random.key(7)


@pytest.fixture
def data():
    return synthetic.spiked(3, 30, samples=8, outputs=2, spikes=3, epsilon=0.1)


def _simulate(problem, **options):
    defaults = {"width": 60, "depth": 3, "alpha": 0.1, "beta": 0.3, "key": KEY}
    return simulate_wide(problem, **defaults | {"learning_rate": 0.05} | options)


# --- it is the training of the wide network --------------------------------------------------


@pytest.mark.parametrize(
    ("width", "depth", "momentum"),
    [(4, 3, 0.0), (10, 3, 0.8), (500, 3, 0.8), (500, 3, 0.0), (500, 2, 0.0), (10, 5, 0.0)],
)
def test_theta_is_that_of_dense_descent_from_the_same_start(data, depth, width, momentum):
    """Below width 10 = n + q the network is simulated in full."""
    problem, steps = data.problem, 60
    wide = _simulate(
        problem,
        width=width,
        depth=depth,
        alpha=1 / np.sqrt(width),
        beta=1 / np.sqrt(width),
        max_steps=steps,
        loss_target=0,
        momentum=momentum,
        learning_rate=0.02,
    )
    start = wide.as_run().initial.weights
    assert start[0].shape == (min(width, 10), 30)
    weights = dense_network.descend(
        problem.inputs, problem.target_columns, start, 0.02 / 2, steps, momentum
    )
    theta = dense_network.product(weights)
    assert np.allclose(wide.theta, theta, rtol=0, atol=1e-11 * np.linalg.norm(theta))
    residual = problem.target_columns - problem.inputs @ theta.T
    assert wide.loss == pytest.approx(np.mean(residual**2), rel=1e-9)
    assert wide.steps == steps
    assert wide.status == "stopped"


def test_the_parts_of_theta_add_up(data):
    wide = _simulate(data.problem)
    basis = data.problem.spectrum.vectors
    assert np.allclose(wide.theta_perp, wide.theta - wide.theta @ basis @ basis.T, atol=1e-12)
    expected = np.linalg.pinv(data.problem.inputs) @ data.problem.target_columns
    assert np.allclose(wide.interpolant, expected.T)
    assert wide.distance == pytest.approx(np.sum((wide.theta - wide.interpolant) ** 2))


def test_descent_stops_at_the_loss_target(data):
    wide = _simulate(data.problem, loss_target=1e-7)
    assert wide.status == "converged"
    assert wide.loss <= 1e-7
    earlier = _simulate(data.problem, loss_target=1e-7, max_steps=wide.steps - 1)
    assert earlier.loss > 1e-7
    assert earlier.status == "stopped"
    assert "raise max_steps" in earlier.message
    assert wide.message == ""


def test_one_output_gives_a_vector_theta_whatever_the_shape_of_y():
    problem = synthetic.spiked(3, 30, samples=8, outputs=1, spikes=3, epsilon=0.1).problem
    source = dl.Problem.from_data(problem.inputs, problem.target_columns)
    wide = _simulate(problem, max_steps=10, loss_target=0)
    column = _simulate(source, max_steps=10, loss_target=0)
    assert wide.theta.shape == (30,)
    assert np.array_equal(wide.theta, column.theta)


def test_the_risk_is_the_exact_population_risk(data):
    population = Population(data.truth, data.spectrum)
    wide = _simulate(data.problem, population=population)
    difference = wide.theta - data.truth
    assert wide.risk == pytest.approx(np.sum(data.spectrum * difference**2))
    without = _simulate(data.problem)
    assert (without.risk, without.added_risk, without.cross_term) == (None, None, None)


def test_the_risk_is_that_on_the_data_plus_what_theta_perp_adds_plus_the_cross_term(data):
    population = Population(data.truth, data.spectrum)
    wide = _simulate(data.problem, population=population, key=jax.random.split(KEY, 3))
    weight = data.spectrum
    for k in range(3):
        beside, inside = wide.theta_perp[k], wide.theta[k] - wide.theta_perp[k]
        assert wide.added_risk[k] == pytest.approx(np.sum(weight * beside**2), rel=1e-12)
        cross = 2 * np.sum(weight * (inside - data.truth) * beside)
        assert wide.cross_term[k] == pytest.approx(cross, rel=1e-12)
        parts = population.risk(inside) + wide.added_risk[k] + wide.cross_term[k]
        assert wide.risk[k] == pytest.approx(parts, rel=1e-12)


def test_the_expected_distance_is_the_mean_over_the_first_layer_beside_the_data(data):
    """X-25: 400 draws of Θ_⊥ = (I−P)W_1(0)ᵀU for one trained U."""
    wide = _simulate(data.problem)
    beside, layers = data.problem.spectrum.orthogonal_part, wide.courses[0].layers[-1]
    backward = dense_network.product(layers[1:]).T
    rng = np.random.default_rng(0)
    draws = [
        np.sum(beside(0.1 * rng.standard_normal((30, len(backward))) @ backward) ** 2)
        for _ in range(400)
    ]
    assert abs(np.mean(draws) - wide.expected_distance) < 4 * np.std(draws) / 20


def test_the_path_is_the_sum_of_root_losses_in_the_papers_time(data):
    problem, steps = data.problem, 25
    wide = _simulate(problem, max_steps=steps, loss_target=0)
    weights, total = wide.as_run().initial.weights, 0.0
    for _ in range(steps):
        theta = dense_network.product(weights).T
        total += 0.05 / (8 * 2) * np.linalg.norm(problem.target_columns - problem.inputs @ theta)
        weights = dense_network.descend(
            problem.inputs, problem.target_columns, weights, 0.05 / 2, 1
        )
    assert wide.path == pytest.approx(total, rel=1e-9)


# --- X-6 -------------------------------------------------------------------------------------


def test_a_zero_first_layer_ends_at_the_minimum_norm_interpolant(data):
    wide = _simulate(data.problem, alpha=0.0, loss_target=1e-26)
    assert wide.status == "converged"
    assert np.all(wide.theta_perp == 0)
    assert np.sqrt(wide.distance) < 1e-10 * np.linalg.norm(wide.interpolant)


def test_the_modified_identity_ends_at_the_minimum_norm_interpolant(data):
    network = dl.initialize.modified_identity(30, 2, 3)
    reduction = reduce(data.problem, network)
    assert reduction.network.widths == (8, 10, 10, 2)
    run = dl.gradient_descent(reduction.problem, reduction.network, 0.02, 200_000, gap=1e-27)
    assert run.status == "converged"
    theta = reduction.theta(run.network)
    assert np.linalg.norm(theta - data.problem.optimum) < 1e-10


def test_a_zero_last_layer_does_not_end_at_the_minimum_norm_interpolant(data):
    wide = _simulate(data.problem, alpha=0.3, beta=0.0, loss_target=1e-26, learning_rate=0.02)
    assert wide.status == "converged"
    start = _simulate(data.problem, alpha=0.3, beta=0.0, max_steps=1).as_run().initial
    assert np.all(np.asarray(start.product) == 0)
    assert np.linalg.norm(wide.theta_perp) > 0.1 * np.linalg.norm(wide.interpolant)


# --- batches ---------------------------------------------------------------------------------


def test_a_batch_is_its_runs_bit_by_bit():
    cells = [synthetic.spiked(seed, 30, samples=8, outputs=2) for seed in range(3)]
    problems = [cell.problem for cell in cells]
    populations = [Population(cell.truth, cell.spectrum) for cell in cells]
    keys = jax.random.split(KEY, 3)
    alphas, rates = [0.0, 0.1, 0.2], [0.02, 0.015, 0.01]
    batch = _simulate(problems, key=keys, alpha=alphas, learning_rate=rates, population=populations)
    assert batch.theta.shape == (3, 2, 30)
    for k in range(3):
        alone = _simulate(
            problems[k],
            key=keys[k],
            alpha=alphas[k],
            learning_rate=rates[k],
            population=populations[k],
        )
        for name in ("theta", "distance", "loss", "steps", "status", "risk", "path"):
            assert np.array_equal(getattr(batch, name)[k], getattr(alone, name)), name


def test_one_key_for_many_problems_and_one_problem_for_many_keys(data):
    keys = jax.random.split(KEY, 2)
    assert _simulate(data.problem, key=keys, max_steps=5).theta.shape == (2, 2, 30)
    twice = _simulate([data.problem, data.problem], max_steps=5)
    assert np.array_equal(twice.theta[0], twice.theta[1])


def test_a_diverged_run_does_not_change_the_others(data):
    keys = jax.random.split(KEY, 3)
    with pytest.warns(UnstableStep, match="1 of 3"):
        batch = _simulate(data.problem, key=keys, learning_rate=[0.05, 5.0, 0.05])
    assert list(batch.status) == ["converged", "diverged", "converged"]
    assert np.isfinite(batch.theta).all()
    alone = _simulate(data.problem, key=keys[2])
    assert np.array_equal(batch.theta[2], alone.theta)


# --- stability -------------------------------------------------------------------------------


def test_the_stability_number_is_the_top_of_the_dense_hessian(data):
    wide = _simulate(data.problem, width=40, max_steps=1)
    full = dl.sharpness(data.problem, wide.as_run().initial, method="lanczos", tolerance=1e-12)
    assert wide.stability == pytest.approx(0.05 / 2 * full.value, rel=1e-9)


def test_an_unstable_step_is_reported_with_its_number_and_a_step_that_works(data):
    with pytest.warns(UnstableStep) as caught:
        wide = _simulate(data.problem, learning_rate=2.0)
    assert wide.status == "diverged"
    assert wide.stability > 2
    text = str(caught[-1].message)
    assert "η·λ_max" in text
    assert text in repr(wide)
    suggested = float(text.split("below ")[-1].rstrip("."))
    assert suggested == pytest.approx(2 * 2.0 / wide.stability, rel=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _simulate(data.problem, learning_rate=0.9 * suggested).status == "converged"


def test_a_share_of_the_stable_limit_is_a_learning_rate(data):
    """The limit is that of the Gauss-Newton part, which is all there is in a wide network."""
    wide = {"width": 10**6, "alpha": 1e-4, "beta": 1e-2}
    run = _simulate(data.problem, stable_share=0.5, max_steps=1, **wide)
    assert run.stability == pytest.approx(0.5 * 2, rel=0.01)
    keys = jax.random.split(KEY, 2)
    ball = _simulate(
        data.problem, stable_share=[0.5, 0.9], key=keys, momentum=0.5, max_steps=1, **wide
    )
    np.testing.assert_allclose(ball.stability, [0.5 * 3, 0.9 * 3], rtol=0.01)
    rate = 2 * run.learning_rate  # on the mean loss
    same, shared = (
        _simulate(data.problem, max_steps=40, loss_target=0, **wide | options)
        for options in ({"learning_rate": rate}, {"stable_share": 0.5})
    )
    np.testing.assert_allclose(same.theta, shared.theta, rtol=1e-12)


def test_a_rate_above_the_stable_limit_is_announced_with_how_far(data):
    with pytest.warns(UnstableStep, match=r"1 of 2 run\(s\).*up to 1.2 times.*stable_share=0.5"):
        _simulate(data.problem, stable_share=[0.5, 1.2], key=jax.random.split(KEY, 2), max_steps=2)


# --- records ---------------------------------------------------------------------------------


def test_records_are_those_of_the_compact_network(data):
    wide = _simulate(data.problem, record_every=10, max_steps=45, loss_target=0)
    records, run = wide.records, wide.as_run()
    assert list(records["step"]) == [0, 10, 20, 30, 40, 45]
    basis = data.problem.spectrum.vectors
    for k in range(6):
        layers = [np.asarray(weight[k]) for weight in run.trajectory.weights]
        theta = dense_network.product(layers).T
        perpendicular = np.linalg.norm(theta - basis @ (basis.T @ theta))
        norms = [np.linalg.norm(layer, 2) for layer in layers]
        loss = np.mean((data.problem.target_columns - data.problem.inputs @ theta) ** 2)
        assert records["perpendicular"][k] == pytest.approx(perpendicular, rel=1e-9)
        assert records["loss"][k] == pytest.approx(loss, rel=1e-9)
        assert records["distance"][k] == pytest.approx(
            np.sum((theta.T - data.problem.optimum) ** 2), rel=1e-9
        )
        assert np.allclose(records["layer_norms"][k], norms)
        assert records["bound"][k] == pytest.approx(np.prod(np.maximum(norms, 1)))
    assert records["path"][-1] == wide.path


def test_a_run_that_stopped_repeats_its_end(data):
    keys = jax.random.split(KEY, 2)
    wide = _simulate(data.problem, key=keys, learning_rate=[0.05, 0.02], record_every=50)
    first = wide.steps[0]
    assert first < wide.steps[1]
    after = wide.records["step"] >= first
    assert np.all(wide.records["loss"][after, 0] == wide.loss[0])
    assert len(wide.records.table()) == 2 * len(wide.records["step"])


# --- size ------------------------------------------------------------------------------------


def test_a_hundred_thousand_inputs_train_without_a_square_matrix():
    rng = np.random.default_rng(0)
    d = 100_000
    spectrum = np.where(np.arange(d) < 5, 1.0, 1e-4)
    X = rng.normal(size=(10, d)) * np.sqrt(spectrum)
    problem = dl.Problem.from_data(X, rng.normal(size=(10, 2)))
    wide = simulate_wide(
        problem,
        10**9,
        3,
        alpha=1e-7,
        beta=1e-4,
        key=KEY,
        learning_rate=0.05,
        population=Population(np.zeros((2, d)), spectrum),
    )
    assert wide.status == "converged"
    assert np.mean((problem.target_columns - X @ wide.theta.T) ** 2) == pytest.approx(
        wide.loss, rel=1e-6
    )
    assert wide.risk > 0


def test_the_distance_shrinks_as_one_over_the_width():
    """Entries of size 1/√m: ‖Θ_⊥‖² is about α²(d−n)‖W_L…W_2‖², and α² falls as 1/m."""
    problem = synthetic.spiked(3, 30, samples=8, outputs=2, epsilon=0.1).problem
    distances = []
    for width in (10**3, 10**9):
        scale = 1 / np.sqrt(width)
        wide = simulate_wide(
            problem, width, 3, 0.3 * scale, scale, KEY, learning_rate=0.05, loss_target=1e-12
        )
        assert wide.status == "converged"
        distances.append(width * wide.distance)
    assert distances[0] == pytest.approx(distances[1], rel=0.1)


# --- what it refuses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": -0.1}, "alpha"),
        ({"beta": -1.0}, "beta"),
        ({"alpha": float("nan")}, "alpha"),
        ({"width": 0}, "width"),
        ({"width": 2.5}, "width"),
        ({"depth": 1}, "depth"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": [0.1, 0.2]}, "2 values for 1 run"),
        ({"loss_target": -1.0}, "loss_target"),
        ({"max_steps": 0}, "max_steps"),
        ({"stable_share": 0.0}, "stable_share"),
        ({"stable_share": [0.1, 0.2]}, "2 values for 1 run"),
        ({"dynamics": "flow", "stable_share": 0.5}, "no learning rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"record_every": 0}, "record_every"),
        ({"dynamics": "newton"}, "descent"),
        ({"dynamics": "flow", "momentum": 0.5}, "momentum"),
        ({"key": 3}, r"jax\.random"),
        ({"population": Population(np.zeros((2, 5)), np.ones(5))}, "matching"),
    ],
)
def test_bad_options_are_refused_with_what_to_pass(data, options, words):
    with pytest.raises(dl.InputError, match=words):
        _simulate(data.problem, **options)


def test_more_samples_than_inputs_cannot_be_interpolated(problem):
    with pytest.raises(dl.InputError, match="more inputs than samples"):
        _simulate(problem)


def test_repeated_rows_are_refused(rng):
    X = rng.normal(size=(4, 10))
    X[3] = X[0]
    with pytest.raises(dl.InputError, match="singular"):
        _simulate(dl.Problem.from_data(X, rng.normal(size=4)))


def test_problems_of_different_shapes_are_refused(data, wide_problem):
    with pytest.raises(dl.InputError, match="one shape"):
        _simulate([data.problem, wide_problem])
    with pytest.raises(dl.InputError, match="problem holds 2 values for 3"):
        _simulate([data.problem] * 2, key=jax.random.split(KEY, 3))


# --- flow ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flow():
    problem = synthetic.spiked(3, 30, samples=8, outputs=2, spikes=3, epsilon=0.1).problem
    return problem, _simulate(problem, dynamics="flow", record_every=4)


def test_flow_is_that_of_another_solver(flow):
    problem, wide = flow
    run = wide.as_run()
    weights = dense_network.flow(
        problem.inputs, problem.target_columns, run.initial.weights, run.evidence["time"]
    )
    theta = dense_network.product(weights)
    assert wide.status == "converged"
    assert wide.loss <= 1e-7
    assert np.linalg.norm(wide.theta - theta) < 1e-6 * np.linalg.norm(theta)
    assert run.learning_rate is None
    assert run.records["time"][-1] == run.evidence["time"]


def test_descent_with_small_steps_comes_close_to_flow(flow):
    problem, wide = flow
    errors = []
    for rate in (0.02, 0.01):
        small = _simulate(problem, learning_rate=rate)
        errors.append(np.linalg.norm(small.theta - wide.theta))
        assert small.path == pytest.approx(wide.path, rel=0.02)
    assert errors[1] < 0.6 * errors[0]  # first order in the step


def test_the_path_of_flow_is_the_integral_of_the_root_loss(flow):
    problem, wide = flow
    run = wide.as_run()
    times = np.linspace(0, float(run.records["time"][3]), 201)
    weights, values = run.initial.weights, []
    for step in np.diff(times, prepend=0.0):
        if step > 0:
            weights = dense_network.flow(problem.inputs, problem.target_columns, weights, step)
        theta = dense_network.product(weights).T
        values.append(np.linalg.norm(problem.target_columns - problem.inputs @ theta))
    exact = np.trapezoid(values, times) / problem.samples
    assert run.records["path"][3] == pytest.approx(exact, rel=0.01)
    assert run.records["path"][3] >= exact * (1 - 1e-4)
