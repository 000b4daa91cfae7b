"""The words on the page say what the curves show."""

import numpy as np
import pytest

from deeplin.explorer.compute import train
from deeplin.explorer.presets import PRESETS
from deeplin.explorer.state import State
from deeplin.explorer.words import compare, describe, regime

THRESHOLD = 20.0


@pytest.mark.parametrize(
    ("sharpness", "diverged", "kind"),
    [
        ([5, 8, 12, 15, 18, 20.5, 19.5, 20.2, 19.9, 20.1], False, "edge"),
        ([90, 40, 12, 10, 9, 9, 9, 9], False, "catapult"),
        ([2, 3, 6, 9, 12, 12, 12, 12], False, "sharpening"),
        ([10, 10, 10.5, 10.2, 10, 10, 10, 10], False, "calm"),
        ([10, 30, 15, 10, 9, 9, 9, 9], False, "crossing"),
        ([30, 40, 60, 60, 60, 60, 60, 60], False, "above"),
        ([10, 1e4, np.nan, np.nan], True, "diverged"),
        ([np.nan, np.nan], False, "diverged"),
    ],
)
def test_kind_of_a_run_follows_from_its_sharpness(sharpness, diverged, kind):
    assert regime(np.array(sharpness, float), THRESHOLD, diverged) == kind


def headline(state):
    return describe(state, train(state)).headline


def test_divergence_is_called_so():
    verdict = describe(state := State(learning_rate=2.0), train(state))
    assert verdict.level == "bad"
    assert "diverged, the first at step" in verdict.headline
    assert "no minimiser is stable" in verdict.html()


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("sharpening", "Progressive sharpening"),
        ("edge", "Edge of stability"),
        ("catapult", "Catapult"),
        ("residual", "converged"),
    ],
)
def test_presets_show_what_they_promise(preset, words):
    assert words in headline(PRESETS[preset].state)


def test_small_initialisation_ends_at_the_balanced_sharpness_and_aligned():
    training = train(PRESETS["small"].state)
    assert training.series["sharpness"][-1, 0] == pytest.approx(training.theory.balanced, rel=0.02)
    assert np.all(training.layers["alignment"][-1] > 0.98)


def test_comparison_names_the_inputs_that_differ_and_escapes_nothing_unsafe():
    state = State(depth=3, steps=50, seeds=1, saved_a="depth=2&steps=50&seeds=1")
    kept = {"saved_a": train(State.from_link(state.saved_a))}
    html = compare(state, train(state), kept)
    assert "Depth L" in html
    assert "Learning rate" not in html
    assert compare(state, train(state), {}) == ""
