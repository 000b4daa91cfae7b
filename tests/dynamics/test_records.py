"""Records measured together after stepping: the same as one by one, and quantities of one's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl


@pytest.fixture
def nets():
    return dl.initialize.gaussian(jax.random.split(jax.random.key(0), 2), (5, 4, 1), 0.6)


def descend(problem, nets, record, **options):
    return dl.gradient_descent(problem, nets, 0.01, 20, record_every=1, record=record, **options)


def test_records_do_not_depend_on_how_many_are_measured_together(problem, nets, monkeypatch):
    names = ("risk", "gap", "sharpness", "layer_norms", "alignment", "conservation")
    whole = descend(problem, nets, names).records
    monkeypatch.setattr("deeplin.dynamics.run.RECORDS_PER_CALL", 3)
    parts = descend(problem, nets, names).records
    for name in (*names, "step"):
        np.testing.assert_array_equal(whole[name], parts[name])
    assert whole["alignment"].shape == (21, 2, 1)


EVERYTHING = {"momentum": 0.5, "nesterov": True, "weight_decay": 0.01, "batch_size": 4}


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["plain", "everything"])
def test_every_record_is_where_a_run_of_so_many_steps_ends(options, rng, monkeypatch):
    """Among goals reached and runs that diverge, at uneven stops, in several pieces."""
    X = rng.normal(size=(20, 3))
    Y = X @ rng.normal(size=(3, 2)) + 0.1 * rng.normal(size=(20, 2))
    problem, keys = dl.Problem.from_data(X, Y), jax.random.split(jax.random.key(0), 19)
    nets, rates = dl.initialize.gaussian(keys, (3, 4, 3, 2), 0.5), np.geomspace(0.003, 2, 19)
    options = {"gap": 0.05, "key": keys if "batch_size" in options else None} | options
    monkeypatch.setattr("deeplin.dynamics.run.RECORDS_PER_CALL", 4)
    run = dl.gradient_descent(problem, nets, rates, 100, record_every=7, record="risk", **options)
    assert set(run.status) == {"converged", "diverged", "stopped"}
    assert set(run.records["step"] % 7) == {0, 2}
    W1, W2, W3 = map(np.asarray, run.trajectory.weights)
    risk = np.sum((X @ (W3 @ W2 @ W1).mT - Y) ** 2, axis=(-2, -1)) / 20
    np.testing.assert_allclose(run.records["risk"], risk, rtol=1e-11)  # the sum of far larger terms
    np.testing.assert_array_equal(W1[0], nets.weights[0])
    for number in (1, 3, 4, 9, -1):
        steps = int(run.records["step"][number])
        alone = dl.gradient_descent(problem, nets, rates, steps, **options)
        np.testing.assert_array_equal(alone.steps, np.minimum(run.steps, steps))
        for ours, theirs in zip(run.trajectory[number].weights, alone.network.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_run_that_diverges_before_its_first_step_keeps_its_weights(problem, nets, layout):
    first, *others = nets.weights
    nets = dl.Network([first.at[0].multiply(1e200).at[1].multiply(1e3), *others])
    run = descend(problem, nets, ("risk",))
    assert list(run.status) == ["diverged", "diverged"]
    assert run.steps[0] == 0
    assert run.steps[1] > 0
    np.testing.assert_array_equal(run.network.weights[0][0], nets.weights[0][0])
    assert np.all(run.records["risk"][:, 0] == np.inf)


def test_watch_is_called_at_each_record(problem, nets):
    told = []
    run = descend(problem, nets, ("risk",), watch=lambda step, row: told.append(row["risk"]))
    np.testing.assert_array_equal(np.stack(told), run.records["risk"])


def test_eigenvalues_and_singular_values_of_the_product_are_recorded(problem, nets):
    run = descend(problem, nets, ("eigenvalues", "product_singular_values", "sharpness"))
    for step in (0, 20):
        net = run.trajectory[step]
        spectrum = dl.hessian_spectrum(problem, net, count=5)
        np.testing.assert_allclose(run.records["eigenvalues"][step], spectrum.values, rtol=1e-10)
        size = np.linalg.norm(net.product, axis=1)
        np.testing.assert_allclose(run.records["product_singular_values"][step, :, 0], size)
    top = run.records["eigenvalues"][..., 0]
    np.testing.assert_allclose(run.records["sharpness"], top, rtol=1e-5)


@pytest.mark.parametrize("single", [True, False])
def test_quantities_of_ones_own_see_each_network(problem, nets, single):
    some = jax.tree.map(lambda leaf: leaf[0], nets) if single else nets
    own = {"first": lambda net: net.product[0], "weights": lambda net: jnp.sum(net.weights[0] ** 2)}
    run = descend(problem, some, ["risk", own])
    product = np.stack([np.asarray(net.product) for net in run.trajectory])
    np.testing.assert_allclose(run.records["first"], product[..., 0], rtol=1e-12)
    squares = np.sum(np.asarray(run.trajectory.weights[0]) ** 2, axis=(-2, -1))
    np.testing.assert_allclose(run.records["weights"], squares, rtol=1e-12)
    assert set(descend(problem, some, own).records) == {"step", "first", "weights"}


def test_a_loss_of_ones_own_has_records_of_ones_own():
    curvature = jnp.array([1.0, 3.0])

    def loss(tree):
        return jnp.sum(curvature * tree["x"] ** 2)

    run = dl.gradient_descent(
        loss, {"x": jnp.ones(2)}, 0.1, 5, record_every=1,
        record=["risk", "sharpness", "eigenvalues", {"second": lambda tree: tree["x"][1]}],
    )  # fmt: skip
    np.testing.assert_allclose(run.records["second"], 0.4 ** np.arange(6), rtol=1e-12)
    np.testing.assert_allclose(run.records["sharpness"], 6, rtol=1e-6)


def test_a_record_that_is_no_function_is_refused(problem, nets):
    with pytest.raises(dl.InputError, match="pass a function of the network"):
        descend(problem, nets, {"mine": 3})


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_the_risk_in_evidence_is_that_of_the_network_returned(problem, activation):
    """Of runs that go on, that reach their goal, and that diverge."""
    keys = jax.random.split(jax.random.key(1), 11)
    nets = dl.initialize.gaussian(keys, (5, 4, 4, 1), 0.7, activation=activation)
    rates = np.geomspace(1e-4, 30, 11)
    goal = np.median(dl.gradient_descent(problem, nets, rates, 100).evidence["risk"][:6])
    run = dl.gradient_descent(problem, nets, rates, 300, loss_target=goal)
    assert {"stopped", "converged", "diverged"} == set(run.status)
    residual = jax.vmap(lambda net: net(problem.inputs) - problem.target_columns)(run.network)
    exact = np.mean(np.square(np.asarray(residual)), axis=(1, 2))
    np.testing.assert_allclose(run.evidence["risk"], exact, rtol=1e-12)


def test_records_that_hide_an_orbit_of_period_two_come_with_a_warning():
    """η between 2/S and the end of the orbit's stability: (ab − 1)² alternates (X-12)."""
    problem = dl.Problem.from_data(np.ones((2, 1)), np.ones(2))
    net = dl.Network([np.full((1, 1), 1.05), np.full((1, 1), 1.05)])
    odd = dl.gradient_descent(problem, net, 0.55, 3001, record_every=3, record=["risk"])
    last = odd.records["risk"][-3:-1]  # three steps apart: the two points of the orbit
    assert abs(last[0] - last[1]) > 0.1 * last.max()
    with pytest.warns(UserWarning, match="1 of 1 run.s. alternate between two points"):
        even = dl.gradient_descent(problem, net, 0.55, 3000, record_every=2, record=["risk"])
    np.testing.assert_allclose(even.records["risk"][-2:], even.records["risk"][-1], rtol=1e-9)
    assert even.steps == 3000
    dl.gradient_descent(problem, net, 0.4, 3000, record_every=2, record=["risk"])  # settles
