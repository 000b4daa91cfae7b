"""Full-batch descent of one linear network in the eigenbasis of Σ̂, each step a rank-q update.

A step needs q backward products, q forward products and one update of rank q for each layer. NumPy
is as fast as compiled code at these sizes (widths near 100), and computes in float64 whatever JAX
is set to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from deeplin.dynamics.run import CONVERGED, DIVERGED, STOPPED
from deeplin.execution import check_interrupt
from deeplin.networks.products import backward_products, forward_products, layer_gradients


class Task(NamedTuple):
    """What a run minimizes, how it moves and when it ends; R = Σ_i λ_i‖Θ_i − Θ*_i‖² (FM-L8)."""

    eigenvalues: Float[np.ndarray, " rank"]
    optimum: Float[np.ndarray, "rank q"]
    learning_rate: float
    momentum: float
    goal: float
    """Converged when R is at or below this."""
    ceiling: float
    """Diverged when R is above this or not a number."""

    def value_and_gradient(
        self, theta: Float[np.ndarray, "rank q"]
    ) -> tuple[float, Float[np.ndarray, "rank q"]]:
        """R(Θ) and ∇R(Θ) = 2ΛΔ of Δ = Θ − Θ*, in the eigenbasis (FM-grad)."""
        difference = theta - self.optimum
        slope = 2 * self.eigenvalues[:, None] * difference
        return 0.5 * float((difference * slope).sum()), slope


class Descent(NamedTuple):
    """A network between two steps."""

    weights: tuple[np.ndarray, ...]
    velocity: tuple[np.ndarray, ...]
    risk: float
    path: float
    """Σ√R over the steps taken."""
    steps: int
    status: str

    @classmethod
    def start(cls, weights: tuple[np.ndarray, ...], task: Task) -> Descent:
        """The state before the first step."""
        velocity = tuple(map(np.zeros_like, weights)) if task.momentum else ()
        risk, _ = task.value_and_gradient(backward_products(weights)[0])
        return cls(weights, velocity, risk, 0.0, 0, STOPPED)


def descend(weights: tuple[np.ndarray, ...], task: Task, stops: Iterable[int]) -> list[Descent]:
    """Train until the goal, the ceiling or the last stop; the states at the stops and the end."""
    state, states = Descent.start(weights, task), []
    for stop in stops:
        state = advance(state, task, stop)
        states.append(state)
        if state.status != STOPPED:
            break
    return states


def advance(state: Descent, task: Task, until: int) -> Descent:
    """Go on to step `until`, unless the run ends before; a diverged one keeps the step before."""
    weights, velocity, risk, path, steps, _ = before = state
    backward = backward_products(weights)
    slope = task.value_and_gradient(backward[0])[1]
    while True:
        if not risk <= task.ceiling:
            return before._replace(steps=steps, status=DIVERGED)
        if risk <= task.goal:
            return Descent(weights, velocity, risk, path, steps, CONVERGED)
        if steps == until:
            return Descent(weights, velocity, risk, path, steps, STOPPED)
        check_interrupt()
        before = Descent(weights, velocity, risk, path, steps, STOPPED)
        with np.errstate(over="ignore", invalid="ignore"):
            pushed = forward_products(weights, slope * -task.learning_rate)
            moves = layer_gradients(backward, pushed)
            if task.momentum:
                moves = [m + task.momentum * v for m, v in zip(moves, velocity, strict=True)]
                velocity = tuple(move.copy() for move in moves)
            for weight, move in zip(weights, moves, strict=True):
                move += weight  # in place: passes over memory are what a step costs
            weights = tuple(moves)
            backward = backward_products(weights)
            path, steps = path + float(np.sqrt(risk)), steps + 1
            risk, slope = task.value_and_gradient(backward[0])
