"""Widgets carry values through the bounds in both directions."""

import math

import pytest
from bokeh.models import Slider

from deeplin.checks import InputError
from deeplin.explorer.controls import Controls, value_at
from deeplin.explorer.critical_mark import CriticalMark, position
from deeplin.explorer.state import BOUNDS, Real, Saved, State, Whole

NAMES = [name for name, bound in BOUNDS.items() if not isinstance(bound, Saved)]


@pytest.fixture
def reports():
    return []


@pytest.fixture
def controls(reports):
    return Controls(NAMES, State(), lambda name, value: reports.append((name, value)))


def test_every_input_has_a_widget_that_reports_its_moves(controls, reports):
    controls["depth"].value = 7
    controls["learning_rate"].value = -1.0
    controls["architecture"].value = "gelu"
    controls["flow"].active = False
    controls["tab"].active = 2
    assert reports == [
        ("depth", 7),
        ("learning_rate", 0.1),
        ("architecture", "gelu"),
        ("flow", False),
        ("tab", "wide"),
    ]


def test_showing_a_state_moves_the_widgets_without_reporting(controls, reports):
    state = State(depth=33, steps=10_000, alpha=0, tab="theorems", flow=False)
    controls.show(state)
    assert reports == []
    assert controls["depth"].value == 33
    assert controls["steps"].value == pytest.approx(4)
    assert controls["tab"].active == 3
    assert value_at(BOUNDS["alpha"], controls["alpha"].value) == 0


@pytest.mark.parametrize("name", [n for n in NAMES if isinstance(BOUNDS[n], Whole | Real)])
def test_both_ends_of_every_slider_are_allowed_values(name, controls):
    slider = controls[name]
    assert isinstance(slider, Slider)
    for end in (slider.start, slider.end):
        BOUNDS[name].check(name, value_at(BOUNDS[name], end))


@pytest.mark.parametrize("value", [10**9, 1e300, -1e300, math.inf, math.nan, "ten", None, [3]])
@pytest.mark.parametrize("name", ["depth", "steps", "learning_rate", "tab"])
def test_a_forged_position_is_refused(name, value):
    with pytest.raises(InputError):
        State(**{name: value_at(BOUNDS[name], value)})


def test_critical_mark_stands_where_the_slider_would():
    bound = BOUNDS["learning_rate"]
    assert position(bound.low) == 0
    assert position(bound.high) == 1
    assert position(math.sqrt(bound.low * bound.high)) == pytest.approx(0.5)
    mark = CriticalMark()
    mark.show(0.0949)
    assert "critical 0.0949" in mark.model.text
    mark.show(None)
    assert not mark.model.visible
