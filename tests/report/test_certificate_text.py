"""A certificate in words: the summary first, what speaks about the run, the rest when asked for."""

import pytest

import deeplin as dl
from deeplin.problems import synthetic
from deeplin.report.text import certificate_text


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
