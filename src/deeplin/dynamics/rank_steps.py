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

import numpy as np

from deeplin.kernels.compiling import call
from deeplin.kernels.wide import BROKEN, ROWS, RUNNING, descend


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
            descend,
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
