"""Descent of a linear network with wide layers, each step a rank-q update of every layer.

On a diagonal covariance (any problem, in the eigenbasis of Σ̂) a step needs only the q backward
products, the q forward products and a rank-q update: O(L r² q) operations for width r, and two
passes over the weights, because the update of this step and the backward products of the next
share one. Sizes are padded with zeros to multiples of four, the rows handled at a time; padding
stays zero under descent, so it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np

from deeplin.compiled import call

RUNNING, REACHED, BROKEN = 0, 1, 2
ROWS = 4
# Sums may be reordered and fused, but NaN and infinity keep their meaning: divergence must show.
FLAGS = {"reassoc", "contract", "nsz", "arcp"}


@dataclass
class Descent:
    """One network in training, on R = floor + Σ_i λ_i ‖Θ_i − Θ*_i‖² (FM-L8 in the eigenbasis)."""

    widths: np.ndarray
    weights: np.ndarray
    velocity: np.ndarray
    outer: np.ndarray
    """Seeds of the backward products (q × d_L): the read-out, or the identity."""
    eigenvalues: np.ndarray
    optimum: np.ndarray
    """Θ* in the eigenbasis, transposed (q × d_0)."""
    sizes: tuple[int, ...]
    """d_0, …, d_L without padding."""
    floor: float
    steps: int = 0
    risk: float = np.nan
    path: float = 0.0
    """Σ_t √R(W_t) over the steps taken."""
    outcome: int = RUNNING

    @classmethod
    def begin(
        cls,
        weights: Sequence[np.ndarray],
        eigenvalues: np.ndarray,
        optimum: np.ndarray,
        *,
        readout: np.ndarray | None = None,
        floor: float = 0.0,
        momentum: float = 0.0,
    ) -> Descent:
        """Start from layers W_1 … W_L with inputs in the eigenbasis of Σ̂ (Θ* of shape d_0 × q)."""
        sizes = (weights[0].shape[1], *(len(weight) for weight in weights))
        widths = np.array([_padded(size) for size in sizes])
        layers = [
            _pad(weight, widths[k + 1], widths[k]).ravel() for k, weight in enumerate(weights)
        ]
        outer = np.eye(sizes[-1]) if readout is None else np.reshape(readout, (1, -1))
        flat = np.concatenate(layers)
        return cls(
            widths,
            flat,
            np.zeros_like(flat) if momentum else np.zeros(0),
            _pad(outer, len(outer), widths[-1]),
            _pad(np.atleast_2d(eigenvalues), 1, widths[0])[0],
            _pad(optimum.T, optimum.shape[1], widths[0]),
            sizes,
            float(floor),
        )

    @property
    def layers(self) -> list[np.ndarray]:
        """W_1 … W_L as they are now (copies, without padding)."""
        result, start = [], 0
        for rows, columns, m, n in zip(
            self.widths[1:], self.widths[:-1], self.sizes[1:], self.sizes[:-1], strict=True
        ):
            layer = self.weights[start : start + rows * columns].reshape(rows, columns)
            result.append(layer[:m, :n].copy())
            start += rows * columns
        return result

    def advance(
        self,
        until: int,
        learning_rate: float,
        *,
        momentum: float = 0.0,
        goal: float = -np.inf,
        ceiling: float = np.inf,
    ) -> None:
        """Descend to step `until`, or stop before: R ≤ goal, or R above the ceiling or NaN.

        A run that breaks the ceiling goes back to the step before, whose weights are still finite:
        by replaying, since steps are deterministic, rather than by copying weights at every step.
        """
        if self.outcome != RUNNING:
            return
        start = (self.weights.copy(), self.velocity.copy(), self.steps, self.path)
        self._run(until, learning_rate, momentum, goal, ceiling)
        if self.outcome == BROKEN and self.steps > start[2]:
            broken_at = self.steps
            self.weights, self.velocity, self.steps, self.path = start
            self._run(broken_at - 1, learning_rate, momentum, goal, ceiling)
            self.steps, self.outcome = broken_at, BROKEN

    def _run(self, until, learning_rate, momentum, goal, ceiling) -> None:
        self.outcome, taken, self.risk, self.path = call(
            _descend,
            self.weights,
            self.velocity,
            self.widths,
            self.outer,
            self.eigenvalues,
            self.optimum,
            self.floor,
            (learning_rate, momentum, goal, ceiling),
            until - self.steps,
            self.path,
        )
        self.steps += taken


def steps_within(seconds: float, weights: int, outputs: int) -> int:
    """How many steps take about `seconds` on one core (some 2·10⁹ multiply-adds a second)."""
    return max(1, int(seconds * 2e9 / (3 * outputs * weights)))


def _padded(size: int) -> int:
    return -(-size // ROWS) * ROWS


def _pad(matrix: np.ndarray, rows: int, columns: int) -> np.ndarray:
    padded = np.zeros((rows, columns))
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded


@numba.njit(nogil=True, cache=True, fastmath=FLAGS)
def _subtract(layer, j, left, right):
    """Rows j … j+3 of W −= left ᵀright, a rank-q update."""
    w0, w1, w2, w3 = layer[j], layer[j + 1], layer[j + 2], layer[j + 3]
    for s in range(left.shape[0]):
        c0, c1, c2, c3 = left[s, j], left[s, j + 1], left[s, j + 2], left[s, j + 3]
        u = right[s]
        for i in range(layer.shape[1]):
            x = u[i]
            w0[i] -= c0 * x
            w1[i] -= c1 * x
            w2[i] -= c2 * x
            w3[i] -= c3 * x


@numba.njit(nogil=True, cache=True, fastmath=FLAGS)
def _pull_back(layer, j, upper, lower):
    """Add what rows j … j+3 contribute to V_{k−1} = W_kᵀV_k."""
    w0, w1, w2, w3 = layer[j], layer[j + 1], layer[j + 2], layer[j + 3]
    for s in range(upper.shape[0]):
        c0, c1, c2, c3 = upper[s, j], upper[s, j + 1], upper[s, j + 2], upper[s, j + 3]
        v = lower[s]
        for i in range(layer.shape[1]):
            v[i] += c0 * w0[i] + c1 * w1[i] + c2 * w2[i] + c3 * w3[i]


@numba.njit(nogil=True, cache=True, fastmath=FLAGS)
def _push_forward(layer, lower, upper):
    """U_k = W_k U_{k−1}."""
    for j in range(0, layer.shape[0], ROWS):
        w0, w1, w2, w3 = layer[j], layer[j + 1], layer[j + 2], layer[j + 3]
        for s in range(lower.shape[0]):
            u = lower[s]
            t0 = t1 = t2 = t3 = 0.0
            for i in range(layer.shape[1]):
                x = u[i]
                t0 += x * w0[i]
                t1 += x * w1[i]
                t2 += x * w2[i]
                t3 += x * w3[i]
            upper[s, j], upper[s, j + 1], upper[s, j + 2], upper[s, j + 3] = t0, t1, t2, t3


@numba.njit(nogil=True, cache=True, fastmath=FLAGS)
def _slope(eigenvalues, optimum, product, slope, floor):
    """R = floor + Σλ(Θ−Θ*)² and its gradient 2λ(Θ−Θ*) in Θ (FM-grad)."""
    risk = floor
    for s in range(optimum.shape[0]):
        for i in range(len(eigenvalues)):
            difference = product[s, i] - optimum[s, i]
            slope[s, i] = 2 * eigenvalues[i] * difference
            risk += eigenvalues[i] * difference * difference
    return risk


@numba.njit(nogil=True, cache=True, fastmath=FLAGS)
def _sweep_down(weights, velocity, widths, step, momentum, forward, old, new):
    """Update every layer from the last to the first; leave its backward products in `new`.

    With step 0 and no momentum the weights stay as they are.
    """
    moving = step != 0.0 or momentum != 0.0
    end = len(weights)
    for k in range(len(widths) - 1, 0, -1):
        rows, columns = widths[k], widths[k - 1]
        start = end - rows * columns
        layer = weights[start:end].reshape(rows, columns)
        new[k - 1][:, :columns] = 0.0
        left = step * old[k]
        for j in range(0, rows, ROWS):
            if momentum != 0.0:
                speed = velocity[start:end].reshape(rows, columns)
                speed[j : j + ROWS] *= momentum
                _subtract(speed, j, left, forward[k - 1])
                layer[j : j + ROWS] += speed[j : j + ROWS]
            elif moving:
                _subtract(layer, j, left, forward[k - 1])
            _pull_back(layer, j, new[k], new[k - 1])
        end = start


@numba.njit(nogil=True, cache=True, fastmath=FLAGS)
def _descend(weights, velocity, widths, outer, eigenvalues, optimum, floor, rules, steps, path):
    """Up to `steps` steps; returns (outcome, steps taken, R at the end, path + Σ√R)."""
    learning_rate, momentum, goal, ceiling = rules
    depth, q = len(widths) - 1, outer.shape[0]
    backward = np.zeros((2, depth + 1, q, widths.max()))
    forward = np.zeros((depth, q, widths.max()))
    for side in range(2):
        backward[side, depth, :, : outer.shape[1]] = outer
    _sweep_down(weights, velocity, widths, 0.0, 0.0, forward, backward[1], backward[0])
    now = 0
    for taken in range(steps + 1):
        risk = _slope(eigenvalues, optimum, backward[now, 0], forward[0], floor)
        if risk <= goal:
            return REACHED, taken, risk, path
        if not risk <= ceiling:
            return BROKEN, taken, risk, path
        if taken == steps:
            break
        path += np.sqrt(risk)
        start = 0
        for k in range(1, depth):
            rows, columns = widths[k], widths[k - 1]
            layer = weights[start : start + rows * columns].reshape(rows, columns)
            _push_forward(layer, forward[k - 1], forward[k])
            start += rows * columns
        _sweep_down(
            weights,
            velocity,
            widths,
            learning_rate,
            momentum,
            forward,
            backward[now],
            backward[1 - now],
        )
        now = 1 - now
    return RUNNING, steps, risk, path
