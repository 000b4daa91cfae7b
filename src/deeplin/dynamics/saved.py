"""Runs kept on disk: one `.npz` file without pickles, and a JSON manifest beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from deeplin.checks import InputError, readable
from deeplin.door import door
from deeplin.dynamics.run import Run
from deeplin.dynamics.saved_parts import known_parts, problem_of, run_of
from deeplin.files import whole_file
from deeplin.networks import Network, Trajectory, check_fits
from deeplin.problems import Problem

FORMAT = "deeplin run 1"


@door
def save_run(
    path: str | Path, problem: Problem, run: Run, *, notes: Mapping[str, Any] | None = None
) -> Path:
    """Write a run and its problem to `path` (.npz) and a manifest to the same name with .json.

    Both files appear whole or not at all. `notes` (JSON values) are added to the manifest.

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
    arrays = dict(_flatten("problem", {f.name: getattr(problem, f.name) for f in fields(problem)}))
    arrays |= dict(_flatten("run", {f.name: getattr(run, f.name) for f in fields(Run)}))
    arrays |= {"format": np.array(FORMAT), "entries": np.array(len(arrays))}
    text = json.dumps(manifest(problem, run) | dict(notes or {}), indent=2, default=_plain)
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
    """The path of a run to be saved, or an error before anything is trained in vain."""
    path = Path(path)
    if path.suffix != ".npz":
        raise InputError(
            f"a run is saved as .npz; received {str(path)!r}, pass a name such as run.npz."
        )
    return path


@door
def load_run(path: str | Path) -> tuple[Problem, Run]:
    """Read a run saved by `save_run`; nothing in the file is ever executed.

    Everything is checked before anything is computed: which arrays there are, their types and
    shapes, that they fit each other, and that they are finite.
    """
    with readable(path), open(path, "rb") as file:  # NumPy would leave a damaged one open
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
        tree = _unflatten(arrays)
        known_parts("the file", tree, ("problem", "run"))
        problem = problem_of(tree.get("problem"))
        run = run_of(tree.get("run"))
        check_fits(problem, run.network)
    except InputError as error:
        raise InputError(f"{str(path)!r} holds no run that training leaves: {error}") from error
    return problem, run


def manifest(problem: Problem, run: Run) -> dict[str, Any]:
    """What a reader wants to know before opening the arrays."""
    net = run.network
    return {
        "format": FORMAT,
        "deeplin": version("deeplin"),
        "samples": problem.samples,
        "dimension": problem.dimension,
        "outputs": problem.outputs,
        "depth": net.depth,
        "widths": net.widths,
        "activation": net.activation,
        "dtype": str(net.weights[0].dtype),
        "runs": net.batch or 1,
        "learning_rate": run.learning_rate,
        "momentum": run.momentum,
        "status": run.status,
        "steps": run.steps,
        "evidence": dict(run.evidence),
    }


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Leaves of nested mappings and networks as ("a/b/c", array); None is left out."""
    if value is None:
        return
    if isinstance(value, (Network, Trajectory)):
        layers = {f"{k}": weight for k, weight in enumerate(value.weights)}
        value = {"weights": layers, "readout": value.readout, "activation": value.activation}
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _flatten(f"{prefix}/{name}", entry)
        return
    array = np.asarray(value)
    if array.dtype == object:
        raise InputError(f"{prefix} holds {value!r}, which cannot be saved without pickling.")
    yield prefix, array


def _unflatten(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The nested dictionaries behind `_flatten`; arrays without axes become plain values."""
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        *folders, name = path.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
            if not isinstance(place, dict):
                raise InputError(f"{folder!r} in {path!r} is an array and a folder at once.")
        if name in place or array.dtype.kind not in "biufU":
            raise InputError(f"{path!r} has type {array.dtype}, or stands there twice.")
        place[name] = array.item() if array.ndim == 0 else array
    return tree


def _plain(value: Any) -> Any:
    """NumPy and JAX values as JSON."""
    return np.asarray(value).tolist()
