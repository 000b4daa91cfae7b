"""Exact sharpness against the papers' power iteration, tracking against Lanczos at every record."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from turns import interleaved

import deeplin as dl
from deeplin.hessian import sharpness, sharpness_along
from deeplin.networks.network import Data, data_risk, linear_risk
from deeplin.problems import synthetic

WIDTHS = (5,) * 10 + (1,)
BATCH = 200


def measure() -> dict[str, dict]:
    problem = synthetic.flat_minima(seed=0).problem
    return (
        {"exact_sharpness": _exact(problem)}
        | _tracking(problem)
        | _accuracy(problem)
        | _records(problem)
        | _auto()
    )


def _exact(problem) -> dict:
    """A batch of minimisers: X-1 against 20 jitted power iterations by autodiff on the rows."""
    keys = jax.random.split(jax.random.key(0), BATCH)
    start = dl.initialize.gaussian(keys, WIDTHS, 0.35)
    nets = dl.gradient_descent(problem, start, learning_rate=0.02, steps=50_000, gap=1e-29).network
    rows = Data(*map(jnp.asarray, problem.require_data("rows")))
    on_rows = _power_iterations(data_risk, rows)
    on_moments = _power_iterations(linear_risk, problem.device_risk)
    exact, by_power, by_moments = interleaved(
        [
            lambda: sharpness(problem, nets, method="exact"),
            lambda: jax.block_until_ready(on_rows(nets.weights)),
            lambda: jax.block_until_ready(on_moments(nets.weights)),
        ],
        repetitions=15,
    )
    found = sharpness(problem, nets, method="exact")
    oracle = sharpness(problem, jax.tree.map(lambda leaf: leaf[:20], nets), method="dense")
    relative = np.abs(found.value[:20] - oracle.value) / oracle.value
    return {
        "ratio": by_power / exact,
        "target": 50,
        "details": {
            "exact_microseconds_per_network": 1e6 * exact / BATCH,
            "power_microseconds_per_network": 1e6 * by_power / BATCH,
            "ratio_to_power_iterations_through_the_moments": by_moments / exact,
            "largest_relative_error_against_dense": float(relative.max()),
            "relative_error_target": 1e-12,
            "largest_relative_error_reported": float(np.max(found.error / found.value)),
        },
    }


def _power_iterations(risk, data, steps: int = 20):
    """As the papers ran it: products by automatic differentiation of the risk."""

    def one(weights):
        gradient = jax.grad(lambda weights: risk(data, dl.Network(weights)))

        def product(vector):
            return jax.jvp(gradient, (weights,), (vector,))[1]

        def step(_, vector):
            image = product(vector)
            norm = jnp.sqrt(sum(jnp.sum(part**2) for part in image))
            return tuple(part / norm for part in image)

        vector = jax.lax.fori_loop(0, steps, step, tuple(map(jnp.ones_like, weights)))
        return sum(jnp.sum(v * h) for v, h in zip(vector, product(vector), strict=True))

    return jax.jit(jax.vmap(one))


def _tracking(problem) -> dict:
    """Sharpness at every ninth step of descents: products of the tracker against cold Lanczos.

    Eight networks, because the first alone needs more of them (2.1 for each record) than most.
    """
    starts, warm, cold = [], [], []
    for seed in range(8):
        net = dl.initialize.gaussian(jax.random.key(seed), WIDTHS, 0.35)
        run = dl.gradient_descent(
            problem, net, learning_rate=0.02, steps=999, record_every=9, record=("risk",)
        )
        records = list(run.trajectory)[:100]
        first, *others = sharpness_along(problem, run.trajectory[:100]).products.tolist()
        starts.append(first)
        warm.append(others)
        cold += [sharpness(problem, record, method="lanczos").products for record in records[::10]]
    each = float(np.mean(warm))
    return {
        "tracked_sharpness": {
            "ratio": float(np.mean(cold)) / each,
            "target": 3,
            "details": {"mean_products_of_lanczos": float(np.mean(cold))},
        },
        "tracked sharpness: products for each record": {
            "ratio": each,
            "target": 2,
            "at_most": True,
            "details": {
                "of_each_network": np.mean(warm, axis=1).tolist(),
                "largest": int(np.max(warm)),
                "cold": starts,
            },
        },
    }


def _accuracy(problem) -> dict:
    """The largest relative error of tracked sharpness against dense Hessians at every record.

    Twenty networks, the larger of which start too sharp for their learning rates and jump to
    flatter places, at each of 101 records.
    """
    keys = jax.random.split(jax.random.key(1), 20)
    nets = dl.initialize.gaussian(keys, WIDTHS, np.linspace(0.2, 0.55, 20))
    rates = np.tile([0.01, 0.02, 0.03, 0.05], 5)
    run = dl.gradient_descent(problem, nets, rates, 100, record_every=1, record=("risk",))
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), run.trajectory.stacked)
    dense = np.asarray(sharpness(problem, flat, method="dense").value).reshape(-1, len(keys))
    rows = {}
    for tolerance in (1e-6, 1e-12):
        found = sharpness_along(problem, run.trajectory, tolerance=tolerance)
        wrong = np.abs(found.value - dense)
        rows[f"tracked sharpness: largest relative error at tolerance {tolerance:g}"] = {
            "ratio": float(np.max(wrong / dense)),
            "target": tolerance,
            "at_most": True,
            "details": {
                "largest_error_over_its_reported_bound": float(np.max(wrong / found.error)),
                "mean_products": float(found.products.mean()),
            },
        }
    return rows


def _records(problem) -> dict:
    """Sharpness at every step: the compiled pass against the papers' way, and for one network."""
    keys = jax.random.split(jax.random.key(0), BATCH)
    nets = dl.initialize.gaussian(keys, WIDTHS, 0.35)
    many = _trajectory(problem, nets, 200)
    alone = _trajectory(problem, jax.tree.map(lambda leaf: leaf[0], nets), 2000)
    rows = Data(*map(jnp.asarray, problem.require_data("rows")))
    on_rows = _power_iterations(data_risk, rows)
    on_moments = _power_iterations(linear_risk, problem.device_risk)
    recorded, stepped, tracked, single, by_power, by_moments = interleaved(
        [
            lambda: _descent(problem, nets, 200, ("risk", "sharpness")),
            lambda: _descent(problem, nets, 200, ("risk",)),
            lambda: sharpness_along(problem, many),
            lambda: sharpness_along(problem, alone),
            lambda: jax.block_until_ready(on_rows(nets.weights)),
            lambda: jax.block_until_ready(on_moments(nets.weights)),
        ]
    )
    records, one = len(many.weights[0]), len(alone.weights[0])
    return {
        "risk and sharpness at every step of 200 networks: microseconds of each": {
            "ratio": 1e6 * recorded / records / BATCH,
            "target": 12,
            "at_most": True,
            "details": {
                "microseconds_of_tracking_alone": 1e6 * tracked / records / BATCH,
                "mean_products": float(sharpness_along(problem, many).products.mean()),
                "power_iterations_on_rows_over_tracking": by_power / (tracked / records),
                "power_iterations_on_moments_over_tracking": by_moments / (tracked / records),
                "microseconds_of_a_record_of_a_network_alone": 1e6 * single / one,
                "microseconds_with_risk_only": 1e6 * stepped / records / BATCH,
            },
        },
    }


