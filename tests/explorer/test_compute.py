"""States become the numbers they stand for; pictures that would take too long are refused."""

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.checks import InputError
from deeplin.explorer.compute import networks_of, problem_of, record_every, theory_of, train
from deeplin.explorer.phase import RATES, phase
from deeplin.explorer.state import State
from deeplin.explorer.training import table
from deeplin.explorer.wide import _words, wide

QUICK = State(depth=3, width=4, steps=60, seeds=3)


def test_problem_is_the_papers_data_set():
    state = State(data_seed=3, samples=20, dimension=4, noise=0.5, condition=10)
    ours = problem_of(state)
    theirs = dl.problems.synthetic.flat_minima(
        3, samples=20, dimension=4, noise=0.5, condition_number=10
    ).problem
    assert np.array_equal(ours.inputs, theirs.inputs)
    assert np.array_equal(ours.targets, theirs.targets)


def test_file_without_upload_is_refused():
    with pytest.raises(InputError, match="choose a CSV file"):
        problem_of(State(data="file"))


def test_run_depends_on_its_own_seed_alone():
    problem = problem_of(State())
    together = networks_of(State(seeds=4, seed=2), problem)
    alone = networks_of(State(seeds=1, seed=4), problem)
    assert np.array_equal(together.weights[3][2], alone.weights[3][0])


@pytest.mark.parametrize("initialisation", ["gaussian", "zero_layer", "rank_one"])
def test_initialisations_have_the_asked_scale(initialisation):
    state = State(initialisation=initialisation, scale=0.2, depth=4, width=20, seeds=20)
    nets = networks_of(state, problem_of(state))
    spread = np.std(nets.weights[1])
    if initialisation == "rank_one":
        assert np.allclose(np.linalg.norm(nets.product, axis=1), 0.2, rtol=1e-12)
        assert np.allclose(np.linalg.norm(nets.weights[1], axis=(1, 2)), 0.2 ** (1 / 4))
        assert np.all(np.linalg.matrix_rank(nets.weights[1]) == 1)
    else:
        # 8000 entries: the sample spread is within 5 standard errors, 5·0.2/sqrt(2·8000)
        assert abs(spread - 0.2) < 5 * 0.2 / np.sqrt(2 * 8000)
        assert np.all(nets.weights[0] == 0) == (initialisation == "zero_layer")


def test_residual_network_without_noise_is_the_identity():
    state = State(architecture="residual", scale=0, depth=3)
    nets = networks_of(state, problem_of(state))
    assert np.array_equal(nets.weights[2][0], np.eye(5))
    assert np.linalg.norm(nets.readout[0]) == pytest.approx(1)


def test_theory_lines_are_those_of_the_theory():
    state = State(architecture="residual", depth=7)
    problem = problem_of(state)
    lines = theory_of(state, problem)
    readout = networks_of(state, problem).readout[0]
    flattest = dl.theory.minimal_sharpness(problem, 7, readout)
    assert (lines.lower, lines.exact, lines.upper) == (
        flattest.lower, flattest.exact, flattest.upper
    )  # fmt: skip
    assert lines.critical_rate == dl.theory.critical_learning_rate(problem, 7, readout)
    assert theory_of(State(architecture="gelu"), problem) is None


def test_curves_end_where_a_run_diverges_and_their_table_is_tidy():
    training = train(QUICK.change(learning_rate=3.0))
    assert set(training.run.status) == {"diverged"}
    assert np.isnan(training.series["gap"][-1]).all()
    rows = table(train(QUICK))
    assert len(rows) == len(train(QUICK).step) * 3
    assert set(rows["run"]) == {0, 1, 2}
    assert {"gap", "sharpness", "singular_values_1", "alignment_2"} <= set(rows.columns)


