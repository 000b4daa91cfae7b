"""A config, a unit and a key depend on what they mean, not on how they were written."""

import hashlib
import pickle
import struct
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_experiment import TOY, Toy

from deeplin.errors import InputError
from deeplin.sweep import Experiment, Unit, find_experiment, from_json, run_key, run_keys, to_json
from deeplin.sweep.executors import Task
from deeplin.sweep.experiment import build, canonical, coordinate_words


@dataclass(frozen=True)
class Inner:
    name: str
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Outer:
    inner: Inner
    count: int
    pair: tuple[int, str] = (1, "a")
    choice: Literal["a", "b"] = "a"
    limit: float | None = None
    flag: bool = False


finite = st.floats(allow_nan=False, allow_infinity=False)
configs = st.builds(
    Outer,
    inner=st.builds(Inner, name=st.text(), values=st.lists(finite).map(tuple)),
    count=st.integers(),
    pair=st.tuples(st.integers(), st.text()),
    choice=st.sampled_from(["a", "b"]),
    limit=st.none() | finite,
    flag=st.booleans(),
)


@settings(deadline=None, max_examples=100)
@given(configs)
def test_a_config_survives_json_exactly(config):
    assert from_json(Outer, to_json(config)) == config


@dataclass(frozen=True)
class Bare:
    numbers: tuple = (1, 2)


@dataclass(frozen=True)
class Listed:
    numbers: list[float] = field(default_factory=lambda: [1.0])


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Bare, r"numbers is annotated as tuple, .*tuple\[float, ...\]"),
        (Listed, r"numbers is annotated as list\[float\]"),
    ],
)
def test_a_field_that_json_cannot_fill_is_refused(kind, sentence):
    with pytest.raises(InputError, match=sentence):
        from_json(kind, to_json(kind()))


@dataclass(frozen=True)
class Derived:
    number: int = 1
    twice: int = field(init=False, default=2)


@dataclass(frozen=True)
class Shifted:
    number: int = 1

    def __post_init__(self):
        object.__setattr__(self, "number", self.number + 1)


@pytest.mark.parametrize("config", [Bare(), Listed(), Derived(), Shifted()])
def test_a_worker_gets_the_config_as_it_is(config):
    task = Task("unit", TOY, config, Unit({}), "float64")
    assert pickle.loads(task.pack()[2]) == task


@dataclass(frozen=True)
class Anything:
    value: Any = None


def test_a_field_of_any_type_is_taken_as_json_holds_it():
    assert from_json(Anything, to_json(Anything({"a": [1, "b"]}))) == Anything({"a": [1, "b"]})


def test_equal_numbers_have_one_canonical_form():
    assert canonical({"a": 1, "b": np.float64(0.5)}) == canonical({"b": 0.5, "a": 1.0})
    assert canonical(0.1) != canonical(np.nextafter(0.1, 1))
    assert canonical(True) != canonical(1)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"count": 1}, "config: missing a required argument: 'inner'; its fields: inner, count"),
        (
            {"inner": {"name": "x"}, "count": 1, "colour": 2},
            "argument 'colour'; its fields: inner",
        ),
        ({"inner": {"name": "x"}, "count": "many"}, "count is 'many'; pass a value of type int"),
        ({"inner": {"name": "x"}, "count": True}, "count is True"),
        ({"inner": {"name": "x", "values": 3.0}, "count": 1}, r"values is 3.0; pass a list"),
        ({"inner": {"name": "x", "values": ["y"]}, "count": 1}, r"values\[0\] is 'y'"),
        ({"inner": {"name": "x"}, "count": 1, "choice": "c"}, "pass one of a, b"),
        ({"inner": {"name": "x"}, "count": 1, "pair": [1]}, "has 1 entries; pass 2"),
        ({"inner": 5, "count": 1}, "pass a table of fields"),
    ],
)
def test_a_wrong_field_is_named(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        build(Outer, fields)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.zeros(2), object()])
def test_what_json_cannot_hold_is_refused(value):
    with pytest.raises(InputError, match="limit"):
        to_json(Outer(Inner("x"), 1, limit=value))


