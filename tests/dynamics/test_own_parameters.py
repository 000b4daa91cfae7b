"""Descent and flow of any pytree with a loss of one's own, against NumPy written out."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import deeplin as dl

SIZES = (5, 30, 20, 3)
RATE, STEPS = 0.5, 12


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(11)
    return rng.normal(size=(100, 5)), rng.normal(size=(100, 3))


@pytest.fixture(scope="module")
def start():
    """5 → 30 → 20 → 3 with biases, as a dict of arrays."""
    rng = np.random.default_rng(12)
    pairs = list(itertools.pairwise(SIZES))
    weights = {f"W{k}": rng.normal(size=(m, n)) / np.sqrt(n) for k, (n, m) in enumerate(pairs)}
    return weights | {f"b{k}": 0.1 * rng.normal(size=m) for k, m in enumerate(SIZES[1:])}


def loss_on(data):
    """‖f(X) − Y‖²/(2nq) with tanh between the layers."""
    X, Y = data

    def loss(p):
        hidden = X.T
        for k in range(3):
            hidden = p[f"W{k}"] @ (hidden if k == 0 else jnp.tanh(hidden)) + p[f"b{k}"][:, None]
        return jnp.sum((hidden - Y.T) ** 2) / (2 * Y.size)

    return loss


def value_and_slopes(p, data):
    """The same loss and its gradient, by hand."""
    X, Y = data
    inputs, hidden = [], X.T
    for k in range(3):
        inputs.append(hidden if k == 0 else np.tanh(hidden))
        hidden = p[f"W{k}"] @ inputs[-1] + p[f"b{k}"][:, None]
    error = (hidden - Y.T) / Y.size
    slopes = {}
    for k in (2, 1, 0):
        slopes |= {f"W{k}": error @ inputs[k].T, f"b{k}": error.sum(axis=1)}
        error = (p[f"W{k}"].T @ error) * (1 - inputs[k] ** 2)
    return np.sum((hidden - Y.T) ** 2) / (2 * Y.size), slopes


def descend(p, data, steps):
    """Plain descent; the parameters at every step."""
    path = [p]
    for _ in range(steps):
        slopes = value_and_slopes(p, data)[1]
        p = {name: p[name] - RATE * slopes[name] for name in p}
        path.append(p)
    return path


def top_eigenvalue(p, data):
    """λ_max of the Hessian by central differences of the gradient by hand."""
    names = sorted(p)
    sizes = [p[name].size for name in names]

    def gradient(x):
        parts = np.split(x, np.cumsum(sizes)[:-1])
        tree = {n: part.reshape(p[n].shape) for n, part in zip(names, parts, strict=True)}
        slopes = value_and_slopes(tree, data)[1]
        return np.concatenate([slopes[name].ravel() for name in names])

    x, h = np.concatenate([p[name].ravel() for name in names]), 1e-5
    columns = [(gradient(x + h * e) - gradient(x - h * e)) / (2 * h) for e in np.eye(len(x))]
    return np.linalg.eigvalsh(np.array(columns) / 2 + np.array(columns).T / 2)[-1]


@pytest.fixture(scope="module")
def run(data, start):
    return dl.gradient_descent(loss_on(data), start, RATE, STEPS, record_every=1)


def test_a_network_with_biases_trains_like_numpy(run, data, start):
    path = descend(start, data, STEPS)
    assert run.steps == STEPS
    assert run.status == "stopped"
    assert set(run.network) == set(start)
    for name, values in path[-1].items():
        np.testing.assert_allclose(run.network[name], values, rtol=0, atol=1e-12)
    losses = [value_and_slopes(p, data)[0] for p in path]
    np.testing.assert_allclose(run.records["risk"], losses, rtol=1e-12)
    np.testing.assert_allclose(run.trajectory[4]["W1"], path[4]["W1"], rtol=0, atol=1e-12)


def test_sharpness_of_a_tree_is_recorded_at_every_step(run, data, start):
    path = descend(start, data, STEPS)
    assert run.records["sharpness"].shape == (STEPS + 1,)
    for step in (0, STEPS):
        exact = top_eigenvalue(path[step], data)
        # followed with residual 1e-3: the value is accurate to the square of that
        assert run.records["sharpness"][step] == pytest.approx(exact, rel=1e-5)
    again = dl.sharpness_along(loss_on(data), run.trajectory).value
    np.testing.assert_allclose(again, run.records["sharpness"], rtol=1e-5)


def test_rates_of_several_runs_make_a_batch_of_a_tree(data, start):
    rates = [0.1, RATE, 1e9]
    batch = dl.gradient_descent(loss_on(data), start, rates, STEPS, record_every=4)
    alone = dl.gradient_descent(loss_on(data), start, RATE, STEPS)
    assert list(batch.status) == ["stopped", "stopped", "diverged"]
    np.testing.assert_allclose(batch.network["W0"][1], alone.network["W0"], rtol=0, atol=1e-13)
    assert np.isfinite(batch.network["W0"]).all()
    assert batch.records["sharpness"].shape == (4, 3)
    member = batch[1]
    assert member.records["risk"].shape == (4,)
    np.testing.assert_allclose(
        dl.sharpness_along(loss_on(data), member.trajectory).value,
        member.records["sharpness"],
        rtol=1e-5,
    )


def test_options_and_optimizers_work_for_any_tree(data, start):
    loss = loss_on(data)
    decayed = dl.gradient_descent(loss, start, RATE, 3, weight_decay=0.1, momentum=0.5)
    velocity, p = dict.fromkeys(start, 0.0), start
    for _ in range(3):
        slopes = value_and_slopes(p, data)[1]
        for name in start:
            velocity[name] = 0.5 * velocity[name] - RATE * (slopes[name] + 0.2 * p[name])
        p = {name: p[name] + velocity[name] for name in p}
    np.testing.assert_allclose(decayed.network["W1"], p["W1"], rtol=0, atol=1e-12)
    labels = {name: "still" if name[0] == "b" else "moving" for name in start}
    partly = optax.multi_transform({"still": optax.set_to_zero(), "moving": optax.sgd(0.1)}, labels)
    run = dl.gradient_descent(loss, start, None, 2, optimizer=partly)
    assert np.array_equal(run.network["b0"], start["b0"])
    assert not np.array_equal(run.network["W0"], start["W0"])


def test_an_equinox_module_trains(data):
    X, Y = data
    module = eqx.nn.MLP(5, 3, 8, 1, key=jax.random.key(0), dtype=jnp.float64)

    def loss(model):
        return jnp.mean((jax.vmap(model)(X) - Y) ** 2)

    run = dl.gradient_descent(loss, module, 0.1, 5, record_every=5)
    expected = module
    for _ in range(5):
        slopes = eqx.filter_grad(loss)(expected)
        expected = eqx.apply_updates(expected, jax.tree.map(lambda g: -0.1 * g, slopes))
    np.testing.assert_allclose(
        run.network.layers[0].weight, expected.layers[0].weight, rtol=0, atol=1e-12
    )
    assert jax.vmap(run.network)(X).shape == (100, 3)
    assert run.records["sharpness"][0] == pytest.approx(dl.sharpness(loss, module).value, rel=1e-5)


def test_a_loss_target_stops_a_tree(data, start):
    loss = loss_on(data)
    path = descend(start, data, 40)
    losses = [value_and_slopes(p, data)[0] for p in path]
    target = losses[20] * (1 + 1e-9)
    run = dl.gradient_descent(loss, start, RATE, 1000, loss_target=target)
    assert run.status == "converged"
    assert run.steps == next(t for t, value in enumerate(losses) if value <= target)


def test_a_flow_of_any_tree_is_that_of_small_steps(data, start):
    loss = loss_on(data)
    flow = dl.gradient_flow(loss, start, until=1.0, record_every=0.5, record="risk")
    p = start
    for _ in range(4000):
        slopes = value_and_slopes(p, data)[1]
        half = {n: p[n] - 0.5 / 4000 * slopes[n] for n in p}  # the midpoint rule, second order
        slopes = value_and_slopes(half, data)[1]
        p = {n: p[n] - 1 / 4000 * slopes[n] for n in p}
    np.testing.assert_allclose(flow.network["W1"], p["W1"], rtol=0, atol=1e-7)
    assert flow.records["risk"][-1] == pytest.approx(value_and_slopes(p, data)[0], rel=1e-6)
    assert flow.dynamics == "flow"
    assert "drift" not in flow.evidence


@pytest.mark.parametrize("tree", [{}, {"a": 1}, [np.arange(3)]])
def test_a_tree_without_parameters_is_refused(tree):
    with pytest.raises(dl.InputError, match="no floating-point parameters"):
        dl.gradient_descent(lambda p: jnp.zeros(()), tree, 0.1, 3)


def test_a_problem_needs_a_network(problem):
    with pytest.raises(dl.InputError, match="Network"):
        dl.gradient_descent(problem, {"a": np.ones(3)}, 0.1, 3)
