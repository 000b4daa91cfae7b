"""Every input is bounded, and a link restores exactly the state it was made from."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeplin.checks import InputError
from deeplin.explorer.presets import PRESETS
from deeplin.explorer.state import BOUNDS, Choice, Flag, Real, Saved, State, Whole


def values_of(bound):
    if isinstance(bound, Whole):
        return st.integers(bound.low, bound.high)
    if isinstance(bound, Real):
        return st.floats(bound.low, bound.high)
    if isinstance(bound, Choice):
        return st.sampled_from(list(bound.options))
    return st.booleans() if isinstance(bound, Flag) else st.just("")


states = st.fixed_dictionaries({name: values_of(bound) for name, bound in BOUNDS.items()}).filter(
    lambda values: values["scale"] > 0
)


@given(states)
@settings(max_examples=60, deadline=None)
def test_link_restores_the_state_exactly(values):
    state = State(**values)
    assert State.from_link(state.link()) == state
    assert State.from_link("?" + state.link()) == state


def test_link_of_the_default_state_is_empty():
    assert State().link() == ""
    assert State.from_link("") == State()


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("value", [10**9 + 1, -1, math.nan, math.inf, "x", [1], None, 10**400, {}])
def test_values_out_of_bounds_are_refused(name, value):
    with pytest.raises(InputError):
        State(**{name: value})


def test_message_of_a_refused_value_says_what_came_and_what_to_pass():
    with pytest.raises(InputError, match=r"Depth L is 1e\+09; pass a whole number from 1 to 40"):
        State(depth=10**9)


def test_unknown_inputs_and_long_links_are_refused():
    with pytest.raises(InputError, match="no input"):
        State.from_link("colour=red")
    with pytest.raises(InputError, match="characters"):
        State.from_link("depth=" + "1" * 10_000)


def test_zero_scale_is_for_residual_networks_only():
    assert State(architecture="residual", scale=0).scale == 0
    with pytest.raises(InputError, match="gradient"):
        State(scale=0)


def test_kept_run_is_the_run_alone():
    state = State(depth=3, tab="phase", vertical_scale="linear")
    kept = state.change(saved_a=state.link())
    assert kept.saved_a == "depth=3"
    assert State.from_link(kept.link()) == kept


def test_kept_run_that_is_no_link_is_refused():
    with pytest.raises(InputError):
        State(saved_a="depth=1000000000")


def test_defaults_are_inside_their_bounds_and_every_field_has_one():
    assert set(BOUNDS) == {field.name for field in dataclasses.fields(State)}
    assert isinstance(BOUNDS["saved_b"], Saved)


def test_all_presets_of_the_issue_exist_and_survive_their_link():
    wanted = ["sharpening", "edge", "catapult", "small", "residual", "benign", "counterexample"]
    assert sorted(PRESETS) == sorted(wanted)
    for preset in PRESETS.values():
        assert State.from_link(preset.state.link()) == preset.state
