"""A certificate in words: what holds and what it means; ids and numbers when asked for."""

import re

import jax
import pytest

import deeplin as dl
from deeplin.certificates.certificate import Certificate
from deeplin.certificates.statements import STATEMENTS
from deeplin.certificates.text import certificate_text
from deeplin.problems import synthetic


@pytest.fixture(scope="module")
def certificate():
    problem = synthetic.flat_minima(0).problem
    network = dl.theory.minimal_sharpness(problem, depth=2).minimizer
    return dl.certify(problem, network)


@pytest.fixture(scope="module")
def descent():
    problem = synthetic.flat_minima(0).problem
    net = dl.initialize.gaussian(jax.random.key(3), (5, 5, 1), 0.4)
    return dl.certify(problem, dl.gradient_descent(problem, net, 0.02, 50, record_every=5))


def test_the_first_screen_is_in_words_without_ids(certificate, descent):
    for table in (certificate, descent):
        text = certificate_text(table)
        assert text.startswith("No statement is violated on this run.")
        assert "What holds, and what it means" in text
        assert not re.search(r"\b(FM|BO|X|Talk)-\w", text)
        assert text.endswith("--details")


def test_the_first_screen_says_where_the_run_ended(certificate, descent):
    text = " ".join(certificate_text(certificate).split())
    S = certificate.set_index("id").loc["X-2", "right"]
    assert f"ended in a minimizer of sharpness {S:.4g}; the smallest possible is {S:.4g}" in text
    assert "did not end in a minimizer" in " ".join(certificate_text(descent).split())
    assert "were not judged, because they assume what is not true here: the run ended" in " ".join(
        certificate_text(descent).split()
    )


def test_every_sentence_of_the_first_screen_is_one_of_a_statement_that_holds(certificate):
    holding = certificate.loc[certificate["verdict"] == "holds", "id"]
    known = {STATEMENTS[name].meaning for name in holding}
    text = certificate_text(certificate, width=10_000)
    shown = [line[4:] for line in text.splitlines() if line.startswith("  • ")]
    assert set(shown) == known - {""}
    assert len(shown) == len(set(shown))


def test_the_summary_counts_every_statement_once(certificate):
    first = certificate_text(certificate, width=10_000, details=True).splitlines()[0]
    assert first.startswith("No statement is violated on this run")
    counted = sum(int(part.split()[0]) for part in first.split(": ")[1].rstrip(".").split(", "))
    assert counted == len(certificate)


def test_the_summary_is_grammatical(certificate):
    one = Certificate(certificate.iloc[:1])
    assert certificate_text(one).startswith(
        "No statement is violated on this run. 1 statement holds."
    )
    assert "1 holds" in certificate_text(one, details=True)
    some = certificate_text(certificate, details=True)
    assert re.search(r"\d\d hold,", some)


def test_only_what_concerns_the_run_is_shown_unless_all_is_requested(certificate):
    silent = certificate.table.query("verdict == 'not applicable'")["id"]
    short = certificate_text(certificate, details=True)
    long = certificate_text(certificate, everything=True)
    assert len(silent) > 0
    for name in silent:
        assert f"  {name}: " not in short
        assert f"  {name}: " in long
    assert "--all" in short
    assert "--all" not in long


def test_a_margin_within_rounding_is_zero_with_its_tolerance(certificate):
    text = " ".join(certificate_text(certificate, width=10_000, details=True).split())
    row = certificate.table.query("id == 'X-2'").iloc[0]
    assert abs(row["margin"]) <= row["tolerance"]
    assert f"margin 0 within {row['tolerance']:.1g}" in text


def test_a_violation_comes_first_with_its_id_and_is_counted(certificate):
    broken = certificate.copy()
    broken.loc[broken["id"] == "FM-T2", "verdict"] = "violated"
    text = certificate_text(Certificate(broken))
    assert text.startswith("1 statement is VIOLATED")
    assert text.index("Violated\n  FM-T2") < text.index("\nWhat holds")


def test_a_known_erratum_is_no_violation_of_the_run(certificate):
    broken = certificate.copy()
    broken.loc[broken["id"] == "E-4", "verdict"] = "violated"
    first, details = (certificate_text(Certificate(broken), details=d) for d in (False, True))
    for text in (first, details):
        assert text.startswith("No statement is violated")
    assert "E-4" not in first
    assert "False as printed, as is known (errata)\n  E-4" in details


def test_a_single_statement_whose_assumption_fails_is_named(descent):
    unmet = descent.table.query("verdict == 'hypotheses not met'").iloc[:1]
    name = unmet.iloc[0]["unmet"][0].hypothesis
    text = " ".join(certificate_text(Certificate(unmet)).split())
    assert f"1 statement was not judged, because it assumes what is not true here: {name}." in text


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("options", [{}, {"details": True}, {"everything": True}])
def test_text_wraps_at_words(certificate, descent, width, options):
    for table in (certificate, descent):
        lines = certificate_text(table, width=width, **options).splitlines()
        assert max(map(len, lines)) <= width
