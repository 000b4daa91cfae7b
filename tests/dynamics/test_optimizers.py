"""Momentum, decay, layer-wise rates, schedules, mini-batches and optax against plain loops."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import deeplin as dl
from deeplin.dynamics.minibatches import draw_rows, key_words

STEPS = 25
KEYS = jax.random.split(jax.random.key(3), 3)
CASES = {
    "decay": {"weight_decay": 0.03},
    "heavy ball": {"momentum": 0.7},
    "heavy ball and decay": {"momentum": 0.7, "weight_decay": 0.03},
    "nesterov": {"momentum": 0.7, "nesterov": True},
    "layers": {"learning_rate": (0.02, 0.005, 0.04)},
    "layers, heavy ball": {"learning_rate": (0.02, 0.005, 0.04), "momentum": 0.5},
    "schedule": {"learning_rate": lambda step: 0.02 / (1 + 0.1 * step)},
    "batches": {"batch_size": 7, "key": KEYS},
    "everything": {
        "learning_rate": (0.02, 0.005, 0.04),
        "momentum": 0.6,
        "nesterov": True,
        "weight_decay": 0.02,
        "batch_size": 4,
        "key": KEYS,
    },
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(20, 3))
    return X, X @ rng.normal(size=(3, 2)) + 0.1 * rng.normal(size=(20, 2))


def networks(activation="linear"):
    return dl.initialize.gaussian(KEYS, widths=(3, 4, 3, 2), scale=0.5, activation=activation)


@partial(jax.jit, static_argnums=3)
def gradient(weights, X, Y, activation="linear"):
    return jax.grad(lambda w: jnp.sum((dl.Network(w, activation=activation)(X) - Y) ** 2) / len(X))(
        weights
    )


def drawn(key, steps, samples, size):
    """Rows of the mini-batches of one run, (steps, size)."""
    draw = jax.vmap(partial(draw_rows, samples=samples, size=size), (None, 0))
    return np.asarray(draw(key_words(key), np.array(steps, np.int32)))


def plain_loop(rows, weights, activation, options, member):
    """Descent written out: gradients by autodiff on the rows, one network, one step at a time."""
    rates = options.get("learning_rate", 0.01)
    beta, decay = options.get("momentum", 0.0), options.get("weight_decay", 0.0)
    size = options.get("batch_size")
    batches = None
    if size is not None:
        batches = drawn(options["key"][member], range(STEPS), len(rows[0]), size)

    velocity = [np.zeros_like(w) for w in weights]
    for step in range(STEPS):
        chosen = slice(None) if batches is None else batches[step]
        slopes = gradient(tuple(weights), *(matrix[chosen] for matrix in rows), activation)
        for k, slope in enumerate(slopes):
            eta = rates(step) if callable(rates) else rates
            eta = eta[k] if isinstance(eta, tuple) else eta
            push = -eta * (np.asarray(slope) + 2 * decay * weights[k])
            velocity[k] = beta * velocity[k] + push
            move = beta * velocity[k] + push if options.get("nesterov") else velocity[k]
            weights[k] = weights[k] + move
    return weights


# Networks with an activation take the same steps on rows: here what differs there, batches and
# rates of layers, and all options together.
ON_ROWS = ("heavy ball and decay", "layers", "schedule", "batches", "everything")
BOTH = [(name, "linear") for name in CASES] + [(name, "gelu") for name in ON_ROWS]


@pytest.mark.parametrize(("name", "activation"), BOTH)
def test_every_option_is_a_plain_loop(rows, name, activation, layout):
    options = {"learning_rate": 0.01} | CASES[name]
    nets = networks(activation)
    problem = dl.Problem.from_data(*rows)
    run = dl.gradient_descent(problem, nets, steps=STEPS, **options)
    for member in range(3):
        start = [np.asarray(w[member]) for w in nets.weights]
        expected = plain_loop(rows, start, activation, options, member)
        for ours, theirs in zip(run.network.weights, expected, strict=True):
            # 25 steps of O(1) numbers: a hundred roundings
            np.testing.assert_allclose(ours[member], theirs, rtol=0, atol=1e-12)
    assert set(run.status) <= {"stopped", "converged"}


# --- mini-batches ----------------------------------------------------------------------------


@pytest.mark.parametrize(("samples", "size"), [(50, 10), (7, 7), (5000, 3), (9, 1)])
def test_rows_of_a_batch_are_a_set_drawn_by_floyds_algorithm(samples, size):
    """Bentley and Floyd (1987), with sets of Python, from the numbers that JAX draws."""
    key = jax.random.key(3)
    found = drawn(key, range(4, 9), samples, size)
    for step in range(4, 9):
        numbers = jax.random.uniform(jax.random.fold_in(key, step), (size,))
        chosen = set()
        for last, number in zip(range(samples - size, samples), numbers, strict=True):
            row = int(float(number) * (last + 1))
            chosen.add(last if row in chosen else row)
        assert len(chosen) == size
        assert chosen == set(found[step - 4].tolist())


def test_a_network_sees_its_own_batches_however_it_is_grouped(rows):
    problem, nets = dl.Problem.from_data(*rows), networks()
    together = dl.gradient_descent(problem, nets, 0.01, STEPS, batch_size=5, key=KEYS)
    for member in range(3):
        one = jax.tree.map(lambda leaf, at=member: leaf[at], nets)
        alone = dl.gradient_descent(problem, one, 0.01, STEPS, batch_size=5, key=KEYS[member])
        for a, b in zip(together.network.weights, alone.network.weights, strict=True):
            assert np.array_equal(a[member], b)


def test_one_key_stands_for_a_key_of_each_network(rows):
    problem, nets, key = dl.Problem.from_data(*rows), networks(), jax.random.key(1)
    keys = jnp.stack([jax.random.fold_in(key, k) for k in range(3)])
    runs = [dl.gradient_descent(problem, nets, 0.01, 5, batch_size=5, key=k) for k in (key, keys)]
    assert np.array_equal(runs[0].network.weights[0], runs[1].network.weights[0])


def test_the_whole_data_as_a_batch_is_full_descent(rows):
    problem, nets = dl.Problem.from_data(*rows), networks()
    full = dl.gradient_descent(problem, nets, 0.01, STEPS)
    batch = dl.gradient_descent(problem, nets, 0.01, STEPS, batch_size=20, key=KEYS)
    for a, b in zip(full.network.weights, batch.network.weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_keys_of_any_generator_give_batches_that_do_not_depend_on_the_grouping(rows):
    problem, nets = dl.Problem.from_data(*rows), networks()
    keys = jax.random.split(jax.random.key(2, impl="rbg"), 3)
    together = dl.gradient_descent(problem, nets, 0.01, 5, batch_size=5, key=keys)
    one = jax.tree.map(lambda leaf: leaf[1], nets)
    alone = dl.gradient_descent(problem, one, 0.01, 5, batch_size=5, key=keys[1])
    assert np.array_equal(together.network.weights[0][1], alone.network.weights[0])


def test_pieces_and_records_do_not_change_the_batches(rows):
    problem, nets = dl.Problem.from_data(*rows), networks()
    options = {"batch_size": 5, "key": KEYS}
    whole = dl.gradient_descent(problem, nets, 0.01, 30, **options)
    pieces = dl.gradient_descent(problem, nets, 0.01, 30, record_every=7, record="risk", **options)
    assert np.array_equal(whole.network.weights[0], pieces.network.weights[0])


def test_all_batches_are_equally_likely():
    """C(5, 2) = 10 batches in 20 000 draws: χ² with 9 degrees of freedom, below its 1 − 1e-4."""
    batches = drawn(KEYS[0], range(20_000), 5, 2)
    pairs = list(itertools.combinations(range(5), 2))
    counts = [np.sum((np.sort(batches, axis=1) == pair).all(axis=1)) for pair in pairs]
    assert sum(counts) == 20_000  # two different rows each time
    assert sum((c - 2000) ** 2 / 2000 for c in counts) < 33.7


def test_a_goal_is_the_risk_on_all_rows(rows, layout):
    problem, nets = dl.Problem.from_data(*rows), networks("gelu")
    run = dl.gradient_descent(problem, nets, 0.02, 4000, batch_size=5, key=KEYS, loss_target=0.5)
    assert set(run.status) == {"converged"}
    for member in range(3):
        net = dl.Network([w[member] for w in run.network.weights], activation="gelu")
        risk = np.sum((np.asarray(net(rows[0])) - rows[1]) ** 2) / 20
        assert risk <= 0.5
        assert run.evidence["risk"][member] == pytest.approx(risk)


# --- what is told about a run ----------------------------------------------------------------


def test_the_objective_with_decay_is_evidence(rows):
    problem, net = dl.Problem.from_data(*rows), jax.tree.map(lambda leaf: leaf[0], networks())
    run = dl.gradient_descent(problem, net, 0.01, 10, weight_decay=0.1)
    squares = sum(float(jnp.sum(w**2)) for w in run.network.weights)
    assert run.evidence["objective"] == pytest.approx(run.evidence["risk"] + 0.1 * squares)
    assert run.weight_decay == 0.1


def test_a_schedule_is_what_the_run_says(rows):
    problem, net = dl.Problem.from_data(*rows), jax.tree.map(lambda leaf: leaf[0], networks())
    schedule = optax.cosine_decay_schedule(0.01, 10)
    run = dl.gradient_descent(problem, net, schedule, 10)
    assert run.learning_rate == pytest.approx([float(schedule(t)) for t in range(10)])
    by_hand = dl.gradient_descent(problem, net, lambda t: 0.01 if t < 5 else 0.002, 10)
    two = dl.gradient_descent(problem, net, 0.01, 5).network
    two = dl.gradient_descent(problem, two, 0.002, 5).network
    np.testing.assert_allclose(by_hand.network.weights[0], two.weights[0], rtol=0, atol=1e-14)


# --- optax -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adam(0.01),
        optax.rmsprop(0.01, momentum=0.5),
        optax.sgd(optax.cosine_decay_schedule(0.05, STEPS), momentum=0.9, nesterov=True),
        optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.01, weight_decay=0.1)),
    ],
)
def test_an_optax_optimizer_is_its_own_loop(rows, optimizer):
    problem, nets = dl.Problem.from_data(*rows), networks()
    run = dl.gradient_descent(problem, nets, None, STEPS, optimizer=optimizer, record_every=6)
    X, Y = rows
    for member in range(3):
        weights = tuple(w[member] for w in nets.weights)
        state = optimizer.init(weights)
        for _ in range(STEPS):
            slopes = gradient(weights, X, Y)
            updates, state = optimizer.update(slopes, state, weights)
            weights = optax.apply_updates(weights, updates)
        for ours, theirs in zip(run.network.weights, weights, strict=True):
            # Adam divides by roots of squares: roundings grow where a gradient passes zero
            np.testing.assert_allclose(ours[member], theirs, rtol=0, atol=1e-9)
    assert run.learning_rate is None
    assert run.variant == "optimizer"


def test_a_maker_of_optimizers_gets_the_rate_of_each_run(rows):
    problem, nets = dl.Problem.from_data(*rows), networks()
    rates = [0.01, 0.02, 0.03]
    run = dl.gradient_descent(problem, nets, rates, STEPS, optimizer=optax.adam)
    for member, rate in enumerate(rates):
        one = jax.tree.map(lambda leaf, at=member: leaf[at], nets)
        alone = dl.gradient_descent(problem, one, rate, STEPS, optimizer=optax.adam(rate))
        np.testing.assert_allclose(
            run.network.weights[0][member], alone.network.weights[0], rtol=0, atol=1e-12
        )
        assert alone.learning_rate == rate


def test_sharpness_aware_minimization_gets_its_second_gradient(rows):
    """One step of SAM with radius ρ: the gradient at W + ρ∇R/‖∇R‖."""
    problem, net = dl.Problem.from_data(*rows), jax.tree.map(lambda leaf: leaf[0], networks())
    ascent = optax.chain(optax.contrib.normalize(), optax.sgd(0.05))
    sam = optax.contrib.sam(optax.sgd(0.1), ascent, sync_period=2, opaque_mode=True)
    run = dl.gradient_descent(problem, net, steps=1, optimizer=sam)
    X, Y = rows
    slope = jax.jit(jax.grad(lambda w: jnp.sum((dl.Network(w)(X) - Y) ** 2) / 20))
    first = slope(net.weights)
    size = jnp.sqrt(sum(jnp.sum(g**2) for g in first))
    up = tuple(w + 0.05 * g / size for w, g in zip(net.weights, first, strict=True))
    expected = [w - 0.1 * g for w, g in zip(net.weights, slope(up), strict=True)]
    for ours, theirs in zip(run.network.weights, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def test_a_line_search_gets_the_risk_it_searches_along(rows):
    run = dl.gradient_descent(
        dl.Problem.from_data(*rows), networks(), steps=60, optimizer=optax.lbfgs()
    )
    assert np.all(run.status == "converged")


def test_a_tuple_of_equal_rates_is_one_rate(rows):
    problem = dl.Problem.from_data(*rows)
    run = dl.gradient_descent(problem, networks(), (0.01, 0.01, 0.01), 3)
    assert run.variant == "plain"
    np.testing.assert_array_equal(run.learning_rate, [0.01] * 3)
    assert dl.gradient_descent(problem, networks(), (0.01, 0.01, 0.02), 3).learning_rate.ndim == 2


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nesterov": True}, "needs momentum"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"batch_size": 0, "key": KEYS}, "batch_size"),
        ({"batch_size": 21, "key": KEYS}, "20 samples"),
        ({"batch_size": 5}, "pass key"),
        ({"key": KEYS}, "batch_size"),
        ({"batch_size": 5, "key": KEYS[:2]}, "2 keys for 3"),
        ({"learning_rate": (0.1, 0.1)}, "tuple of 2 for 3"),
        ({"learning_rate": (0.1, -0.1, 0.1)}, "learning_rate"),
        ({"learning_rate": ()}, "empty"),
        ({"learning_rate": lambda step: -0.1}, "step 0"),
        ({"learning_rate": lambda step: jnp.zeros(2)}, "one number"),
        ({"learning_rate": None}, "learning_rate"),
        ({"optimizer": 3}, "optax"),
        ({"optimizer": optax.adam(0.1), "momentum": 0.5}, "momentum"),
        ({"optimizer": optax.adam, "learning_rate": None}, "learning_rate"),
        ({"optimizer": optax.adam, "learning_rate": (0.1, 0.1, 0.1)}, "not a tuple"),
    ],
)
def test_contradictory_options_are_refused_with_a_reason(rows, options, words):
    problem = dl.Problem.from_data(*rows)
    with pytest.raises(dl.InputError, match=words):
        dl.gradient_descent(problem, networks(), steps=3, **{"learning_rate": 0.1} | options)


def test_batches_need_rows(rows):
    whole = dl.Problem.from_data(*rows)
    moments = whole.targets.T @ whole.targets / 20
    problem = dl.Problem.from_moments(whole.covariance, whole.cross_moment, moments, 20)
    with pytest.raises(dl.InputError, match="mini-batches"):
        dl.gradient_descent(problem, networks(), 0.1, 3, batch_size=5, key=KEYS)
    with pytest.raises(dl.InputError, match="rows of a Problem"):
        dl.gradient_descent(
            lambda net: jnp.sum(net.product**2), networks(), 0.1, 3, batch_size=5, key=KEYS
        )
