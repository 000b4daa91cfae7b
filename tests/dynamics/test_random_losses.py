"""Losses that take a key, optimizers that draw noise, and batches of pytrees, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import deeplin as dl

RATE, STEPS = 0.05, 30


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 4))
    return X, X @ rng.normal(size=4)


@pytest.fixture(scope="module")
def loss(data):
    X, y = map(jnp.asarray, data)
    return lambda p: jnp.mean((X @ p["w"] - y) ** 2)


@pytest.fixture(scope="module")
def noisy(data):
    """Label noise: fresh at every step."""
    X, y = map(jnp.asarray, data)
    return lambda p, key: jnp.mean((X @ p["w"] - y - jax.random.normal(key, y.shape)) ** 2)


@pytest.fixture(scope="module")
def starts():
    return {"w": jnp.asarray(np.random.default_rng(1).normal(size=(3, 4)))}


def descend(data, w, noise):
    X, y = data
    for step in range(STEPS):
        w = w - RATE * 2 / len(y) * X.T @ (X @ w - y - noise(step))
    return w


def test_every_step_gets_its_own_key(data, noisy, starts):
    key = jax.random.key(7)
    one = {"w": starts["w"][0]}
    run = dl.gradient_descent(noisy, one, RATE, STEPS, key=key, record=["risk"])
    drawn = [np.asarray(jax.random.normal(jax.random.fold_in(key, s), (12,))) for s in range(STEPS)]
    expected = descend(data, np.asarray(one["w"]), lambda step: drawn[step])
    np.testing.assert_allclose(run.network["w"], expected, rtol=0, atol=1e-13)
    X, y = data
    noise = np.asarray(jax.random.normal(jax.random.key(0), (12,)))  # the fixed key of records
    risk = np.mean((X @ expected - y - noise) ** 2)
    assert run.records["risk"][-1] == pytest.approx(risk, rel=1e-12)
    assert run.evidence["risk"] == pytest.approx(risk, rel=1e-12)


def test_a_run_of_a_batch_depends_on_its_own_key_only(noisy, starts):
    keys = jax.random.split(jax.random.key(3), 3)
    together = dl.gradient_descent(noisy, starts, RATE, STEPS, key=keys)
    assert together.steps.shape == (3,)
    alone = dl.gradient_descent(noisy, {"w": starts["w"][1]}, RATE, STEPS, key=keys[1])
    np.testing.assert_allclose(together.network["w"][1], alone.network["w"], rtol=0, atol=1e-14)


def test_a_batch_of_pytrees_is_trained_like_its_members(data, loss, starts):
    run = dl.gradient_descent(loss, starts, RATE, STEPS, record=["risk", "gradient_norm"])
    assert len(run) == 3
    assert run.records["risk"].shape == (STEPS + 1, 3)
    X, y = data
    for k in range(3):
        expected = descend(data, np.asarray(starts["w"][k]), lambda step: 0)
        np.testing.assert_allclose(run[k].network["w"], expected, rtol=0, atol=1e-13)
        slope = 2 / 12 * X.T @ (X @ expected - y)
        norm = run.records["gradient_norm"][-1, k]
        assert norm == pytest.approx(np.linalg.norm(slope), rel=1e-10)


def test_a_loss_that_takes_the_whole_tree_is_one_run_unless_the_caller_says_so(starts):
    def square(p):
        return jnp.sum(p["w"] ** 2)

    assert dl.gradient_descent(square, starts, RATE, 2).single
    assert len(dl.gradient_descent(square, starts, RATE, 2, batched=True)) == 3
    with pytest.raises(dl.InputError, match="common leading axis"):
        dl.gradient_descent(square, {"w": jnp.zeros(3), "b": jnp.zeros(())}, RATE, 2, batched=True)


def test_a_gradient_norm_stops_at_the_first_step_below_it(loss, starts):
    path = dl.gradient_descent(loss, starts, RATE, 200, record_every=1, record="gradient_norm")
    norms = path.records["gradient_norm"]
    level = float(np.median(norms[60]))
    run = dl.gradient_descent(loss, starts, RATE, 200, gradient_norm=level * (1 + 1e-9))
    np.testing.assert_array_equal(run.steps, (norms <= level * (1 + 1e-9)).argmax(axis=0))
    assert set(run.status) == {"converged"}


def test_noise_of_an_optimizer_is_its_own_for_every_run_with_a_key(loss, starts):
    noise = optax.chain(optax.add_noise(0.1, 0.5, key=3), optax.sgd(RATE))
    same = {"w": jnp.broadcast_to(starts["w"][0], (3, 4))}
    run = dl.gradient_descent(loss, same, None, STEPS, optimizer=noise, key=jax.random.key(0))
    w = np.asarray(run.network["w"])
    assert np.abs(w[0] - w[1]).max() > 1e-3
    plain = dl.gradient_descent(loss, same, None, STEPS, optimizer=noise)
    parameters, state = {"w": starts["w"][0]}, None
    state = noise.init(parameters)
    for _ in range(STEPS):
        updates, state = noise.update(jax.grad(loss)(parameters), state, parameters)
        parameters = optax.apply_updates(parameters, updates)
    np.testing.assert_allclose(plain.network["w"][2], parameters["w"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "the loss takes .parameters, key."),
        ({"key": jax.random.key(0), "gradient_norm": 1e-3}, "no criterion for steps that draw"),
    ],
)
def test_what_a_random_loss_needs_is_said(noisy, starts, options, words):
    with pytest.raises(dl.InputError, match=words):
        dl.gradient_descent(noisy, starts, RATE, STEPS, **options)


def test_a_key_that_nothing_uses_is_refused(loss, starts):
    with pytest.raises(dl.InputError, match="key is not used here"):
        dl.gradient_descent(loss, starts, RATE, STEPS, key=jax.random.key(0))


def test_a_flow_takes_no_random_loss(noisy, starts):
    with pytest.raises(dl.InputError, match="no steps that draw a key"):
        dl.gradient_flow(noisy, starts, until=1.0)


def test_quantities_without_a_stride_are_about_200_an_odd_number_of_steps_apart(loss, starts):
    for steps, stride in ((10, 1), (800, 5), (1000, 5), (4000, 21)):
        records = dl.gradient_descent(loss, starts, 1e-3, steps, record="risk").records
        assert set(np.diff(records["step"])[:-1]) == {stride}
        assert records["step"][-1] == steps
