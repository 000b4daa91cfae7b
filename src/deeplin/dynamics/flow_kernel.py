"""Gradient flow of linear networks in compiled code: the same pairs as diffrax, no shape compiled.

Each network takes steps of its own length, so a batch costs the sum of its members and not its
slowest one times their number.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import numpy as np

from deeplin.kernels.compiling import call, thread_count
from deeplin.kernels.flow import Integration, Pair, flow_members
from deeplin.networks import Network

MOST = 100_000
"""Weights of a network up to which the kernel is used: larger ones gain from BLAS."""


@cache
def pair_of(method: str) -> Pair:
    """The table of a pair, by the name diffrax has for it."""
    import diffrax  # half a second, which `import deeplin` need not wait for

    solver = getattr(diffrax, method)
    table = solver.tableau
    stages = np.zeros((table.num_stages, table.num_stages))
    for row, entries in enumerate(table.a_lower, start=1):
        stages[row, : len(entries)] = entries
    return Pair(stages, np.array(table.b_error, float), float(solver().order(None)))


def flow_batch(
    moments: tuple[np.ndarray, np.ndarray],
    networks: Network,
    integration: Integration,
    goals: np.ndarray,
    times: np.ndarray,
    outcome: np.ndarray,
) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    """Take each running network towards the time given or its goal, as `integration` says.

    Returns the weights, the times, and for each network steps, rejected ones and outcome.
    """
    layers = [np.asarray(weight, np.float64) for weight in networks.weights]
    batch = len(layers[0])
    flat = np.concatenate([layer.reshape(batch, -1) for layer in layers], axis=1)
    times, counts = np.array(times, float), np.zeros((batch, 3), np.int64)
    counts[:, 2] = outcome
    covariance, optimum = (np.array(part, np.float64, order="C") for part in moments)
    own = np.array(networks.widths), flat, _readouts(networks, batch)
    fixed = own, (covariance, optimum), integration, np.array(goals, float), times, counts
    parts = max(1, min(thread_count(), batch))
    spans = [np.array(s) for s in pairwise(np.linspace(0, batch, parts + 1).astype(np.int64))]
    if parts == 1:
        call(flow_members, *fixed, spans[0])
    else:
        call(flow_members, *fixed, np.zeros(2, np.int64))  # compiled before threads share it
        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(lambda span: flow_members(*fixed, span), spans))
    ends = np.cumsum([layer[0].size for layer in layers])[:-1]
    pieces = np.split(flat, ends, axis=1)
    weights = (piece.reshape(layer.shape) for piece, layer in zip(pieces, layers, strict=True))
    return tuple(map(np.ascontiguousarray, weights)), times, counts


def _readouts(networks: Network, batch: int) -> np.ndarray:
    """One row for each output: p, or the identity without a read-out."""
    if networks.readout is None:
        return np.broadcast_to(np.eye(networks.outputs), (batch,) + 2 * (networks.outputs,)).copy()
    readout = np.asarray(networks.readout, np.float64)
    return np.broadcast_to(readout, (batch, readout.shape[-1]))[:, None].copy()