@pytest.mark.parametrize("architecture", ["perceptron", "residual"])
def test_training_is_the_descent_of_the_library_with_the_sharpness_of_the_dense_hessian(
    architecture,
):
    state = QUICK.change(architecture=architecture, scale=0.5, learning_rate=0.03)
    training, problem = train(state), problem_of(state)
    run = dl.gradient_descent(
        problem, networks_of(state, problem), 0.03, 60,
        record_every=int(training.step[1]), record=("gap", "distance"), backend="jax",
    )  # fmt: skip
    assert list(training.step) == list(run.records["step"])
    assert list(training.run.status) == list(run.status)
    for name in ("gap", "distance"):
        np.testing.assert_allclose(training.series[name], run.records[name], rtol=1e-8, atol=1e-13)
    for record in (0, len(training.step) // 2, -1):
        there = jax.tree.map(lambda leaf, at=record: leaf[at], run.trajectory)
        dense = dl.sharpness(problem, there, method="dense").value
        # a residual of 1e-3 of the value: the value itself is good to about its square
        np.testing.assert_allclose(training.series["sharpness"][record], dense, rtol=1e-5)


def test_new_shapes_compile_nothing(caplog):
    train(QUICK)
    phase(QUICK.change(tab="phase"))
    with jax.log_compiles(True), caplog.at_level("WARNING"):
        train(QUICK.change(depth=7, width=3))
        train(QUICK.change(architecture="residual", depth=9))
        phase(QUICK.change(tab="phase", depth=6, width=7))
    assert [record.message for record in caplog.records if "Compiling" in record.message] == []


def test_view_does_not_change_what_is_computed():
    assert train(QUICK) is train(QUICK.change(vertical_scale="linear", tab="phase", flow=False))


def test_records_are_at_odd_distances_and_few():
    for steps in (10, 500, 100_000):
        state = State(steps=steps)
        every = record_every(state, networks_of(state, problem_of(state)))
        assert every % 2 == 1
        assert steps / every <= 160


def test_endless_pictures_are_refused_at_once():
    with pytest.raises(InputError, match="fewer steps"):
        train(State(depth=40, width=20, steps=100_000, seeds=20))
    with pytest.raises(InputError, match="fewer"):
        wide(State(tab="wide", wide_samples=200, wide_depth=8, wide_steps=20_000))


def test_gelu_network_is_trained_on_its_rows():
    state = QUICK.change(architecture="gelu", scale=0.6, steps=20, seeds=2)
    training = train(state)
    problem = problem_of(state)
    nets = networks_of(state, problem)
    outputs = nets.weights[0][0] @ problem.inputs.T
    gelu = dl.networks.ACTIVATIONS["gelu"]
    for weight in nets.weights[1:]:
        outputs = weight[0] @ gelu(outputs)
    risk = float(np.mean((np.asarray(outputs)[0] - problem.targets[:, 0]) ** 2))
    assert training.series["risk"][0, 0] == pytest.approx(risk, rel=1e-12)
    assert "gap" not in training.series
    assert training.theory is None


@pytest.mark.parametrize("over", ["scale", "depth"])
def test_cell_of_the_phase_diagram_is_the_run_it_opens(over):
    state = State(depth=3, width=4, steps=40, seeds=1, phase_over=over)
    result = phase(state)
    assert result.distance.shape == (len(result.columns), RATES)
    column, rate = 2, 5
    name = "depth" if over == "depth" else "scale"
    cell = {name: float(result.columns[column])}
    run = train(state.change(learning_rate=float(result.rates[rate]), **cell))
    assert result.distance[column, rate] == pytest.approx(run.series["distance"][-1, 0], rel=1e-9)
    assert result.sharpness[column, rate] == pytest.approx(run.series["sharpness"][-1, 0], rel=1e-3)
    if over == "depth":
        exact = dl.theory.critical_learning_rate(problem_of(state), int(result.columns[column]))
        assert result.critical[column] == pytest.approx(exact)


def test_wide_network_ends_at_the_interpolant_for_a_tiny_first_layer_only():
    small = wide(State(wide_dimension=60, wide_samples=10, alpha=0, wide_width=100_000))
    assert small.run.status == "converged"
    assert np.all(small.run.theta_perp == 0)  # X-6; the rest of the distance is the loss target
    assert small.run.distance < 1e-4
    assert small.split.total == pytest.approx(small.interpolant_risk, rel=1e-2)
    assert "at the minimum-norm interpolant" in _words(State(), small)
    zero = wide(State(wide_dimension=60, wide_samples=10, alpha=0.1, beta=0, wide_width=1000))
    assert zero.run.distance > 1e-3
    assert "away from the minimum-norm interpolant" in _words(State(), zero)


def test_wide_start_without_gradients_and_too_many_samples_are_refused():
    with pytest.raises(InputError, match="gradient"):
        wide(State(alpha=0, beta=0))
    with pytest.raises(InputError, match="fewer samples"):
        wide(State(wide_dimension=20, wide_samples=50))
