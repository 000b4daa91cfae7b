"""Kernels against the same in NumPy or JAX: batches of the papers' layers, one wide network."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise

import jax
import numpy as np

import deeplin as dl
from deeplin.dynamics.batches import Batches
from deeplin.dynamics.rank_steps import Packed
from deeplin.kernels.compiling import call
from deeplin.kernels.singular_values import extreme_singular
from deeplin.kernels.wide import Diagonal, Motion, Moving, descend
from deeplin.networks import products
from deeplin.problems import synthetic
from deeplin.hessian.operators import AutodiffHessian, ReducedHessian

BATCH = 200


def measure() -> dict[str, dict]:
    jax.config.update("jax_enable_x64", True)
    pairs = {
        "kernel: imbalance": _imbalance(),
        "kernel: singular values": _singular_values(),
        "kernel: Hessian-vector products": _hessian(),
        "kernel: descent of one wide network": _wide(),
        "kernel: mini-batches": _batches(),
    }
    return {name: _row(*pair) for name, pair in pairs.items()}


def _row(plain, compiled, repetitions: int = 15) -> dict:
    """Median CPU seconds of both, taken in turn so that the machine's moods hit both alike."""
    times: list[list[float]] = [[], []]
    for _ in range(repetitions + 1):
        for call_one, taken in zip((plain, compiled), times, strict=True):
            began = time.process_time()
            call_one()
            taken.append(time.process_time() - began)
    slow, fast = (statistics.median(taken[1:]) for taken in times)  # the first one compiles
    return {"ratio": slow / fast, "target": 2, "details": {"plain_s": slow, "kernel_s": fast}}


def _imbalance():
    lower, upper = np.random.default_rng(0).normal(size=(2, 20_000, 5, 5))
    return (
        lambda: upper.mT @ upper - lower @ lower.mT,
        lambda: products.imbalance([lower, upper]),
    )


def _singular_values():
    layers = np.random.default_rng(0).normal(size=(20_000, 5, 5))
    return lambda: np.linalg.svd(layers), lambda: extreme_singular(layers)


def _hessian():
    problem = synthetic.flat_minima(seed=0).problem
    keys = jax.random.split(jax.random.key(0), BATCH)
    nets = dl.initialize.gaussian(keys, (5,) * 10 + (1,), 0.35)
    reduced, autodiff = ReducedHessian(problem, nets), AutodiffHessian(problem, nets)
    everyone, rng = np.arange(BATCH), np.random.default_rng(0)
    small, whole = rng.normal(size=reduced.shape), rng.normal(size=autodiff.shape)
    return lambda: autodiff(everyone, whole), lambda: reduced(everyone, small)


def _wide(widths=(100,) * 10 + (1,), steps: int = 50):
    """The step in NumPy: V_{k−1} = W_kᵀV_k, U_k = W_kU_{k−1}, W_k −= ηV_kU_{k−1}ᵀ."""
    rng = np.random.default_rng(0)
    layers = [rng.normal(size=(m, n)) / np.sqrt(n) for n, m in pairwise(widths)]
    eigenvalues, optimum = rng.uniform(0.1, 1, widths[0]), rng.normal(size=(widths[0], widths[-1]))

    def plain():
        weights = [layer.copy() for layer in layers]
        for _ in range(steps):
            backward = [np.eye(widths[-1])]
            for layer in weights[::-1]:
                backward.append(layer.T @ backward[-1])
            forward = 2 * eigenvalues[:, None] * (backward[-1] - optimum)
            for layer, outer in zip(weights, backward[-2::-1], strict=True):
                following = layer @ forward
                layer -= 1e-6 * outer @ forward.T
                forward = following

    target = Diagonal(np.eye(widths[-1]), eigenvalues, np.ascontiguousarray(optimum.T), 0.0)
    sizes, motion = np.array(widths), Motion(1e-6, 0.0, -np.inf, np.inf)

    def compiled():
        network = Moving(Packed.of(layers).lanes, Packed.of([]).lanes, sizes)
        call(descend, network, target, motion, steps, 0.0)

    return plain, compiled


def _batches(samples: int = 50, size: int = 10, steps: int = 500):
    """Rows of every step of every network: the first of NumPy's permutations are as good."""
    batches, rng = (
        Batches(np.arange(BATCH, dtype=np.uint64), samples, size),
        np.random.default_rng(0),
    )
    everyone = np.broadcast_to(np.arange(samples), (BATCH * steps, samples))
    return lambda: rng.permuted(everyone, axis=1)[:, :size], lambda: batches.rows(0, steps)
