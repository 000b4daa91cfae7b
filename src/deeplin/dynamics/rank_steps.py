"""Descent of single linear networks, each step a rank-q update of every layer, as a dynamics.

On a diagonal covariance (any problem, in the eigenbasis of Σ̂) a step needs only the q backward
products, the q forward products and a rank-q update. Every run may have its own problem.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from deeplin.dynamics.objective import Ensemble
from deeplin.dynamics.state import LOST, Pace, Rules, State, StopByStop
from deeplin.dynamics.update import Update
from deeplin.kernels.compiling import call, in_threads
from deeplin.kernels.lanes import LANES, aligned_zeros
from deeplin.kernels.wide import ROWS, Diagonal, Motion, Moving, blocks_of, descend, rows_of
from deeplin.problems import Problem


class Memory(NamedTuple):
    """What each run carries besides its weights."""

    velocity: tuple[Any, ...]
    path: Float[np.ndarray, " batch"]
    """Σ_t √R(W_t) over the steps taken."""
    risk: Float[np.ndarray, " batch"]
    """R at the last check."""


class Target(NamedTuple):
    """R = floor + Σ_i λ_i ‖Θ_i − Θ*_i‖² (FM-L8), for inputs in the eigenbasis of Σ̂."""

    eigenvalues: Float[np.ndarray, " rank"]
    optimum: Float[np.ndarray, "rank q"]
    floor: float = 0.0


class Packed(NamedTuple):
    """The layers of one network one after another, as the kernel reads them."""

    lanes: np.ndarray
    layers: list[np.ndarray]
    """The same memory as (groups of `ROWS`, rows of a group, lanes of a row, entries of a lane)."""

    @classmethod
    def of(cls, layers: Sequence[Any]) -> Packed:
        """A copy of layers, filled up with zeros."""
        padded = [(rows_of(len(w)), blocks_of(w.shape[1])) for w in layers]
        ends = list(accumulate(rows * blocks for rows, blocks in padded))
        lanes, views = aligned_zeros((ends[-1] if ends else 0, LANES), np.float64), []
        for layer, (rows, blocks), end in zip(layers, padded, ends, strict=True):
            memory = lanes[end - rows * blocks : end].reshape(-1, blocks, ROWS, LANES)
            views.append(memory.transpose(0, 2, 1, 3))
            matrix = np.zeros((rows, blocks * LANES))
            matrix[: layer.shape[0], : layer.shape[1]] = layer
            views[-1][:] = matrix.reshape(views[-1].shape)
        return cls(lanes, views)

    def copy_to(self, layers: Sequence[Any]) -> None:
        """Write the layers, without what fills them up, to where they belong."""
        for layer, view in zip(layers, self.layers, strict=True):
            groups, rows, blocks, lanes = view.shape
            matrix = view.reshape(groups * rows, blocks * lanes)
            layer[:] = matrix[: layer.shape[0], : layer.shape[1]]


class OneByOne(StopByStop):
    """Runs taken one after another, by threads, without Python's lock."""

    pace: Pace

    @abstractmethod
    def take(self, run: int, state: State, after: State, until: int) -> None:
        """One run from `state` to step `until`, written into `after`."""

    def advance(self, state: State, until: int) -> State:
        """Take the running members to step `until`, or a piece of the way."""
        running = np.flatnonzero(state.running)
        until = self.pace.next(int(np.max(state.steps[running], initial=0)), until)
        after = jax.tree.map(np.array, state)

        def one(run: int) -> None:
            self.take(run, state, after, until)

        in_threads(one, running.tolist())
        return after


