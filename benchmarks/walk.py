"""Which files of the library a call enters: `python benchmarks/walk.py`.

Three walks: gradient descent, `diagnose` on a table, and from a table to a certificate. A file
counts when a function that it defines is called; nothing is compiled then, because the same call
was made before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import deeplin as dl
from deeplin.tables.reading import read_problem

SOURCE = Path(dl.__file__).parent
TABLE = Path(__file__).parent.parent / "examples" / "data.csv"


def entered(call: Callable[[], object]) -> list[str]:
    """Return the files whose functions run during the second call, in order of entering."""
    call()
    found: dict[str, None] = {}

    def profile(frame, event, _argument) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(SOURCE)) and frame.f_code.co_name[0] != "<":
            found[str(Path(name).relative_to(SOURCE))] = None

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(found)


def descent() -> Callable[[], object]:
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    keys = jax.random.split(jax.random.key(0), 8)
    nets = dl.initialize.gaussian(keys, widths=(5, 5, 5, 1), scale=0.35)
    return lambda: dl.gradient_descent(problem, nets, 0.02, 100)


def diagnosis() -> Callable[[], object]:
    return lambda: dl.diagnose(str(TABLE), (10,), target="y")


def certificate() -> Callable[[], object]:
    def walk() -> object:
        problem = read_problem(TABLE, "y").problem
        net = dl.initialize.gaussian(jax.random.key(0), (problem.dimension, 5, 1), scale=0.35)
        return dl.certify(problem, dl.gradient_descent(problem, net, 0.02, 1000))

    return walk


WALKS = {
    "gradient_descent": descent,
    "diagnose of a table": diagnosis,
    "from a table to a certificate": certificate,
}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    for title, prepare in WALKS.items():
        files = entered(prepare())
        print(f"{title}: {len(files)} files")
        print("  " + ", ".join(files))
