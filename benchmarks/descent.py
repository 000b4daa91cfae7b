"""Speed of gradient descent, as ratios within one run.

The yardstick is what one would write first: a jitted update of one network, called from Python in
a loop, the gradient by autodiff on the rows of the data.
"""

import itertools
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from turns import in_turns, interleaved

import deeplin as dl


def measure() -> dict[str, dict]:
    jax.config.update("jax_enable_x64", True)
    return {
        "descent, linear": batch_against_loop("linear", networks=200, steps=20_000, target=200),
        "descent, GELU": batch_against_loop("gelu", networks=160, steps=1_500, target=10),
        "descent, 200 linear networks, vmapped JAX on two threads over ours": vmapped("linear", 2),
        "descent, 160 GELU networks, ours over vmapped JAX on two threads": vmapped("gelu", 1.1),
        "descent, first call of a new shape, L = 10: seconds": first_call(10, 1.0),
        "descent, first call of a new shape, L = 40: seconds": first_call(40, 2.0),
        "descent, first call with sharpness tracked, L = 10: seconds": first_call(
            10, 4.0, ', record_every=1, record=["risk", "sharpness"]'
        ),
        "descent, cost at n = 10⁶ over n = 50": independence_of_samples(),
        **wide_against_plain(),
        "descent, one small network: milliseconds of a call": fixed_cost(),
        "descent, a loss of one's own over a vmapped loop": own_loss(),
        "descent, weight decay over plain": option(weight_decay=1e-4),
        "descent, layer-wise rates over one rate": option(learning_rate=(1e-3,) * 9 + (2e-3,)),
        "descent, mini-batches of n/5 over all rows, GELU": mini_batches(),
        "descent, Adam for 200 networks over a loop of optax": adam(),
    }


def batch_against_loop(activation: str, networks: int, steps: int, target: float) -> dict:
    """Network-steps per second of one batched call over those of the plain loop; d = 5, L = 10."""
    problem = random_problem(50)
    keys = jax.random.split(jax.random.key(0), networks)
    nets = dl.initialize.gaussian(keys, widths=(5,) * 10 + (1,), scale=0.4, activation=activation)
    one = jax.tree.map(lambda leaf: leaf[0], nets)
    loop_steps = 5_000  # about as long as a batch: both then meet the same disturbances

    def loop() -> None:
        update = partial(plain_update, activation, problem.inputs, problem.target_columns)
        weights = one.weights
        for _ in range(loop_steps):
            weights = update(weights)
        jax.block_until_ready(weights)

    def batch() -> None:
        run = dl.gradient_descent(problem, nets, learning_rate=1e-3, steps=steps)
        assert np.all(run.steps == steps)  # every network took every step that is counted

    # Many turns: one core or both may be slower for seconds, which a loop on one of them escapes.
    plain, ours = interleaved([loop, batch], repetitions=21)
    plain, ours = plain / loop_steps, ours / (steps * networks)
    details = {"loop_seconds_per_step": plain, "batch_seconds_per_network_step": ours}
    return {"ratio": plain / ours, "target": target, "details": details}


@partial(jax.jit, static_argnums=0)
def plain_update(activation, inputs, targets, weights):
    """W − η∇R of one network."""

    def risk(weights):
        residual = dl.Network(weights, activation=activation)(inputs) - targets
        return jnp.sum(residual**2) / len(inputs)

    slopes = jax.grad(risk)(weights)
    return tuple(w - 1e-3 * slope for w, slope in zip(weights, slopes, strict=True))


def vmapped(activation: str, target: float) -> dict:
    """A loop of `vmap` of `value_and_grad`, half of the networks in each of two threads."""
    problem = random_problem(50)
    networks, steps = (200, 4000) if activation == "linear" else (160, 400)
    keys = jax.random.split(jax.random.key(0), networks)
    nets = dl.initialize.gaussian(keys, widths=(5,) * 10 + (1,), scale=0.4, activation=activation)
    X, Y = jnp.asarray(problem.inputs), jnp.asarray(problem.target_columns)
    covariance, optimum = jnp.asarray(problem.covariance), jnp.asarray(problem.optimum)

    def risk(weights):
        if activation == "linear":
            return moment_risk(weights, covariance, optimum)
        return jnp.sum((dl.Network(weights, activation=activation)(X) - Y) ** 2) / len(X)

    @jax.jit
    def loop(weights):
        def step(_, batch):
            _, slopes = jax.vmap(jax.value_and_grad(risk))(batch)
            return tuple(w - 1e-3 * g for w, g in zip(batch, slopes, strict=True))

        return jax.lax.fori_loop(0, steps, step, weights)

    halves = [tuple(w[k::2] for w in nets.weights) for k in range(2)]
    pool = ThreadPoolExecutor(2)

    def plain() -> None:
        list(pool.map(lambda half: jax.block_until_ready(loop(half)), halves))

    by_hand, ours = interleaved([plain, partial(dl.gradient_descent, problem, nets, 1e-3, steps)])
    each = {"microseconds_by_hand": by_hand, "microseconds": ours}
    details = {name: 1e6 * seconds / networks / steps for name, seconds in each.items()}
    if activation == "linear":
        return {"ratio": by_hand / ours, "target": target, "details": details}
    return {"ratio": ours / by_hand, "target": target, "at_most": True, "details": details}


