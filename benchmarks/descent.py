"""Speed of gradient descent, as ratios within one run.

The yardstick is what one would write first: a jitted update of one network, called from Python in
a loop, the gradient by autodiff on the rows of the data.
"""

import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import deeplin as dl

REPETITIONS = 7


def measure() -> dict[str, dict]:
    jax.config.update("jax_enable_x64", True)
    return {
        "descent, linear": batch_against_loop("linear", networks=200, steps=20_000, target=200),
        "descent, GELU": batch_against_loop("gelu", networks=160, steps=1_500, target=9),
        "descent, cost at n = 10⁶ over n = 50": independence_of_samples(),
    }


def batch_against_loop(activation: str, networks: int, steps: int, target: float) -> dict:
    """Network-steps per second of one batched call over those of the plain loop; d = 5, L = 10."""
    problem = random_problem(50)
    keys = jax.random.split(jax.random.key(0), networks)
    nets = dl.initialize.gaussian(keys, widths=(5,) * 10 + (1,), scale=0.4, activation=activation)
    one = jax.tree.map(lambda leaf: leaf[0], nets)
    loop_steps = 500

    def loop() -> None:
        update = partial(plain_update, activation, problem.inputs, problem.targets)
        weights = one.weights
        for _ in range(loop_steps):
            weights = update(weights)
        jax.block_until_ready(weights)

    def batch() -> None:
        run = dl.gradient_descent(problem, nets, learning_rate=1e-3, steps=steps)
        assert np.all(run.steps == steps)  # every network took every step that is counted

    plain, ours = interleaved(loop, batch)
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


def independence_of_samples() -> dict:
    """Time of a step on 10⁶ samples over that on 50: linear networks see the moments only."""
    keys = jax.random.split(jax.random.key(0), 200)
    nets = dl.initialize.gaussian(keys, widths=(5,) * 10 + (1,), scale=0.4)
    problems = [random_problem(samples) for samples in (50, 10**6)]
    for problem in problems:
        _ = problem.quadratic  # the moments are formed once, not in a step

    def train(problem) -> None:
        dl.gradient_descent(problem, nets, learning_rate=1e-3, steps=20_000)

    few, many = interleaved(*(partial(train, problem) for problem in problems))
    details = {"seconds_at_50": few, "seconds_at_1e6": many}
    return {"ratio": many / few, "target": 1.1, "at_most": True, "details": details}


def random_problem(samples: int) -> dl.Problem:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(samples, 5))
    return dl.Problem.from_data(X, X @ rng.normal(size=5) + rng.normal(size=samples))


def interleaved(first, second) -> tuple[float, float]:
    """Median seconds of two calls, taken in turns so that both see the same machine."""
    times: tuple[list[float], list[float]] = ([], [])
    for call in (first, second):
        call()  # compiled, and its caches filled, before the clock starts
    for _ in range(REPETITIONS):
        for call, taken in zip((first, second), times, strict=True):
            began = time.perf_counter()
            call()
            taken.append(time.perf_counter() - began)
    return statistics.median(times[0]), statistics.median(times[1])
