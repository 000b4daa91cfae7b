"""Saved runs, tampered with in every way a file can be, given to `certify`."""

import functools
import io
import zipfile
from pathlib import Path

import jax
import numpy as np
from answers import complaint
from tables import damaged

import deeplin as dl
from deeplin.dynamics.saved import save_run

TEXTS = ("", "converged", "linear", "gelu", "deeplin run 2", "é" * 50)


def check(rng: np.random.Generator, folder: Path) -> str | None:
    """One tampered run, one command: what is wrong with the answer, if anything."""
    originals = saved_runs(folder)
    whole = originals[rng.integers(len(originals))]
    path = folder / "tampered.npz"
    if rng.random() < 0.3:
        path.write_bytes(damaged(whole, rng))
    else:
        path.write_bytes(_edited(whole, rng))
    return complaint(["certify", path, *(["--json"] if rng.random() < 0.5 else [])])


@functools.cache
def saved_runs(folder: Path) -> list[bytes]:
    """Descent and flow, one run and a batch, rows and moments, settled and diverged, float32."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(12, 3)), rng.normal(size=(12, 2))
    one = dl.Problem.from_data(X, Y[:, 0])
    moments = dl.Problem.from_chunks([(X, Y[:, 0])])
    two = dl.Problem.from_data(X, Y)
    net = dl.initialize.gaussian(jax.random.key(0), (3, 3, 1), 0.5)
    keys = jax.random.split(jax.random.key(1), 2)
    batch = dl.initialize.residual(keys, 3, 2, 0.3, np.ones(3))
    wide = dl.initialize.gaussian(jax.random.key(2), (3, 4, 2), 0.5)
    single = jax.tree.map(lambda leaf: leaf.astype(np.float32), net)
    pairs = [
        (one, dl.gradient_descent(one, net, 0.05, 20, record_every=5)),
        (one, dl.gradient_descent(one, net, 5.0, 200, record_every=1)),
        (moments, dl.gradient_descent(moments, batch, [0.05, 0.1], 20, record_every=10)),
        (two, dl.gradient_descent(two, wide, 0.05, 20)),
        (one, dl.gradient_flow(one, net, until=1.0, record_every=0.25)),
        (one, dl.gradient_descent(one, single, 0.05, 20)),
    ]
    return [save_run(folder / "whole.npz", *pair).read_bytes() for pair in pairs]


def _edited(whole: bytes, rng: np.random.Generator) -> bytes:
    """Some arrays replaced, removed, renamed or exchanged."""
    with np.load(io.BytesIO(whole)) as file:
        arrays = {name: file[name] for name in file.files}
    for _ in range(rng.integers(1, 3)):
        name = list(arrays)[rng.integers(len(arrays))]
        match rng.integers(8):
            case 0:
                del arrays[name]
            case 1:
                other = list(arrays)[rng.integers(len(arrays))]
                arrays[name], arrays[other] = arrays[other], arrays[name]
            case 2:
                places = ["run", "problem", "run/network", "x/y", "run/records/new", "é", name]
                arrays[places[rng.integers(len(places))] + "/z" * rng.integers(2)] = arrays.pop(
                    name
                )
            case _:
                arrays[name] = _replaced(arrays[name], rng)
    return _zipped(arrays)


def _replaced(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    numbers = array if array.dtype.kind in "biuf" else np.ones(array.shape)
    spoiled = np.array(numbers, dtype=float)
    if spoiled.size:
        place = rng.integers(spoiled.size)
        values = [np.nan, np.inf, -1.0, 0.0, 1e300, -1e300, 1e-300, 1e12, 0.5]
        spoiled.reshape(-1)[place] = values[rng.integers(len(values))]
    with np.errstate(all="ignore"):
        choices = [
            spoiled,
            spoiled.astype(array.dtype) if array.dtype.kind in "biuf" else spoiled,
            numbers[..., None],
            numbers[None],
            np.ravel(numbers)[:-1],
            np.ravel(numbers)[0:0],
            np.swapaxes(numbers, 0, -1) if numbers.ndim > 1 else np.stack([numbers, numbers]),
            numbers * rng.choice([-1.0, 0.0, 1e-8, 1.5, 1e6, 1e100, 1e-100]),
            numbers.astype([np.float32, np.int64, complex, bool, "U8", "S3"][rng.integers(6)]),
            np.array(TEXTS[rng.integers(len(TEXTS))]),
            np.array(rng.choice([-1, 0, 1, 2, 7, 2**40])),
            np.array(list(TEXTS)),
            np.concatenate([np.atleast_1d(numbers)] * 2),
        ]
    return choices[rng.integers(len(choices))]


def _zipped(arrays) -> bytes:
    """`np.savez` without its restrictions on names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, array in arrays.items():
            part = io.BytesIO()
            np.lib.format.write_array(part, np.asarray(array), allow_pickle=False)
            file.writestr(f"{name}.npy", part.getvalue())
    return buffer.getvalue()