def first_call(depth: int, target: float, options: str = "") -> dict:
    """Seconds of a first call, in new processes without a cache of compiled programs."""
    program = f"""
import time, jax
jax.config.update("jax_enable_x64", True)
import deeplin as dl
problem = dl.problems.synthetic.flat_minima(seed=0).problem
keys = jax.random.split(jax.random.key(0), 200)
nets = dl.initialize.gaussian(keys, widths=(5,) * {depth} + (1,), scale=0.4)
dl.gradient_descent(problem, dl.initialize.gaussian(keys, widths=(5, 1), scale=0.4), 1e-3, 1)
began = time.perf_counter()
dl.gradient_descent(problem, nets, 1e-3, 10{options})
print(time.perf_counter() - began)
"""
    times = [
        float(
            subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
        )
        for _ in range(5)
    ]
    return {"ratio": min(times), "target": target, "at_most": True, "details": {"seconds": times}}


def independence_of_samples() -> dict:
    """Time of a step on 10⁶ samples over that on 50: linear networks see the moments only."""
    keys = jax.random.split(jax.random.key(0), 200)
    nets = dl.initialize.gaussian(keys, widths=(5,) * 10 + (1,), scale=0.4)
    problems = [random_problem(samples) for samples in (50, 10**6)]
    for problem in problems:
        _ = problem.device_risk  # the moments are formed once, not in a step

    def train(problem) -> None:
        dl.gradient_descent(problem, nets, learning_rate=1e-3, steps=20_000)

    few, many = interleaved([partial(train, problem) for problem in problems])
    details = {"seconds_at_50": few, "seconds_at_1e6": many}
    return {"ratio": many / few, "target": 1.1, "at_most": True, "details": details}


SHAPES = {
    (20, 10, 20): (500, 4500),
    (50, 10, 50): (200, 1700),
    (50, 10, 1000): (20, 170),
    (50, 50, 50): (40, 340),
    (100, 10, 100): (100, 600),
    (100, 50, 100): (20, 120),
    (300, 10, 300): (10, 610),
    (300, 50, 300): (2, 102),
    (500, 10, 500): (4, 254),
    (500, 50, 500): (2, 32),
}
"""Width, depth and inputs of a single network, and two numbers of steps to tell apart."""


def wide_against_plain() -> dict[str, dict]:
    """Seconds of a step of one network over those of plain JAX: a jitted loop of value_and_grad."""
    results = {}
    for (width, depth, inputs), steps in SHAPES.items():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(2 * inputs, inputs))
        problem = dl.Problem.from_data(X, X @ rng.normal(size=inputs) / np.sqrt(inputs))
        sizes = (inputs, *(width,) * (depth - 1), 1)
        net = dl.Network(
            [rng.normal(size=(m, n)) / np.sqrt(n) for n, m in itertools.pairwise(sizes)]
        )
        covariance, optimum = jnp.asarray(problem.covariance), jnp.asarray(problem.optimum)
        calls = []
        for count in steps:
            calls.append(partial(plain_loop, net.weights, covariance, optimum, count))
            calls.append(partial(dl.gradient_descent, problem, net, 1e-6, count))
        times = interleaved(calls)
        plain, ours = times[2] - times[0], times[3] - times[1]
        shape = f"width {width}, depth {depth}, {inputs} inputs"
        results[f"descent, one network of {shape}, over plain JAX"] = {
            "ratio": ours / plain,
            "target": 1.1,
            "at_most": True,
            "details": {"plain_s": plain, "ours_s": ours, "steps": steps[1] - steps[0]},
        }
    return results


def plain_loop(weights, covariance, optimum, steps) -> None:
    jax.block_until_ready(_plain_loop(weights, covariance, optimum, steps))


def moment_risk(weights, covariance, optimum):
    """R − R_min of a linear network."""
    vector = weights[-1][0]
    for weight in weights[-2::-1]:
        vector = weight.T @ vector
    return (vector - optimum) @ (covariance @ (vector - optimum))


@jax.jit
def _plain_loop(weights, covariance, optimum, steps):
    """What one would write by hand: the risk through the moments, its gradient by autodiff."""

    def step(_, weights):
        _, slopes = jax.value_and_grad(moment_risk)(weights, covariance, optimum)
        return tuple(w - 1e-6 * slope for w, slope in zip(weights, slopes, strict=True))

    return jax.lax.fori_loop(0, steps, step, weights)


