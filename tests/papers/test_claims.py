import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplin.errors import InputError
from deeplin.papers.claims import Claim, number, on_data_sets


@given(st.floats(-10, 10), st.floats(-10, 10), st.floats(0, 10))
def test_a_claim_holds_exactly_within_its_limits(measured, lower, width):
    upper = lower + width
    assert Claim("s", measured, lower, upper).holds == (lower <= measured <= upper)
    assert Claim("s", measured, upper=upper).holds == (measured <= upper)
    assert Claim("s", measured, lower=lower).holds == (measured >= lower)


def test_a_claim_about_nothing_fails():
    assert Claim("s", math.nan, upper=1.0).verdict == "fails"
    assert Claim("s", {}, upper=1.0).verdict == "fails"


def test_a_claim_about_a_range_names_the_part_for_which_it_holds():
    claim = Claim("s", {"η = 0.02": 0.44, "η = 0.07": 0.99}, lower=0.9)
    assert claim.verdict == "holds in part"
    assert not claim.holds
    assert claim.part == "holds for η = 0.07; not for η = 0.02 (0.44)"
    assert claim.measured == 0.44
    assert claim.worst == "worst of 2: η = 0.02"
    assert Claim("s", 0.44, lower=0.9).worst == ""
    assert Claim("s", {"a": 0.95, "b": 0.99}, lower=0.9).verdict == "holds"
    assert Claim("s", {"a": 0.1, "b": math.nan}, lower=0.9).verdict == "fails"


def test_many_parts_are_counted():
    claim = Claim("s", {f"run {k}": float(k > 0) for k in range(20)}, lower=0.5)
    assert claim.part == "holds for 19 of 20 parts; not for run 0 (0)"


def test_a_general_sentence_says_on_how_many_data_sets_it_holds():
    found = {("at", 9): 0.1, ("at", 10): 0.3, ("above", 9): 0.1, ("above", 10): 0.1}
    claim = on_data_sets("s", found, "{} the rate", upper=0.2, explanation="More.", known="K-1")
    counts = "1 of 2 (at the rate), 2 of 2 (above the rate)"
    assert claim.explanation == f"Data sets on which it holds: {counts}. More."
    assert claim.part.endswith("not for at the rate on data set 10 (0.3)")
    assert (claim.verdict, claim.measured, claim.known) == ("holds in part", 0.3, "K-1")
    alone = on_data_sets("s", {9: 0.1, 10: 0.3}, lower=0.2)
    assert (alone.explanation, alone.measured) == ("Holds on 1 of 2 data sets.", 0.1)
    assert on_data_sets("s", found, "{}", upper=1.0).explanation == "Holds on 2 of 2 data sets."


def test_what_a_data_set_lacks_does_not_hold_there():
    claim = on_data_sets("s", {(1, 9): 0.1, (2, 9): 0.1, (1, 10): 0.1}, "{}", upper=0.2)
    assert claim.verdict == "holds in part"
    assert "2 on data set 10 (not a number)" in claim.part
    assert on_data_sets("s", {}, upper=0.2).verdict == "fails"


def test_a_known_failure_is_told_only_where_the_claim_does_not_hold():
    assert Claim("s", 1.0, upper=0.5, known="K-1").to_plain()["known"] == "K-1"
    assert Claim("s", 0.1, upper=0.5, known="K-1").to_plain()["known"] == ""


@pytest.mark.parametrize("limits", [{}, {"lower": 2.0, "upper": 1.0}, {"lower": math.nan}])
def test_a_claim_that_no_data_can_break_is_refused(limits):
    with pytest.raises(InputError, match="limit"):
        Claim("s", 0.0, **limits)


def test_the_limits_are_told_in_words():
    assert Claim("s", 0, upper=0.05).tolerance == "at most 0.05"
    assert Claim("s", 0, lower=10).tolerance == "at least 10"
    assert Claim("s", 0, lower=-1, upper=1).tolerance == "−1 to 1"


def test_a_claim_is_plain_json_even_without_a_number():
    plain = Claim("s", math.nan, upper=1.0, reason="p", explanation="e").to_plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert (plain["measured"], plain["lower"], plain["upper"]) == (None, None, 1.0)
    assert plain["verdict"] == "fails"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (0.12345, "0.1235"),
        (-1.5, "−1.5"),
        (123456.0, "123456"),
        (1.27e-10, "1.27×10⁻¹⁰"),
        (-2e7, "−2.00×10⁷"),
        (math.nan, "not a number"),
        (-math.inf, "−∞"),
    ],
)
def test_numbers_are_written_for_people(value, text):
    assert number(value) == text