def _trajectory(problem, nets, steps: int):
    return _descent(problem, nets, steps, ("risk",)).trajectory


def _descent(problem, nets, steps: int, record: tuple[str, ...]):
    """A recorded run, all of it: a copy still under way would be charged to the next call."""
    run = dl.gradient_descent(problem, nets, 0.02, steps, record_every=1, record=record)
    jax.block_until_ready(run.trajectory)
    return run


def _auto() -> dict:
    """`auto` against the best of the methods, far from minimisers and at them."""
    worst, details = 0.0, {}
    for name, width, depth, batch in (
        ("narrow", 5, 10, 50),
        ("wide", 100, 5, 4),
        ("tiny", 3, 3, 20),
    ):
        data = np.random.default_rng(0)
        X = data.normal(size=(3 * width, width))
        problem = dl.Problem.from_data(X, X @ data.normal(size=width) + data.normal(size=3 * width))
        keys = jax.random.split(jax.random.key(0), batch)
        nets = dl.initialize.gaussian(keys, (width,) * depth + (1,), 1 / np.sqrt(width))
        ways = ("auto", "lanczos", "dense") if name == "tiny" else ("auto", "lanczos")
        auto, *others = interleaved(
            [partial(sharpness, problem, nets, method=way) for way in ways], repetitions=5
        )
        details[name] = auto / min(others)
        worst = max(worst, details[name])
    return {
        "sharpness auto against the best method": {
            "ratio": worst,
            "target": 1.2,
            "at_most": True,
            "details": details,
        }
    }