def test_a_key_depends_on_its_coordinates_and_not_on_the_other_runs():
    runs = [{"scale": scale, "repetition": r} for scale in (0.25, 0.5) for r in range(3)]
    together = jax.random.key_data(run_keys(7, runs))
    alone = [jax.random.key_data(run_key(7, **run)) for run in reversed(runs)]
    np.testing.assert_array_equal(together, np.stack(alone)[::-1])
    assert len({tuple(row) for row in np.asarray(together)}) == len(runs)
    assert coordinate_words(7, scale=1, repetition=0) == coordinate_words(
        7, repetition=0, scale=1.0
    )
    assert coordinate_words(7, scale=1) != coordinate_words(8, scale=1)


def test_a_key_is_the_same_on_every_machine_and_in_both_precisions():
    """Written down as text and as numbers: a change would silently change every stored result."""
    text = b'{"coordinates":{"repetition":3,"scale":0.35},"seed":0}'
    words = struct.unpack(">II", hashlib.blake2b(text, digest_size=8).digest())
    assert coordinate_words(0, scale=0.35, repetition=3) == words == (3929144557, 2858523507)
    for x64 in (False, True):
        with jax.enable_x64(x64):
            key = jax.random.key_data(run_key(0, scale=0.35, repetition=3))
        assert tuple(np.asarray(key).tolist()) == words


def test_keys_of_neighbouring_runs_give_independent_draws():
    keys = run_keys(0, [{"repetition": r} for r in range(4000)])
    draws = np.asarray(jax.vmap(lambda key: jax.random.normal(key, (2,)))(keys))
    # Five standard errors of a mean, a variance and a correlation of 4000 normal draws.
    assert abs(draws.mean()) < 5 / np.sqrt(8000)
    assert abs(draws.var() - 1) < 5 * np.sqrt(2 / 8000)
    assert abs(np.mean(draws[1:, 0] * draws[:-1, 0])) < 5 / np.sqrt(4000)
    assert abs(np.mean(draws[:, 0] * draws[:, 1])) < 5 / np.sqrt(4000)


def identifiers(config, precision="float64", experiment=TOY):
    return list(experiment.identify(config, experiment.units(config), precision))


def test_a_unit_keeps_its_id_when_the_grid_grows_and_loses_it_when_it_means_something_else():
    first = identifiers(Toy(count=6))
    assert identifiers(Toy(count=9))[:2] == first
    assert len(set(first)) == 2
    assert not set(first) & set(identifiers(Toy(count=6, seed=1)))
    assert not set(first) & set(identifiers(Toy(count=6), "float32"))
    assert not set(first) & set(identifiers(Toy(count=6), experiment=replace(TOY, schema=2)))
    assert not set(first) & set(identifiers(Toy(count=6), experiment=replace(TOY, name="other")))


def test_a_field_matters_unless_the_experiment_says_otherwise():
    strict = replace(TOY, grid=())
    assert not set(identifiers(Toy(count=6), experiment=strict)) & set(
        identifiers(Toy(count=9), experiment=strict)
    )


def test_two_units_with_the_same_coordinates_are_refused():
    with pytest.raises(InputError, match="repeat the coordinates"):
        TOY.identify(Toy(), [Unit({"a": 1}), Unit({"a": 1.0})], "float64")


def test_an_experiment_is_found_where_workers_import_it():
    assert find_experiment("toy_experiment:TOY") is TOY
    assert TOY.reference == "toy_experiment:TOY"
    assert find_experiment("descent").reference == "deeplin.sweep.descent:DESCENT"


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("nothing", "pass one of descent, or module:attribute"),
        ("no.such.module:X", "cannot be imported"),
        ("toy_experiment:NOTHING", "cannot be imported"),
        ("toy_experiment:Toy", "is a type, not an Experiment"),
    ],
)
def test_an_experiment_that_is_not_there_is_an_input_error(reference, sentence):
    with pytest.raises(InputError, match=sentence):
        find_experiment(reference)


def test_an_experiment_no_worker_could_find_is_refused():
    hidden = Experiment("hidden", Toy, TOY.units, TOY.run_unit)
    with pytest.raises(InputError, match="assign it to a name"):
        hidden.reference
    with pytest.raises(InputError, match="pass config fields"):
        Experiment("x", Toy, TOY.units, TOY.run_unit, grid=("colour",))
    with pytest.raises(InputError, match="pass a frozen dataclass"):
        Experiment("x", dict, TOY.units, TOY.run_unit)
