"""The flat-minima suite against running it one network at a time, as research code does.

The slow side: a jitted update called from Python for one network, and every fifth step a jitted
function with 20 power iterations by Hessian-vector products. The fast side: the sweep of FM-1 as
`deeplin reproduce --preset paper` runs it, sharpness before and after included. Both are warm; the
ratio is of seconds per network-step.
"""

import time
from statistics import median

import jax
import jax.numpy as jnp

from deeplin.networks.network import risk_and_data
from deeplin.papers.fm_1 import SWEEP

SLOW_STEPS = 500
REPETITIONS = 3


def one_at_a_time():
    """A function that takes one network through some steps, as the papers' code does."""
    config = SWEEP.presets["paper"]
    run = [{"scale": config.scales[0], "repetition": 0}]
    network = config.setting.networks(0, run, config.scales[0])
    network = jax.tree.map(lambda leaf: leaf[0], network.with_batch())
    risk, data = risk_and_data(config.setting.data.problem, network)

    def loss(net):
        return risk(data, net)

    @jax.jit
    def update(net):
        return jax.tree.map(lambda w, g: w - 0.02 * g, net, jax.grad(loss)(net))

    @jax.jit
    def sharpness(net, vector):
        def iterate(_, v):
            image = jax.jvp(jax.grad(loss), (net,), (v,))[1]
            size = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(image)))
            return jax.tree.map(lambda leaf: leaf / size, image)

        vector = jax.lax.fori_loop(0, 20, iterate, vector)
        image = jax.jvp(jax.grad(loss), (net,), (vector,))[1]
        pairs = zip(jax.tree.leaves(vector), jax.tree.leaves(image), strict=True)
        return sum(jnp.vdot(a, b) for a, b in pairs)

    start = jax.tree.map(jnp.ones_like, network)

    def train(steps):
        net = network
        for step in range(steps):
            net = update(net)
            if step % 5 == 0:
                float(sharpness(net, start))
        jax.block_until_ready(net.weights)

    return train


def suite():
    """A function that computes the FM-1 sweep of the paper, and its network-steps."""
    config = SWEEP.presets["paper"]
    units = SWEEP.experiment.units(config)

    def compute():
        for unit in units:
            SWEEP.experiment.run_unit(config, unit)

    return compute, sum(unit.steps for unit in units)


def seconds(function, *arguments):
    began = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - began


def measure():
    train = one_at_a_time()
    compute, steps = suite()
    train(10)
    compute()
    slow, fast = [], []
    for _ in range(REPETITIONS):  # interleaved, so that both meet the same noise
        slow.append(seconds(train, SLOW_STEPS) / SLOW_STEPS)
        fast.append(seconds(compute) / steps)
    return {
        "flat-minima suite vs one network at a time": {
            "ratio": median(slow) / median(fast),
            "target": 200,
            "details": {
                "nanoseconds per network-step": 1e9 * median(fast),
                "one at a time": 1e9 * median(slow),
                "network-steps of the sample": steps,
            },
        }
    }
