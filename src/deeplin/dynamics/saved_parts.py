"""The parts of a saved run, checked: whatever stands in the file, a valid run or one sentence.

A file may be damaged or edited. Structure, types, shapes and finiteness are checked here and
nowhere else, so that everything computed from a loaded run may rely on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplin.checks import InputError, finite_array, require_float64, shown, whole_number
from deeplin.dynamics.run import CONVERGED, DIVERGED, STOPPED, Records, Run
from deeplin.networks import Layout, Network, Trajectory
from deeplin.problems import Problem

STATUSES = (CONVERGED, DIVERGED, STOPPED)


def known_parts(where: str, parts: Any, names: Sequence[str]) -> dict[str, Any]:
    """`parts` as a dictionary with no other entries than these."""
    if not isinstance(parts, dict):
        raise InputError(f"{where} is missing or no group of arrays.")
    unknown = [name for name in parts if name not in names]
    if unknown:
        raise InputError(f"{where} has an entry {unknown[0][:40]!r}; known: {', '.join(names)}.")
    return parts


# --- the problem -------------------------------------------------------------------------------


def problem_of(parts: Any) -> Problem:
    """The problem of saved parts: rows, or second moments of its stated shape."""
    parts = known_parts("problem", parts, [field.name for field in fields(Problem)])
    stated = tuple(
        whole_number(f"problem/{name}", parts.get(name))
        for name in ("samples", "dimension", "outputs")
    )
    n, d, q = stated
    single = parts.get("single_target")
    if not isinstance(single, bool) or (single and q != 1):
        raise InputError(f"problem/single_target is {shown(single)} for {q} target(s).")
    if "second_moments" in parts:
        table = _numbers("problem/second_moments", parts["second_moments"], (d + q, d + q))
        cross = table[:d, d] if single else table[:d, d:]
        return Problem.from_moments(table[:d, :d], cross, table[d:, d:], n)
    inputs = _numbers("problem/inputs", parts.get("inputs"), (n, d))
    targets = _numbers("problem/targets", parts.get("targets"), (n, q))
    return Problem.from_data(inputs, targets[:, 0] if single else targets)


# --- the run -----------------------------------------------------------------------------------


def run_of(parts: Any) -> Run:
    """The run of saved parts; networks, records and outcomes of one batch."""
    parts = known_parts("run", parts, [field.name for field in fields(Run)])
    network = _network("run/network", parts.get("network"))
    initial = _network("run/initial", parts.get("initial"))
    if _shapes(initial) != _shapes(network):
        raise InputError("run/initial and run/network have different layers.")
    records = _records(parts.get("records", {}), network.batch)
    trajectory = _trajectory(parts.get("trajectory"), records, network)
    known = {
        "network": network,
        "initial": initial,
        "records": records,
        "trajectory": trajectory,
        "status": _status(parts.get("status"), network.batch),
        "steps": _for_each_run("steps", parts.get("steps"), network.batch, "iu"),
        "learning_rate": _rate(parts, network),
        "momentum": _momentum(parts.get("momentum", 0.0)),
        "evidence": _evidence(parts.get("evidence", {}), network.batch),
        "dynamics": _dynamics(parts.get("dynamics", "descent")),
        "variant": _text("variant", parts.get("variant", "plain")),
        "weight_decay": _for_each_run("weight_decay", parts.get("weight_decay", 0.0), None),
    }
    if parts.get("batch_size") is not None:
        known["batch_size"] = whole_number("run/batch_size", parts["batch_size"])
    return Run(**(parts | known))


def _network(where: str, parts: Any, records: int | None = None) -> Network:
    """The network of saved parts, with a leading record axis where there are records.

    The constructor accepts at most one leading axis, a trajectory of a batch has two; so a network
    of zeros without the record axis is checked, and its pytree structure holds the arrays.
    """
    parts = known_parts(where, parts, ("weights", "readout", "activation"))
    layers = parts.get("weights")
    if not isinstance(layers, dict) or set(layers) != {f"{k}" for k in range(len(layers))}:
        raise InputError(f"{where}/weights is missing, or its layers are not numbered 0, 1, ….")
    leaves = [layers[f"{k}"] for k in range(len(layers))]
    leaves += [parts["readout"]] if "readout" in parts else []
    for leaf in leaves:
        finite_array(where, leaf, (1, 2, 3, 4))
        if leaf.dtype not in (np.float64, np.float32) or leaf.dtype != leaves[0].dtype:
            raise InputError(f"{where} holds {leaf.dtype}; pass float64 or float32 throughout.")
        if records is not None and len(leaf) != records:
            raise InputError(f"{where} has {len(leaf)} states for {records} records.")
    zeros = [np.zeros(leaf.shape[records is not None :], leaf.dtype) for leaf in leaves]
    readout = zeros.pop() if "readout" in parts else None
    pattern = Network(zeros, readout, str(parts.get("activation")))
    if leaves[0].dtype == np.float64:  # without x64, JAX would round the weights silently
        require_float64("a run saved in float64", pattern)
    return jax.tree.unflatten(jax.tree.structure(pattern), [jnp.asarray(leaf) for leaf in leaves])


def _shapes(network: Network) -> tuple:
    """What networks of one run have in common."""
    return network.activation, jax.tree.structure(network), [w.shape for w in network.weights]


def _trajectory(parts: Any, records: Records, network: Network) -> Trajectory | None:
    if parts is None:
        return None
    times = records.get("time", records.get("step"))
    if times is None:
        raise InputError("run/trajectory has no run/records/step or run/records/time beside it.")
    states = _network("run/trajectory", parts, len(times))
    first = jax.tree.map(lambda leaf: leaf[0], states)
    if _shapes(first) != _shapes(network):
        raise InputError("run/trajectory and run/network have different layers.")
    return Trajectory(tuple(jax.tree.leaves(states)), Layout.of(network), network.batch is not None)


def _records(parts: Any, batch: int | None) -> Records:
    """Columns of one length; for a batch the second axis is the run."""
    if not isinstance(parts, dict):
        raise InputError("run/records is no group of arrays.")
    for name, column in parts.items():
        if not isinstance(column, np.ndarray) or column.dtype.kind not in "biuf":
            raise InputError(f"run/records/{name} is no array of numbers.")
        if batch is not None and column.ndim > 1 and column.shape[1] != batch:
            raise InputError(
                f"run/records/{name} has shape {column.shape} for a batch of {batch} runs."
            )
    if len({len(column) for column in parts.values()}) > 1:
        raise InputError("the columns of run/records have different lengths.")
    for name in {"step", "time"} & set(parts):
        times = finite_array(f"run/records/{name}", parts[name], (1,))
        if times[0] < 0 or np.any(np.diff(times) <= 0):
            raise InputError(f"run/records/{name} does not increase from 0 or later.")
    return Records(parts)


def _status(value: Any, batch: int | None) -> Any:
    if not np.isin(value, STATUSES).all() or np.shape(value) != (() if batch is None else (batch,)):
        raise InputError(f"run/status is not {', '.join(STATUSES)} for each run.")
    return value


def _rate(parts: Mapping[str, Any], network: Network) -> Any:
    """One rate for each run; with `layers` for each layer too, with `schedule` for each step."""
    value = parts.get("learning_rate")
    variant = _text("variant", parts.get("variant", "plain"))
    if value is None:
        return None
    if variant in ("plain", "nesterov"):
        _for_each_run("learning_rate", value, network.batch)
    rates = finite_array("run/learning_rate", value, (0, 1, 2))
    if np.any(rates < 0) or (np.any(rates == 0) and "schedule" not in variant):
        raise InputError("run/learning_rate is not above 0.")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"run/{name} is {shown(value)}, not text.")
    return value


def _dynamics(value: Any) -> str:
    if _text("dynamics", value) not in ("descent", "flow"):
        raise InputError(f"run/dynamics is {str(value)[:40]!r}, not descent or flow.")
    return value


def _momentum(value: Any) -> float:
    beta = _for_each_run("momentum", value, None)
    if beta >= 1:
        raise InputError(f"run/momentum is {beta:g}, not below 1.")
    return value


def _evidence(parts: Any, batch: int | None) -> Mapping[str, Any]:
    if not isinstance(parts, dict):
        raise InputError("run/evidence is no group of values.")
    if "time" in parts:
        _for_each_run("evidence/time", parts["time"], batch)
    return parts


def _for_each_run(name: str, value: Any, batch: int | None, kinds: str = "iuf") -> Any:
    """One finite number of at least 0, or one for each run of a batch."""
    array = np.asarray(value)
    allowed = ((),) if batch is None else ((), (batch,))
    if array.dtype.kind not in kinds or array.shape not in allowed:
        raise InputError(f"run/{name} has shape {array.shape} and type {array.dtype}.")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise InputError(f"run/{name} holds a value that is negative or not finite.")
    return value


def _numbers(where: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A finite float64 array of this shape."""
    array = finite_array(where, value, (len(shape),))
    if array.shape != shape or getattr(value, "dtype", None) != np.float64:
        raise InputError(f"{where} has shape {array.shape}; stated are {shape} float64 numbers.")
    return array
