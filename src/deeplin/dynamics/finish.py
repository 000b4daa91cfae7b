"""The end of every dynamics: statuses, evidence and records become a `Run`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deeplin.dynamics.measure import measure
from deeplin.dynamics.objective import Ensemble, Objective
from deeplin.dynamics.recording import Recorder
from deeplin.dynamics.run import CONVERGED, STATUS, STOPPED, Run
from deeplin.dynamics.state import State

CLOSE = 1e-8
"""Without a goal, a run that has shrunk its initial gap by this factor is called converged."""


def end_evidence(
    objective: Objective, ensemble: Ensemble, weights: tuple[Any, ...]
) -> dict[str, np.ndarray]:
    """Risk, and gap where it has a meaning, of every run."""
    tree = ensemble.tree(weights)
    if not objective.has_gap:
        return measure(objective, tree, tree, ("risk",))
    gap = measure(objective, tree, tree, ("gap",))["gap"]
    return {"risk": gap + objective.data[0].minimal_risk.item(), "gap": gap}


def finish(
    objective: Objective,
    recorder: Recorder,
    state: State,
    close: np.ndarray | None = None,
    evidence: Mapping[str, Any] | None = None,
    **rule: Any,
) -> Run:
    """Put together the run; plain values for a single network.

    A run that stopped is converged if its gap is at most `close`.
    """
    ensemble = recorder.ensemble
    after = end_evidence(objective, ensemble, state.weights)
    status = np.array([STATUS[int(outcome)] for outcome in state.outcome])
    if close is not None:
        status = np.where((status == STOPPED) & (after["gap"] <= close), CONVERGED, status)
    if rule.get("weight_decay"):
        squares = [np.sum(np.square(np.asarray(w)).reshape(len(w), -1), 1) for w in state.weights]
        after["objective"] = after["risk"] + rule["weight_decay"] * sum(squares)
    after |= evidence or {}
    return Run(
        network=ensemble.result(state.weights),
        initial=ensemble.initial,
        status=ensemble.members(status),
        steps=ensemble.members(state.steps),
        records=recorder.records(),
        trajectory=recorder.trajectory(),
        evidence={name: ensemble.members(values) for name, values in after.items()},
        **rule,
    )