def fixed_cost() -> dict:
    """One step of one network of the papers' shape, in milliseconds."""
    problem = random_problem(50)
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5,) * 10 + (1,), scale=0.4)

    def milliseconds() -> float:
        began = time.perf_counter()
        dl.gradient_descent(problem, net, 1e-3, 1)
        return 1e3 * (time.perf_counter() - began)

    (turns,) = in_turns([milliseconds], 201)
    # The least, as there is nothing beside it that the machine would slow down as well.
    details = {"median": statistics.median(turns)}
    return {"ratio": min(turns), "target": 1.0, "at_most": True, "details": details}


def own_loss() -> dict:
    """A loss given as a function of a dict, eight runs, over `vmap` of `value_and_grad` by hand."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(100, 5)), rng.normal(size=(100, 3))
    start = {"W": rng.normal(size=(30, 5)), "V": rng.normal(size=(3, 30)), "b": np.zeros(3)}
    rates = np.linspace(1e-3, 2e-3, 8)

    def loss(p):
        return jnp.mean((jnp.tanh(X @ p["W"].T) @ p["V"].T + p["b"] - Y) ** 2)

    @jax.jit
    def by_hand(steps):
        def step(_, batch):
            _, slopes = jax.vmap(jax.value_and_grad(loss))(batch)
            scaled = jax.tree.map(lambda g: jax.vmap(jnp.multiply)(rates, g), slopes)
            return jax.tree.map(jnp.subtract, batch, scaled)

        batch = jax.tree.map(lambda leaf: jnp.stack([leaf] * 8), start)
        return jax.lax.fori_loop(0, steps, step, batch)

    calls = []
    for steps in (200, 2200):
        calls.append(lambda steps=steps: jax.block_until_ready(by_hand(steps)))
        calls.append(partial(dl.gradient_descent, loss, start, rates, steps))
    times = interleaved(calls)
    plain, ours = times[2] - times[0], times[3] - times[1]
    details = {"by_hand_s": plain, "ours_s": ours}
    return {"ratio": ours / plain, "target": 1.1, "at_most": True, "details": details}


def option(**options) -> dict:
    """200 linear networks with an option over the same without."""
    problem = random_problem(50)
    keys = jax.random.split(jax.random.key(0), 200)
    nets = dl.initialize.gaussian(keys, widths=(5,) * 10 + (1,), scale=0.4)
    plain = partial(dl.gradient_descent, problem, nets, 1e-3, 10_000)
    other = {"learning_rate": 1e-3} | options
    with_it = partial(dl.gradient_descent, problem, nets, steps=10_000, **other)
    seconds = interleaved([plain, with_it])
    details = {"plain_s": seconds[0], "option_s": seconds[1]}
    return {"ratio": seconds[1] / seconds[0], "target": 1.1, "at_most": True, "details": details}


def mini_batches() -> dict:
    """Stochastic over full-batch descent of 160 GELU networks, B = n/5."""
    problem = random_problem(50)
    keys = jax.random.split(jax.random.key(0), 160)
    nets = dl.initialize.gaussian(keys, widths=(5,) * 10 + (1,), scale=0.4, activation="gelu")
    full = partial(dl.gradient_descent, problem, nets, 1e-3, 500)
    seconds = interleaved([full, partial(full, batch_size=10, key=keys)])
    details = {"full_s": seconds[0], "batches_s": seconds[1]}
    return {"ratio": seconds[1] / seconds[0], "target": 1.5, "at_most": True, "details": details}


def adam() -> dict:
    """Network-steps a second of one call over those of a jitted one-network step in Python."""
    problem, steps = random_problem(50), 500
    keys = jax.random.split(jax.random.key(0), 200)
    nets = dl.initialize.gaussian(keys, widths=(5,) * 10 + (1,), scale=0.4)
    one = jax.tree.map(lambda leaf: leaf[0], nets)
    optimizer = optax.adam(1e-3)

    @jax.jit
    def step(weights, state):
        slopes = jax.grad(
            lambda w: jnp.mean((dl.Network(w)(problem.inputs) - problem.target_columns) ** 2)
        )(weights)
        updates, state = optimizer.update(slopes, state, weights)
        return optax.apply_updates(weights, updates), state

    def loop() -> None:
        weights, state = one.weights, optimizer.init(one.weights)
        for _ in range(steps):
            weights, state = step(weights, state)
        jax.block_until_ready(weights)

    def batch() -> None:
        dl.gradient_descent(problem, nets, None, steps, optimizer=optimizer)

    plain, ours = interleaved([loop, batch])
    details = {"loop_s": plain, "batch_s": ours}
    return {"ratio": 200 * plain / ours, "target": 30, "details": details}


def random_problem(samples: int) -> dl.Problem:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(samples, 5))
    return dl.Problem.from_data(X, X @ rng.normal(size=5) + rng.normal(size=samples))
