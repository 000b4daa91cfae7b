"""Runs saved to disk: one `.npz` file without pickles, and a JSON manifest next to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from deeplin.dynamics.run import Records, Run
from deeplin.dynamics.wide_run import WideRun
from deeplin.errors import InputError, reason, shown, whole_number
from deeplin.files import whole_file
from deeplin.networks import Network, Trajectory
from deeplin.networks.network import Layout, check_fits
from deeplin.problems import Problem, require_problem
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.tables.preparation import Preparation

FORMAT = "deeplin run 2"
SIZES = ("samples", "dimension", "outputs")


def save_run(
    path: str | Path,
    problem: Problem,
    run: Run | WideRun,
    *,
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run and its problem to `path` (.npz) and a manifest to the same name with .json.

    Both files are written atomically.

    Args:
        path: Where to write, a name that ends in .npz.
        problem: What was trained on; its loss must have a name.
        run: A run of networks, from any dynamics.
        notes: JSON values to add to the manifest.

    Returns:
        The path.

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
    require_problem(problem)
    run = run.run if isinstance(run, WideRun) else run
    if not isinstance(run, Run):
        raise InputError(f"run is {shown(run)}; pass what deeplin.gradient_descent returns.")
    if not isinstance(run.network, Network):
        raise InputError("run has a user-defined loss; only runs of networks can be saved.")
    if not isinstance(problem.loss, str):
        raise InputError("the loss of this problem is a function, which cannot be saved.")
    arrays = dict(_flatten("problem", {f.name: getattr(problem, f.name) for f in fields(problem)}))
    parts = {f.name: getattr(run, f.name) for f in fields(Run)}
    if run.preparation is not None:
        parts["preparation"] = run.preparation.to_json()
    arrays |= dict(_flatten("run", parts))
    arrays |= {"format": np.array(FORMAT), "checksum": np.array(_checksum(arrays))}
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


def load_run(path: str | Path) -> tuple[Problem, Run]:
    """Read a run saved by `save_run`, without executing anything in the file.

    A checksum detects a file that was damaged or changed.

    Args:
        path: A file written by `save_run` or `deeplin train`.

    Returns:
        The problem and the run.

    ```python
    import deeplin as dl, jax, numpy as np
    problem = dl.Problem.from_data(np.eye(2), np.ones(2))
    net = dl.initialize.gaussian(jax.random.key(0), widths=(2, 1), scale=0.3)
    dl.save_run("short.npz", problem, dl.gradient_descent(problem, net, 0.1, 5))
    problem, run = dl.load_run("short.npz")
    assert run.steps == 5
    ```
    """
    arrays = _read(Path(path))
    where = f"{str(path)!r}"
    if str(arrays.pop("format", "")) != FORMAT:
        raise InputError(f"{where} is not a saved run; {WANTED}.")
    if str(arrays.pop("checksum", "")) != _checksum(arrays):
        raise InputError(f"{where} was damaged or changed after it was saved; {WANTED}.")
    try:
        tree = _unflatten(arrays)
        problem, run = _problem(tree["problem"]), _run(tree["run"])
        check_fits(problem, run.network)
    except Exception as error:  # with a checksum of its own the file may hold anything
        raise InputError(f"{where} holds no run that can be used: {reason(error)}") from error
    return problem, run


WANTED = "pass a file that deeplin.save_run or `deeplin train` wrote"


def _read(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file, without unpickling any."""
    try:
        with path.open("rb") as file:  # NumPy would not close a damaged file
            found = np.load(file, allow_pickle=False)
            return {name: found[name] for name in found.files}
    except OSError as error:
        if error.errno is not None:  # the file is missing, or may not be read
            raise InputError(f"cannot read {str(path)!r}: {error.strerror}.") from error
        raise InputError(f"{str(path)!r} is damaged, or not a saved run; {WANTED}.") from error
    except Exception as error:  # zlib, zipfile, tokenize, struct, out of memory, …
        raise InputError(f"{str(path)!r} is damaged, or not a saved run; {WANTED}.") from error


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a checksum of names, types, shapes and values."""
    whole = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        whole.update(f"{name} {array.dtype.str} {array.shape};".encode())
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the leaves of nested mappings and networks as ("a/b/c", array), except None."""
    if value is None:
        return
    if isinstance(value, Trajectory):
        value = {f"{k}": array for k, array in enumerate(value.arrays)}
    if isinstance(value, Network):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
        value = {name: _numbered(part) for name, part in value.items()}
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _flatten(f"{prefix}/{name}", entry)
        return
    array = np.asarray(value)
    if array.dtype == object:
        raise InputError(f"{prefix} holds {value!r}, which cannot be saved without pickling.")
    yield prefix, array


def _numbered(part: Any) -> Any:
    """Return a tuple as a mapping from the number of the layer, anything else as it is."""
    return {f"{k}": entry for k, entry in enumerate(part)} if isinstance(part, tuple) else part


def _unflatten(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the nested dictionaries that `_flatten` flattened; 0-d arrays become plain values."""
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        (*folders, name), place = path.split("/"), tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = array.item() if array.ndim == 0 else array
    return tree


def _problem(parts: dict[str, Any]) -> Problem:
    """Return the problem of saved parts."""
    for name in SIZES:
        whole_number(f"problem/{name}", parts[name])
    kind = Problem if parts["loss"] == "squared" else GeneralizedLinearProblem
    problem = kind(**parts)
    assert problem.convex_loss  # raises if there is no loss of this name
    return problem


def _run(parts: dict[str, Any]) -> Run:
    """Return the run of saved parts."""
    network, initial = _network(parts["network"]), _network(parts["initial"])
    trajectory = None
    if "trajectory" in parts:
        states = parts["trajectory"]
        arrays = tuple(jnp.asarray(states[f"{k}"]) for k in range(len(states)))
        trajectory = Trajectory(arrays, Layout.of(network), network.batch is not None)
    preparation = parts.get("preparation")
    made = {
        "network": network,
        "initial": initial,
        "records": Records(parts.get("records", {})),
        "trajectory": trajectory,
        "preparation": None if preparation is None else Preparation.from_json(preparation),
    }
    return Run(**(parts | made))


def _network(parts: dict[str, Any]) -> Network:
    """Return the network of saved parts; layers may lack an entry."""
    depth = len(parts["weights"])
    layers: dict[str, Any] = {
        name: tuple(part.get(f"{k}") for k in range(depth)) if isinstance(part, dict) else part
        for name, part in parts.items()
    }
    return Network(**layers)
