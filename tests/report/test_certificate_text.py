"""A certificate in words: the summary first, what speaks about the run, the rest when asked for."""

import jax
import pytest

import deeplin as dl
from deeplin.problems import synthetic
from deeplin.report.text import NOT_ABOUT_A_RUN, certificate_text


@pytest.fixture(scope="module")
def certificate():
    problem = synthetic.flat_minima(0).problem
    network = dl.theory.minimal_sharpness(problem, depth=2).minimizer
    return dl.certify(problem, network)


def test_the_summary_counts_every_statement_once(certificate):
    first = certificate_text(certificate, width=10_000).splitlines()[0]
    assert first.startswith("No statement is violated on this run")
    counted = sum(int(part.split()[0]) for part in first.split(": ")[1].rstrip(".").split(", "))
    assert counted == len(certificate)


def test_only_what_concerns_the_run_is_shown_unless_all_is_requested(certificate):
    silent = certificate.table.query("verdict == 'not applicable'")["id"]
    short, long = certificate_text(certificate), certificate_text(certificate, everything=True)
    assert len(silent) > 0
    for name in silent:
        assert f"  {name}: " not in short
        assert f"  {name}: " in long
    assert "--all" in short
    assert "--all" not in long


def test_statements_about_the_data_alone_say_the_same_about_every_run(certificate):
    """So they are behind --all, unless they are violated."""
    problem = synthetic.flat_minima(0).problem
    net = dl.initialize.gaussian(jax.random.key(3), (5, 5, 1), 0.4)
    other = dl.certify(problem, dl.gradient_descent(problem, net, 0.02, 50, record_every=5))
    assert sum(bool(NOT_ABOUT_A_RUN.fullmatch(name)) for name in other["id"]) == 29
    for mine, theirs in zip(certificate.records(), other.records(), strict=True):
        if NOT_ABOUT_A_RUN.fullmatch(mine["id"]) and mine["verdict"] != "not applicable":
            assert (mine["left"], mine["right"]) == (theirs["left"], theirs["right"]), mine["id"]
            assert f"  {mine['id']}: " not in certificate_text(certificate)
    broken = certificate.copy()
    broken.loc[broken["id"] == "X-3", "verdict"] = "violated"
    assert "  X-3: " in certificate_text(type(certificate)(broken))


def test_a_margin_within_rounding_is_zero_with_its_tolerance(certificate):
    text = " ".join(certificate_text(certificate, width=10_000).split())
    row = certificate.table.query("id == 'X-2'").iloc[0]
    assert abs(row["margin"]) <= row["tolerance"]
    assert f"margin 0 within {row['tolerance']:.1g}" in text


def test_a_violation_comes_first_and_is_counted(certificate):
    broken = certificate.copy()
    broken.loc[broken["id"] == "FM-T2", "verdict"] = "violated"
    text = certificate_text(type(certificate)(broken))
    assert text.startswith("1 statement(s) are VIOLATED")
    assert text.index("Violated\n  FM-T2") < text.index("\nHolds\n")


@pytest.mark.parametrize("width", [80, 120])
def test_text_wraps_at_words(certificate, width):
    assert (
        max(map(len, certificate_text(certificate, width=width, everything=True).splitlines()))
        <= width
    )
