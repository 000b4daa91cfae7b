"""Sharpness along trajectories of linear networks, compiled once for every shape.

`sharpness_along` compiles anew for each depth and width, which takes seconds; where shapes change
from one call to the next (a slider, a sweep over depths) this kernel answers in milliseconds. Only
the Hessian-vector product in closed form is needed, and each record starts Lanczos from the
eigenvector of the record before.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numba
import numpy as np

from deeplin.checks import InputError, positive_number
from deeplin.networks import Network
from deeplin.networks.risk import check_fits
from deeplin.problems import Problem
from deeplin.sharpness.result import Sharpness

LIMIT = 40
"""Most Hessian-vector products for one network."""
SECOND, FRESH = 0.5, 0.2
"""Shares of the second Ritz vector and of a random one in every start, so that an eigenvalue that
overtakes the first is found."""


def linear_sharpness_along(
    problem: Problem, trajectory: Network, *, tolerance: float = 1e-3
) -> Sharpness:
    """Sharpness of a linear network with one output, along a trajectory (records, then batch).

    `trajectory` is `run.trajectory` of a batch. `error` is the residual ‖Hv − θv‖, allowed up to
    `tolerance` relative to θ; the value itself is about its square more accurate. Not a number
    where the weights are not.

    ```python
    run = deeplin.gradient_descent(problem, nets, learning_rate=0.02, steps=500, record_every=5)
    linear_sharpness_along(problem, run.trajectory).value  # (records, batch)
    ```
    """
    positive_number("tolerance", tolerance)
    if trajectory.weights[0].ndim != 4:
        raise InputError(
            f"the weights have {trajectory.weights[0].ndim} dimensions; pass the trajectory of a "
            "batch, with record and batch axes."
        )
    if trajectory.activation != "linear" or problem.outputs != 1:
        raise InputError(
            f"this is for linear networks with one output; received {trajectory.activation} with "
            f"{problem.outputs}. Use deeplin.sharpness."
        )
    check_fits(problem, trajectory)
    records, batch = trajectory.weights[0].shape[:2]
    layers = [np.asarray(weight, np.float64) for weight in trajectory.weights]
    flat = np.concatenate([layer.reshape(records, batch, -1) for layer in layers], axis=2)
    readout = np.ones(1) if trajectory.readout is None else trajectory.readout
    outer = np.broadcast_to(
        np.asarray(readout, np.float64), (records, batch, np.shape(readout)[-1])
    )
    follow = partial(
        _follow,
        np.array(trajectory.widths),
        2 * np.ascontiguousarray(problem.covariance),
        problem.optimum.reshape(-1),
        np.random.default_rng(0).standard_normal(flat.shape[2]),
        float(tolerance),
    )
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(follow, np.ascontiguousarray(flat[:, i]), np.ascontiguousarray(outer[:, i]))
            for i in range(batch)
        ]
        values, errors, products = (
            np.stack(column, axis=1) for column in zip(*(job.result() for job in jobs), strict=True)
        )
    scale = np.maximum(np.abs(values), np.finfo(float).tiny)
    return Sharpness(values, errors, "lanczos", errors <= tolerance * scale, products=products)


@numba.njit(nogil=True, cache=True)
def _follow(widths, twice_covariance, optimum, random, tolerance, networks, readouts):
    """The largest eigenvalue at each record of one run, with residual and products used."""
    records, size = networks.shape
    values, errors = np.full(records, np.nan), np.full(records, np.nan)
    products = np.zeros(records, np.int64)
    basis = np.empty((LIMIT + 1, size))
    fresh = random / np.linalg.norm(random)
    start = fresh.copy()
    backward, forward = np.empty(widths.sum()), np.empty(widths.sum())
    for record in range(records):
        if not np.all(np.isfinite(networks[record])):
            continue
        _sweep(
            widths, networks[record], readouts[record], twice_covariance, optimum, backward, forward
        )
        basis[0] = start + FRESH * fresh
        basis[0] /= np.linalg.norm(basis[0])
        value, error, used, following = _lanczos(
            widths, networks[record], twice_covariance, backward, forward, basis, tolerance
        )
        values[record], errors[record], products[record] = value, error, used
        if np.isfinite(value):
            start = following
    return values, errors, products


@numba.njit(nogil=True, cache=True)
def _sweep(widths, weights, readout, twice_covariance, optimum, backward, forward):
    """All v_k = W_{k+1}ᵀ…W_Lᵀp into `backward` and u_k = W_{k−1}…W_1 g into `forward` (FM-grad)."""
    last = widths.size - 1
    place, node = weights.size, backward.size - widths[last]
    backward[node:] = readout
    for k in range(last, 0, -1):
        rows, columns = widths[k], widths[k - 1]
        place -= rows * columns
        for j in range(columns):
            total = 0.0
            for i in range(rows):
                total += weights[place + i * columns + j] * backward[node + i]
            backward[node - columns + j] = total
        node -= columns
    d = widths[0]
    forward[:d] = twice_covariance @ (backward[:d] - optimum)
    place, node = 0, 0
    for k in range(1, last):
        rows, columns = widths[k], widths[k - 1]
        for i in range(rows):
            total = 0.0
            for j in range(columns):
                total += weights[place + i * columns + j] * forward[node + j]
            forward[node + columns + i] = total
        place, node = place + rows * columns, node + columns


@numba.njit(nogil=True, cache=True)
def _multiply(widths, weights, twice_covariance, backward, forward, vector, image):
    """Hδ: the derivative of ∇_k = v_k u_kᵀ along δ, that is δv_k u_kᵀ + v_k δu_kᵀ."""
    last, d = widths.size - 1, widths[0]
    moved = np.zeros(backward.size)  # δv_k: how the backward products move
    place, node = weights.size, backward.size - widths[last]
    for k in range(last, 0, -1):
        rows, columns = widths[k], widths[k - 1]
        place -= rows * columns
        for i in range(rows):
            v, dv = backward[node + i], moved[node + i]
            for j in range(columns):
                at = place + i * columns + j
                moved[node - columns + j] += vector[at] * v + weights[at] * dv
        node -= columns
    change = twice_covariance @ moved[:d]  # δu_k, from δg = 2Σ̂ δw on
    place, node = 0, 0
    for k in range(1, last + 1):
        rows, columns = widths[k], widths[k - 1]
        following = np.zeros(rows)
        for i in range(rows):
            v, dv = backward[node + columns + i], moved[node + columns + i]
            for j in range(columns):
                at = place + i * columns + j
                image[at] = dv * forward[node + j] + v * change[j]
                following[i] += vector[at] * forward[node + j] + weights[at] * change[j]
        change = following
        place, node = place + rows * columns, node + columns


@numba.njit(nogil=True, cache=True)
def _lanczos(widths, weights, twice_covariance, backward, forward, basis, tolerance):
    """Lanczos with full reorthogonalisation from basis[0]: θ, its residual, products, next start."""
    limit = min(LIMIT, weights.size)
    table = np.zeros((limit, limit))
    image = np.empty(weights.size)
    steps, check = 0, 5
    while True:
        known = basis[: steps + 1]
        _multiply(widths, weights, twice_covariance, backward, forward, basis[steps], image)
        inner = known @ image
        image -= inner @ known
        again = known @ image  # once more: rounding would let the basis lose orthogonality
        image -= again @ known
        table[steps, steps] = inner[steps] + again[steps]
        rest = np.linalg.norm(image)
        steps += 1
        exhausted = not rest > 1e-13 * np.abs(table).max()
        if steps >= check or steps == limit or exhausted:
            if not np.isfinite(rest):
                return np.nan, np.nan, steps, basis[0].copy()
            values, vectors = np.linalg.eigh(table[:steps, :steps])
            error = rest * abs(vectors[-1, -1])
            if steps == limit or exhausted or error <= tolerance * abs(values[-1]):
                mixture = vectors[:, -1].copy()
                if steps > 1:
                    mixture += SECOND * vectors[:, -2]
                return values[-1], error, steps, mixture @ basis[:steps]
            check = steps + 2 + steps // 3
        table[steps, steps - 1] = table[steps - 1, steps] = rest
        basis[steps] = image / rest
