"""`sweep.grid` never returns rows of another function: whatever it depends on is compared."""

import importlib
import sys
import threading
from functools import partial

import jax
import pytest

from deeplin import sweep
from deeplin.errors import InputError
from deeplin.sweep.identity import dependencies

HELPERS = """
factor = 1.0

def scaled(x):
    return factor * x
"""
MODULE = """
import enum
import functools
from dataclasses import dataclass, field
import jax
import jax.numpy as jnp
import numpy as np
import deeplin as dl
import helpers
from helpers import scaled

problem = dl.problems.synthetic.flat_minima(seed=0).problem  # as in the documentation
shift = 1.0
table = {"weights": np.arange(3.0), "names": ["a", "b"]}
device = jnp.arange(3.0)
power = functools.partial(pow, exp=2)

class Mode(enum.Enum):
    FIRST = 1

class Model:
    bias = 0.5

    def predict(self, x):
        return x + self.bias + self.offset()

    @staticmethod
    def offset():
        return 0.25

@dataclass(frozen=True)
class Setting:
    rate: float = 0.1
    powers: list = field(default_factory=lambda: [1, 2])

def inner(x):
    return x + shift

def middle(x):
    return [inner(x) for _ in range(1)][0]

def closure(extra):
    def added(x):
        return x + extra
    return added

model = Model()
add_two = closure(2.0)

@jax.jit
def compiled(x):
    return x * 1.5

def train(x, rate=0.1):
    # what a function may depend on
    from helpers import factor as late
    value = problem.minimal_risk + middle(x) + table["weights"].sum() + float(device[1])
    value += model.predict(x) + add_two(x) + rate + Setting().rate + power(2) + scaled(x)
    return value + helpers.scaled(x) + Mode.FIRST.value + late + float(compiled(x))
"""
CHANGES = {
    "the seed of a global problem": ("flat_minima(seed=0)", "flat_minima(seed=7)"),
    "a global read through two helpers": ("shift = 1.0", "shift = 2.0"),
    "the body": ("+ rate +", "- rate +"),
    "a helper": ("return x + shift", "return x - shift"),
    "a default argument": ("rate=0.1", "rate=0.2"),
    "an array in a dictionary": ("np.arange(3.0)", "np.arange(3.0) + 1"),
    "an array of JAX": ("jnp.arange(3.0)", "jnp.arange(3.0) + 1"),
    "a closure": ("closure(2.0)", "closure(3.0)"),
    "a method": ("x + self.bias", "x - self.bias"),
    "an attribute of a class": ("bias = 0.5", "bias = 0.75"),
    "a static method": ("return 0.25", "return 0.5"),
    "a default of a dataclass": ("rate: float = 0.1", "rate: float = 0.2"),
    "a default factory": ("lambda: [1, 2]", "lambda: [1, 3]"),
    "a member of an enumeration": ("FIRST = 1", "FIRST = 2"),
    "an argument of a partial": ("exp=2", "exp=3"),
    "a compiled function": ("x * 1.5", "x * 2.5"),
    "a partial in place of a function": (
        "def train(", "inner = functools.partial(inner)\n\ndef train("
    ),
}  # fmt: skip
HELPER_CHANGES = {
    "a global of another module": ("factor = 1.0", "factor = 2.0"),
    "a function of another module": ("factor * x", "factor + x"),
}


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Import the module with a change, as a new process would."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def imported(module=MODULE, helpers=HELPERS):
        (tmp_path / "study.py").write_text(module)
        (tmp_path / "helpers.py").write_text(helpers)
        for name in ("study", "helpers"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("study").train

    yield imported
    for name in ("study", "helpers"):
        sys.modules.pop(name, None)


def changed(text, old, new):
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize("what", [*CHANGES, *HELPER_CHANGES])
def test_a_folder_made_with_something_else_is_refused(tmp_path, load, what):
    sweep.grid(load(), {"x": [1.0, 2.0]}, tmp_path / "sweep", workers=1)
    if what in CHANGES:
        function = load(changed(MODULE, *CHANGES[what]))
    else:
        function = load(helpers=changed(HELPERS, *HELPER_CHANGES[what]))
    with pytest.raises(InputError, match=r"with another .*; pass another folder.*version="):
        sweep.grid(function, {"x": [1.0, 2.0]}, tmp_path / "sweep", workers=1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# what a function may depend on", "# what it may depend on, in other words"),
        ("x + shift", "(x  +  shift)"),
        ("shift = 1.0", "shift = 1.0\nunused = 3.0\n\ndef stranger():\n    return unused\n"),
    ],
)
def test_comments_layout_and_what_is_not_used_change_nothing(tmp_path, load, old, new):
    call = partial(sweep.grid, values={"x": [1.0, 2.0]}, folder=tmp_path / "sweep", workers=1)
    first, again = call(load()), call(load(changed(MODULE, old, new)))
    assert (first.computed, again.reused, again.computed) == (2, 2, 0)


def test_use_changes_nothing(load):
    """Neither computing with the globals nor what they cache makes them others."""
    function = load()
    before = dependencies(function)
    function(1.0)
    assert dependencies(function) == before


def with_jax(x):
    return jax.numpy.sin(x)


def test_another_version_of_deeplin_is_refused(tmp_path, monkeypatch):
    call = partial(sweep.grid, with_jax, {"x": [1.0]}, tmp_path, workers=1)
    call()
    monkeypatch.setattr("deeplin.sweep._grid.VERSION", "0.0")
    with pytest.raises(InputError, match=r"with another deeplin; pass"):
        call()


def test_another_version_given_by_the_user_is_refused_and_named(tmp_path):
    call = partial(sweep.grid, outer(3.0), {"center": [1.0]}, tmp_path, workers=1)
    assert call(version="a").computed == call(version="a").reused == 1
    for other in ("b", None, 1):
        with pytest.raises(InputError, match=r"with another version=; pass another folder"):
            call(version=other)


def outer(shift):
    def inner(center):
        return center + shift

    return inner


def test_a_closure_is_compared_by_its_variables(tmp_path):
    call = partial(sweep.grid, values={"center": [1.0]}, folder=tmp_path, workers=1)
    assert call(outer(3.0)).table()["value"].tolist() == [4.0]
    assert call(outer(3.0)).reused == 1
    with pytest.raises(InputError, match=r"another outer\.<locals>\.inner; pass"):
        call(outer(5.0))


LOCK, LINES = threading.Lock(), (line for line in "ab")
Typed = type("Typed", (), {"factor": 2})


def locked(x):
    with LOCK:
        return x


def from_generator(x):
    return x, next(LINES)


def with_typed(x):
    return x * Typed.factor


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (locked, "depends on LOCK, a lock, which cannot be compared.*as an argument"),
        (from_generator, "depends on LINES, a generator"),
        (with_typed, "depends on the class Typed, whose source cannot be read"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, function, sentence):
    with pytest.raises(InputError, match=sentence):
        sweep.grid(function, {"x": [1]}, tmp_path / "sweep", workers=1)
    assert not (tmp_path / "sweep").exists()


UNSTABLE = """
import os

token = os.getpid()

def double(x):
    return 2 * x + 0 * token
"""


@pytest.mark.extended
def test_a_worker_that_imports_something_else_says_so(tmp_path, monkeypatch):
    (tmp_path / "unstable.py").write_text(UNSTABLE)
    monkeypatch.syspath_prepend(tmp_path)
    double = importlib.import_module("unstable").double
    with pytest.raises(sweep.UnitsFailed, match="imports double finds another function, or other"):
        sweep.grid(double, {"x": [1, 2]}, tmp_path / "results", workers=2)
    del sys.modules["unstable"]