class RankSteps(OneByOne):
    """Descent of each run on its own target; networks of one shape, inputs in the eigenbasis.

    A run that breaks the ceiling goes back to the step before, whose weights are still finite: by
    replaying the piece, since steps are deterministic, rather than by copying weights at every
    step.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        targets: list[Target],
        rules: Rules,
        learning_rate: np.ndarray,
        momentum: float = 0.0,
    ):
        self.ensemble, self.rules = ensemble, rules
        self.learning_rate, self.momentum = learning_rate, momentum
        weights = ensemble.weights
        self.widths = np.array([weights[0].shape[2], *(w.shape[1] for w in weights)])
        self.targets = [self._diagonal(target, run) for run, target in enumerate(targets)]
        self.packed: dict[int, tuple[Packed, Packed]] = {}
        # At half a nanosecond for a weight a piece may be longer than others are, and should be:
        # it ends with copies of all weights, which take as long as several steps.
        self.pace = Pace(ensemble.numbers // 8)

    def start(self) -> State:
        """The state before the first step."""
        weights = tuple(np.array(w) for w in self.ensemble.weights)
        velocity = tuple(map(np.zeros_like, weights)) if self.momentum else ()
        nothing = np.zeros(self.ensemble.size)
        return State.start(weights, Memory(velocity, nothing, np.full_like(nothing, np.nan)))

    def take(self, run: int, state: State, after: State, until: int) -> None:
        """One run to step `until`."""
        risk, path = after.memory.risk, after.memory.path
        begun, steps = float(path[run]), until - int(state.steps[run])
        found = self._run(run, state, (steps, begun))
        if found[0] == LOST and found[1] > 0:
            del self.packed[run]
            found = (*found[:2], *self._run(run, state, (found[1] - 1, begun))[2:])
        after.outcome[run], after.steps[run] = found[0], after.steps[run] + found[1]
        risk[run], path[run] = found[2:]
        moved = zip(self.packed[run], (after.weights, after.memory.velocity), strict=True)
        for packed, layers in moved:
            packed.copy_to([layer[run] for layer in layers])

    def _run(
        self, run: int, state: State, begun: tuple[int, float]
    ) -> tuple[int, int, float, float]:
        """Outcome, steps taken, risk and path of one run after a call of the kernel."""
        if run not in self.packed:
            moving = (state.weights, state.memory.velocity)
            weights, velocity = ([w[run] for w in layers] for layers in moving)
            self.packed[run] = Packed.of(weights), Packed.of(velocity)
        weights, velocity = self.packed[run]
        motion = Motion(
            float(self.learning_rate[run]), float(self.momentum),
            float(self.rules.goal[run]), float(self.rules.ceiling[run]),
        )  # fmt: skip
        network = Moving(weights.lanes, velocity.lanes, self.widths)
        return call(descend, network, self.targets[run], motion, *begun)

    def _diagonal(self, target: Target, run: int) -> Diagonal:
        """The target as the kernel reads it: Θ* transposed, with the read-out."""
        fixed = self.ensemble.fixed
        outer = np.asarray(fixed[0])[run].reshape(1, -1) if fixed else np.eye(self.widths[-1])
        arrays = (outer, target.eigenvalues, target.optimum.T)
        outer, *others = (np.ascontiguousarray(array, np.float64) for array in arrays)
        return Diagonal(outer, others[0], others[1], float(target.floor))


class EigenSteps(StopByStop):
    """The same for networks on one problem in any coordinates: their inputs are turned and back.

    With A_1 = W_1Q, Q the eigenvectors of Σ̂, W_1(t) = W_1(0) + (A_1(t) − A_1(0))Qᵀ, because the
    rows of the first gradient lie in the range of Σ̂.
    """

    def __init__(self, problem: Problem, ensemble: Ensemble, rules: Rules, update: Update):
        eigenvalues, self.basis, coordinates = problem.spectrum
        self.ensemble = ensemble
        first, *others = ensemble.weights
        self.first, self.turned = first, first @ self.basis
        self.inner = RankSteps(
            ensemble._replace(weights=(self.turned, *others)),
            [Target(eigenvalues, coordinates)] * ensemble.size,
            rules,
            update.learning_rate[:, 0],
            update.momentum,
        )

    def start(self) -> State:
        """The state before the first step."""
        inner = self.inner.start()
        return State(self.ensemble.weights, inner, inner.outcome, inner.steps)

    def advance(self, state: State, until: int) -> State:
        """Take the running members to step `until`, or a piece of the way."""
        inner = self.inner.advance(state.memory, until)
        first = self.first + (inner.weights[0] - self.turned) @ self.basis.T
        return State((first, *inner.weights[1:]), inner, inner.outcome, inner.steps)
