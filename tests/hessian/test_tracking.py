"""Sharpness along trajectories against Lanczos at every record."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin.execution import map_in_threads
from deeplin.hessian import lobpcg, sharpness, sharpness_along, tracking
from deeplin.hessian.tracking import SharpnessTracker
from deeplin.networks import batch_last

WIDTHS = (5, 5, 5, 5, 1)


@pytest.fixture
def trajectory(problem):
    """Two networks along 300 steps of descent, every fifth step."""
    nets = dl.initialize.gaussian(
        jax.random.split(jax.random.key(0), 2), WIDTHS, jnp.array([0.5, 0.7])
    )
    run = dl.gradient_descent(
        problem, nets, learning_rate=0.01, steps=300, record_every=5, record=("risk",)
    )
    return run.trajectory


def every_record(problem, trajectory):
    weights = [weight.reshape(-1, *weight.shape[2:]) for weight in trajectory.weights]
    readout = trajectory.readout
    readout = None if readout is None else readout.reshape(-1, readout.shape[-1])
    flat = dl.Network(weights, None, readout, trajectory.activation)
    return sharpness(problem, flat, method="lanczos")


@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-6, 1e-12])
def test_values_are_as_accurate_as_the_tolerance_and_the_error_say(problem, trajectory, tolerance):
    found = sharpness_along(problem, trajectory, tolerance=tolerance)
    weights = [weight.reshape(-1, *weight.shape[2:]) for weight in trajectory.weights]
    oracle = sharpness(problem, dl.Network(weights), method="dense").value
    truth = oracle.reshape(found.value.shape)
    rounding = 1e-13 * truth  # of LAPACK
    assert np.all(np.abs(found.value - truth) <= found.error + rounding)
    assert np.all(np.abs(found.value - truth) <= tolerance * truth + rounding)
    assert np.all(found.value <= truth + rounding)  # a Rayleigh quotient


def test_tracking_takes_a_few_products_for_each_record(problem, trajectory):
    found = sharpness_along(problem, trajectory)
    assert found.products[0].min() >= 4  # cold
    assert found.products[1:].min() == 1
    assert found.products[1:-1].mean() <= 4
    # the record again, a search in a fresh direction, and what it finds
    assert found.products[-1].max() <= 8 + 2 * lobpcg.SEARCH_PRODUCTS


def test_single_trajectory_has_no_batch_axis(problem, trajectory):
    single = jax.tree.map(lambda leaf: leaf[:, 0], trajectory)
    found = sharpness_along(problem, single)
    assert found.value.shape == (len(single.weights[0]),)
    together = sharpness_along(problem, trajectory)
    np.testing.assert_allclose(found.value, together.value[:, 0], rtol=1e-6)


def test_a_run_lost_for_a_moment_is_found_again(problem):
    net = dl.initialize.gaussian(jax.random.key(0), WIDTHS, 0.5)
    factors = np.array([1.0, np.nan, 1.0])
    records = dl.Network([np.multiply.outer(factors, weight) for weight in net.weights])
    before, lost, after = sharpness_along(problem, records).value
    assert np.isnan(lost)
    assert after == pytest.approx(before, rel=1e-6)


def test_one_parameter_is_enough_to_track():
    found = sharpness_along(lambda tree: jnp.sum(1.5 * tree["x"] ** 2), {"x": jnp.ones((4, 1))})
    np.testing.assert_allclose(found.value, 3.0, rtol=1e-12)


def test_nonlinear_networks_are_tracked_alike(problem):
    nets = dl.initialize.gaussian(jax.random.split(jax.random.key(1), 2), WIDTHS, jnp.full(2, 0.6))
    nets = dl.Network(nets.weights, activation="gelu")
    run = dl.gradient_descent(problem, nets, 0.02, 60, record_every=6, record=("risk",))
    found = sharpness_along(problem, run.trajectory)
    truth = every_record(problem, run.trajectory).value.reshape(found.value.shape)
    np.testing.assert_allclose(found.value, truth, rtol=1e-5)


@pytest.mark.parametrize("readout", ["one", "each"])
def test_readouts_of_a_trajectory_may_be_shared_or_not(problem, readout):
    vector = np.arange(1.0, 6.0) / 7
    keys = jax.random.split(jax.random.key(0), 2)
    nets = dl.initialize.residual(keys, 5, 3, jnp.full(2, 0.5), vector)
    run = dl.gradient_descent(problem, nets, 0.01, 20, record_every=5, record=("risk",))
    weights = run.trajectory.weights
    shape = weights[0].shape[:2] if readout == "each" else ()
    given = eqx.tree_at(
        lambda net: net.readout, run.trajectory.stacked, jnp.broadcast_to(vector, (*shape, 5))
    )
    found = sharpness_along(problem, given)
    truth = every_record(problem, run.trajectory).value.reshape(found.value.shape)
    np.testing.assert_allclose(found.value, truth, rtol=1e-5)


def test_a_network_without_records_is_named(problem):
    with pytest.raises(dl.InputError, match="leading record axis"):
        sharpness_along(problem, dl.initialize.gaussian(jax.random.key(0), WIDTHS, 0.5))


@pytest.fixture
def decoupled():
    """Networks whose layers and covariance are diagonal: one scalar network for each input.

    Eigenvectors of different inputs share no coordinate. The third input's weights grow from almost
    nothing, so that its eigenvalue comes from far below two others that stand still.
    """
    covariance = np.diag([1.0, 1.1, 1.2, 0.9])
    optimum = np.array([1.0, 1.0, 1.0, 0.3])
    power = float(optimum @ covariance @ optimum)
    problem = dl.Problem.from_moments(covariance, covariance @ optimum, power, samples=10)
    sizes = np.tile([1.0, 0.95, 0.0, 0.4], (150, 1))
    sizes[:, 2] = np.linspace(0.1, 1.4, 150)
    first = np.stack([np.diag(row) for row in sizes])
    return problem, dl.Network([first, sizes[:, None, :]])


def test_records_before_the_check_that_finds_a_crossing_are_corrected(decoupled):
    problem, batch = decoupled
    oracle = sharpness(problem, batch, method="dense").value
    found = sharpness_along(problem, batch)
    before = sharpness(problem, dl.Network([w[:1] for w in batch.weights]), method="dense").value[0]
    assert oracle.max() > 1.5 * before  # another eigenvalue takes over
    np.testing.assert_allclose(found.value, oracle, rtol=1e-5)


@pytest.fixture
def symmetric():
    """Balanced weights on white inputs keep a symmetry, and eigenvectors share no coordinate."""
    direction = np.full(5, 1 / np.sqrt(5))
    problem = dl.Problem.from_moments(np.eye(5), 2 * direction, 4.0, samples=5)
    return problem, dl.initialize.rank_one(0.6 * direction, 4)


@pytest.fixture(scope="module")
def white():
    """Balanced rank-one weights on white inputs, from 0.03 of the target: the first vector stays
    an eigenvector while its eigenvalue falls to zero, and meets none of the others."""
    target = np.array([2.0, -1.0, 2.0])
    problem = dl.Problem.from_moments(np.eye(3), target, 9.0, samples=5)
    rate = 0.25 * dl.theory.critical_learning_rate(problem, 4)
    start = dl.initialize.rank_one(0.03 * target, 4)
    run = dl.gradient_descent(problem, start, rate, 160, record_every=1, record=("risk",))
    networks = run.trajectory.stacked
    return problem, networks, sharpness(problem, networks, method="dense").value


@pytest.mark.parametrize("every", [1, 6])
@pytest.mark.parametrize("own", [False, True])
def test_a_direction_that_no_vector_meets_is_found_by_fresh_ones(white, every, own):
    problem, networks, truth = white
    records, loss = jax.tree.map(lambda leaf: leaf[::every], networks), problem
    if own:

        def loss(layers):
            return jnp.sum((layers[3] @ layers[2] @ layers[1] @ layers[0] - problem.optimum) ** 2)

        records = list(records.weights)
    found = sharpness_along(loss, records)
    np.testing.assert_allclose(found.value, truth[::every], rtol=1e-5)  # 10 tolerance²


def test_it_is_followed_back_into_the_piece_before(symmetric, monkeypatch):
    problem, start = symmetric
    monkeypatch.setattr("deeplin.dynamics.run.RECORDS_PER_CALL", 6)
    run = dl.gradient_descent(problem, start, 4e-4, 1500, record_every=100, record="sharpness")
    truth = sharpness(problem, run.trajectory.stacked, method="dense").value
    np.testing.assert_allclose(run.records["sharpness"], truth, rtol=1e-5)  # 10 tolerance²
    tracker = SharpnessTracker(problem)
    records = jax.tree.map(lambda weight: weight[:, None], run.trajectory.stacked)

    def piece(begin, end):
        return tracker.along(jax.tree.map(lambda weight: weight[begin:end], records)).value[:, 0]

    found = np.concatenate([piece(0, 2), piece(2, 6), piece(6, 16)])
    np.testing.assert_allclose(found, truth, rtol=1e-5)


def test_a_trajectory_in_pieces_is_followed_like_the_whole(problem, trajectory):
    whole = sharpness_along(problem, trajectory)
    tracker = SharpnessTracker(problem)
    cuts = (slice(0, 7), slice(7, 8), slice(8, None))
    parts = [tracker.along(trajectory[cut].stacked) for cut in cuts]
    np.testing.assert_array_equal(np.concatenate([part.value for part in parts]), whole.value)


def test_networks_do_not_depend_on_their_neighbors_nor_on_threads(problem, trajectory, monkeypatch):
    alone = sharpness_along(problem, jax.tree.map(lambda w: w[:, 1], trajectory))
    many = jax.tree.map(lambda w: w[:, np.arange(2 * tracking.CHUNK + 1) % 2], trajectory.stacked)
    for spread in (map_in_threads, lambda function, parts: list(map(function, parts))):
        monkeypatch.setattr(tracking, "map_in_threads", spread)
        together = sharpness_along(problem, many)
        for network in (1, 2 * tracking.CHUNK - 1):
            np.testing.assert_array_equal(together.value[:, network], alone.value)


def test_both_layouts_find_the_same(problem, trajectory, monkeypatch):
    """Explicit products with the batch axis last, and automatic differentiation."""
    explicit = sharpness_along(problem, trajectory)
    monkeypatch.setattr(batch_last, "NARROW", 0)
    by_autodiff = sharpness_along(problem, trajectory)
    np.testing.assert_allclose(by_autodiff.value, explicit.value, rtol=1e-6)


@pytest.mark.parametrize("readout", [False, True])
def test_several_outputs_are_tracked(rng, readout):
    X = rng.normal(size=(30, 4))
    problem = dl.Problem.from_data(X, rng.normal(size=30 if readout else (30, 2)))
    keys = jax.random.split(jax.random.key(2), 3)
    nets = dl.initialize.gaussian(keys, (4, 3, 5, 2), np.full(3, 0.7))
    nets = dl.Network(nets.weights, readout=rng.normal(size=(3, 2)) if readout else None)
    run = dl.gradient_descent(problem, nets, 0.02, 100, record_every=5, record=("risk",))
    found = sharpness_along(problem, run.trajectory)
    truth = every_record(problem, run.trajectory).value.reshape(found.value.shape)
    np.testing.assert_allclose(found.value, truth, rtol=1e-6)


def test_layers_of_different_precision_are_read_as_what_they_are(problem, trajectory):
    weights = [np.asarray(weight)[:, 0] for weight in trajectory.weights]
    mixed = [weights[0], *(weight.astype(np.float32) for weight in weights[1:])]
    same = [weight.astype(np.float64) for weight in mixed]
    found = sharpness_along(problem, dl.Network(mixed))
    np.testing.assert_array_equal(found.value, sharpness_along(problem, dl.Network(same)).value)
