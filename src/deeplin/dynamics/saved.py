"""Runs saved to disk: one `.npz` file without pickles, and a JSON manifest next to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplin.dynamics.run import CONVERGED, DIVERGED, STOPPED, Records, Run
from deeplin.errors import (
    InputError,
    finite_array,
    readable,
    require_float64,
    shown,
    validated,
    whole_number,
)
from deeplin.files import whole_file
from deeplin.networks import Layout, Network, Trajectory, check_fits
from deeplin.problems import Problem
from deeplin.tables.formats import Column
from deeplin.tables.preparation import Preparation

FORMAT = "deeplin run 1"
SIZES = ("samples", "dimension", "outputs")
STATUSES = (CONVERGED, DIVERGED, STOPPED)


@validated
def save_run(
    path: str | Path, problem: Problem, run: Run, *, notes: Mapping[str, Any] | None = None
) -> Path:
    """Write a run and its problem to `path` (.npz) and a manifest to the same name with .json.

    Both files are written atomically. `notes` (JSON values) are added to the manifest.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.35)
    run = dl.gradient_descent(problem, net, learning_rate=0.02, steps=100)
    dl.save_run("run.npz", problem, run)
    problem, run = dl.load_run("run.npz")
    ```
    """
    path = check_run_path(path)
    if not isinstance(run.network, Network):
        raise InputError("run has a user-defined loss; only runs of networks can be saved.")
    if not isinstance(problem.loss, str):
        raise InputError("the loss of this problem is a function, which cannot be saved.")
    arrays = dict(_flatten("problem", {f.name: getattr(problem, f.name) for f in fields(problem)}))
    parts = {f.name: getattr(run, f.name) for f in fields(Run)}
    if run.preparation is not None:
        parts["preparation"] = run.preparation.to_json()
    arrays |= dict(_flatten("run", parts))
    arrays |= {"format": np.array(FORMAT), "entries": np.array(len(arrays))}
    net = run.network
    manifest = (  # a summary for readers of the JSON file
        {"format": FORMAT, "deeplin": version("deeplin")}
        | {name: getattr(problem, name) for name in SIZES}
        | {name: getattr(net, name) for name in ("depth", "widths", "activation")}
        | {"dtype": str(net.weights[0].dtype), "runs": net.batch or 1}
        | {name: getattr(run, name) for name in ("learning_rate", "momentum", "status", "steps")}
        | {"evidence": dict(run.evidence), **(notes or {})}
    )
    text = json.dumps(manifest, indent=2, default=lambda value: np.asarray(value).tolist())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            np.savez(file, allow_pickle=False, **arrays)
        with whole_file(path.with_suffix(".json")) as file:
            file.write(f"{text}\n".encode())
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror or error}.") from error
    return path


def check_run_path(path: str | Path) -> Path:
    """Return the path at which to save a run, or raise InputError before any training."""
    path = Path(path)
    if path.suffix != ".npz":
        raise InputError(
            f"a run is saved as .npz; received {str(path)!r}, pass a name such as run.npz."
        )
    return path


@validated
def load_run(path: str | Path) -> tuple[Problem, Run]:
    """Read a run saved by `save_run`, without executing anything in the file.

    A file may be damaged or edited, so its arrays, their types and shapes, their consistency and
    finiteness are checked before anything is computed from them.
    """
    with readable(path), open(path, "rb") as file:  # NumPy would not close a damaged file
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise InputError(f"{str(path)!r} is a single array; pass a file written by save_run.")
        arrays = {name: found[name] for name in found.files}
    found = str(arrays.pop("format", "no format"))
    if found != FORMAT:
        raise InputError(
            f"{str(path)!r} holds {found[:40]!r} instead of {FORMAT!r}; pass a file written by "
            "save_run or `deeplin train`."
        )
    if arrays.pop("entries", np.array(0)).tolist() != len(arrays):
        raise InputError(f"{str(path)!r} is incomplete: some of its arrays are missing.")
    try:
        tree = _group("the file", _unflatten(arrays), ("problem", "run"))
        problem, run = _problem(tree.get("problem")), _run(tree.get("run"))
        check_fits(problem, run.network)
    except InputError as error:
        raise InputError(f"{str(path)!r} holds no run that training leaves: {error}") from error
    if run.preparation is None:
        run = replace(run, preparation=_earlier_preparation(Path(path), run))
    return problem, run


def _earlier_preparation(path: Path, run: Run) -> Preparation | None:
    """Return the preparation that version 0.2 saved next to a run of `deeplin train`.

    That version saved coefficients and intercepts in the units of the table, not means and
    deviations; the predictions are the same.
    """
    sidecar = path.with_suffix(".json")
    if not sidecar.is_file() or not run.single:
        return None
    try:
        found = json.loads(sidecar.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or "columns" not in found:
            return None
        inputs = tuple(Column(str(name), category) for name, category in found["columns"])
        targets = tuple(map(str, found["targets"]))
        coefficients = finite_array("coefficients", found["coefficients"], (2,)).T
        intercepts = finite_array("intercepts", found["intercepts"], (1,))
        product = np.asarray(run.network.product).reshape(coefficients.shape)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{str(sidecar)!r} does not describe a trained table ({error}); pass a run saved by "
            "`deeplin train`, or remove that file to read the run without it."
        ) from error
    if coefficients.shape != (len(inputs), len(targets)) or len(intercepts) != len(targets):
        raise InputError(
            f"{str(sidecar)!r} has {coefficients.shape} coefficients for {len(inputs)} inputs and "
            f"{len(targets)} targets; pass a run saved by `deeplin train`."
        )
    largest = np.abs(coefficients).argmax(axis=1)
    ours, theirs = (part[np.arange(len(part)), largest] for part in (product, coefficients))
    scale = np.divide(ours, theirs, out=np.ones_like(ours), where=(theirs != 0) & (ours != 0))
    center = np.append(np.zeros(len(inputs)), intercepts)
    return Preparation(inputs, targets, center, np.append(scale, np.ones(len(targets))))


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the leaves of nested mappings and networks as ("a/b/c", array), except None."""
    if value is None:
        return
    if isinstance(value, (Network, Trajectory)):
        layers = {f"{k}": weight for k, weight in enumerate(value.weights)}
        value = {"weights": layers, "readout": value.readout, "activation": value.activation} | (
            {} if value.biased is None else {"biased": np.array(value.biased)}
        )
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _flatten(f"{prefix}/{name}", entry)
        return
    array = np.asarray(value)
    if array.dtype == object:
        raise InputError(f"{prefix} holds {value!r}, which cannot be saved without pickling.")
    yield prefix, array


def _unflatten(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the nested dictionaries that `_flatten` flattened; 0-d arrays become plain values."""
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        (*folders, name), place = path.split("/"), tree
        for folder in folders:
            place = place.setdefault(folder, {})
            if not isinstance(place, dict):
                raise InputError(f"{folder!r} in {path!r} is an array and a folder at once.")
        if name in place or array.dtype.kind not in "biufU":
            raise InputError(f"{path!r} has type {array.dtype}, or stands there twice.")
        place[name] = array.item() if array.ndim == 0 else array
    return tree


def _group(where: str, parts: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return `parts` as a dictionary, or raise InputError if it has entries other than `names`."""
    if not isinstance(parts, dict):
        raise InputError(f"{where} is missing or not a group of arrays.")
    if unknown := [name for name in parts if name not in names]:
        raise InputError(f"{where} has an entry {unknown[0][:40]!r}; known: {', '.join(names)}.")
    return parts


def _problem(parts: Any) -> Problem:
    """Return the problem of saved parts: rows, or second moments of its stated shape."""
    parts = _group("problem", parts, [field.name for field in fields(Problem)])
    n, d, q = (whole_number(f"problem/{name}", parts.get(name)) for name in SIZES)
    single = parts.get("single_target")
    if not isinstance(single, bool) or (single and q != 1):
        raise InputError(f"problem/single_target is {shown(single)} for {q} target(s).")
    if "second_moments" in parts:
        table = _numbers("problem/second_moments", parts["second_moments"], (d + q, d + q))
        cross = table[:d, d] if single else table[:d, d:]
        return Problem.from_moments(table[:d, :d], cross, table[d:, d:], n)
    inputs = _numbers("problem/inputs", parts.get("inputs"), (n, d))
    targets = _numbers("problem/targets", parts.get("targets"), (n, q))
    if (loss := parts.get("loss", "squared")) != "squared":
        return _problem_with_loss(parts, loss, inputs, targets)
    return Problem.from_data(inputs, targets[:, 0] if single else targets)


def _problem_with_loss(
    parts: dict[str, Any], loss: Any, inputs: np.ndarray, targets: np.ndarray
) -> Problem:
    """Return a saved problem with a loss other than the squared one, its labels decoded."""
    classes = parts.get("classes")
    if loss not in ("logistic", "softmax"):
        return Problem.from_data(inputs, targets[:, 0], loss, parts.get("delta", 1.0))
    chosen = targets[:, 0] > 0 if loss == "logistic" else targets.argmax(axis=1)
    count = 2 if loss == "logistic" else targets.shape[1]
    if not isinstance(classes, np.ndarray) or classes.shape != (count,):
        raise InputError(f"problem/classes is {shown(classes)}, not {count} labels.")
    problem = Problem.from_data(inputs, classes[chosen.astype(int)], loss)
    if problem.targets is None or not np.array_equal(problem.targets, targets):
        raise InputError("problem/targets and problem/classes do not belong together.")
    return problem


def _run(parts: Any) -> Run:
    """Return the run of saved parts, after checking that they fit together."""
    parts = _group("run", parts, [field.name for field in fields(Run)])
    network, initial = (_network(f"run/{name}", parts.get(name)) for name in ("network", "initial"))
    if _shapes(initial) != _shapes(network):
        raise InputError("run/initial and run/network have different layers.")
    records = _records(parts.get("records", {}), network.batch)
    trajectory = _trajectory(parts.get("trajectory"), records, network)
    _check_values(parts, network.batch)
    if parts.get("batch_size") is not None:
        parts["batch_size"] = whole_number("run/batch_size", parts["batch_size"])
    made = {"network": network, "initial": initial, "records": records, "trajectory": trajectory}
    if parts.get("preparation") is not None:
        known = Preparation.from_json(str(parts["preparation"]))
        shape = (len(known.labels), len(known.outputs))
        if network.batch is not None or (network.widths[0], network.outputs) != shape:
            raise InputError("its preparation has other columns than the network.")
        made["preparation"] = known
    return Run(**(parts | made))


def _network(where: str, parts: Any, records: int | None = None) -> Network:
    """Return the network of saved parts, with a leading record axis where there are records.

    The constructor accepts at most one leading axis, a trajectory of a batch has two; so a network
    of zeros without the record axis is checked, and its pytree structure holds the arrays.
    """
    parts = _group(where, parts, ("weights", "readout", "activation", "biased"))
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
    biased = None
    if "biased" in parts:
        biased = tuple(np.atleast_1d(parts["biased"]).astype(bool).ravel().tolist())
        if len(biased) != len(layers) or not any(biased):
            raise InputError(f"{where}/biased does not say which of {len(layers)} layers have one.")
    pattern = Network(zeros, readout, str(parts.get("activation")), biased)
    if leaves[0].dtype == np.float64:  # without x64, JAX would round the weights silently
        require_float64("a run saved in float64", pattern)
    return jax.tree.unflatten(jax.tree.structure(pattern), [jnp.asarray(leaf) for leaf in leaves])


def _shapes(network: Network) -> tuple:  # common to all networks of one run
    return jax.tree.structure(network), [weight.shape for weight in network.weights]


def _trajectory(parts: Any, records: Records, network: Network) -> Trajectory | None:
    if parts is None:
        return None
    times = records.get("time", records.get("step"))
    if times is None:
        raise InputError("run/trajectory needs run/records/step or run/records/time.")
    states = _network("run/trajectory", parts, len(times))
    if _shapes(jax.tree.map(lambda leaf: leaf[0], states)) != _shapes(network):
        raise InputError("run/trajectory and run/network have different layers.")
    return Trajectory(tuple(jax.tree.leaves(states)), Layout.of(network), network.batch is not None)


def _records(parts: Any, batch: int | None) -> Records:
    """Return the columns, of one length; for a batch the second axis is the run."""
    if not isinstance(parts, dict):
        raise InputError("run/records is not a group of arrays.")
    for name, column in parts.items():
        if not isinstance(column, np.ndarray) or column.dtype.kind not in "biuf":
            raise InputError(f"run/records/{name} is not an array of numbers.")
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


def _check_values(parts: Mapping[str, Any], batch: int | None) -> None:
    """Check the outcome of each run and the settings of its training."""
    status, evidence = np.asarray(parts.get("status")), parts.get("evidence", {})
    if not np.isin(status, STATUSES).all() or status.shape != (() if batch is None else (batch,)):
        raise InputError(f"run/status is not {', '.join(STATUSES)} for each run.")
    if not isinstance(evidence, dict):
        raise InputError("run/evidence is not a group of values.")
    _check_numbers("steps", parts.get("steps"), batch, "iu")
    _check_numbers("evidence/time", evidence.get("time", 0), batch)
    variant, dynamics = parts.get("variant", "plain"), parts.get("dynamics", "descent")
    for name, value in {"variant": variant, "dynamics": dynamics}.items():
        if not isinstance(value, str):
            raise InputError(f"run/{name} is {shown(value)}, not text.")
    if dynamics not in ("descent", "flow"):
        raise InputError(f"run/dynamics is {dynamics[:40]!r}, not descent or flow.")
    if (rate := parts.get("learning_rate")) is not None:
        if variant in ("plain", "nesterov"):  # others may have one for each layer or step
            _check_numbers("learning_rate", rate, batch)
        rates = finite_array("run/learning_rate", rate, (0, 1, 2))
        if np.any(rates < 0) or (np.any(rates == 0) and "schedule" not in variant):
            raise InputError("run/learning_rate is not above 0.")
    for name in ("momentum", "weight_decay"):
        _check_numbers(name, parts.get(name, 0.0))
    if parts.get("momentum", 0.0) >= 1:
        raise InputError(f"run/momentum is {parts['momentum']:g}, not below 1.")


def _check_numbers(name: str, value: Any, batch: int | None = None, kinds: str = "iuf") -> None:
    """Check for one finite number of at least 0, or one for each run of a batch."""
    array = np.asarray(value)
    allowed = ((),) if batch is None else ((), (batch,))
    if array.dtype.kind not in kinds or array.shape not in allowed:
        raise InputError(f"run/{name} has shape {array.shape} and type {array.dtype}.")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise InputError(f"run/{name} holds a value that is negative or not finite.")


def _numbers(where: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return a finite float64 array of this shape."""
    array = finite_array(where, value, (len(shape),))
    if array.shape != shape or getattr(value, "dtype", None) != np.float64:
        raise InputError(f"{where} has shape {array.shape}; stated are {shape} float64 numbers.")
    return array
