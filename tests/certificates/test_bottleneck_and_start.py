"""X-34 and X-35 as statements about a run: judged where they apply, and able to fail."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.certificates.certificate import certify
from deeplin.certificates.statements import exact
from deeplin.theory import added_risk

NOT_APPLICABLE, UNMET = "not applicable", "hypotheses not met"


@pytest.fixture(scope="module")
def narrow():
    """The reference data of X-34, and three runs through a layer of width 2, the last one cut."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4)) * [1, 0.8, 0.5, 1.5]
    problem = dl.Problem.from_data(X, X @ rng.normal(size=(4, 3)) + 0.5 * rng.normal(size=(40, 3)))
    starts = dl.initialize.gaussian(jax.random.split(jax.random.key(0), 3), (4, 2, 3), 0.4)
    return problem, dl.gradient_descent(problem, starts, 0.03, 3000)


def test_X34_holds_where_runs_end_in_the_best_product_of_their_width(narrow):
    problem, run = narrow
    table = certify(problem, run, only="X-34")
    assert set(table["verdict"]) == {"holds"}
    assert table["left"].to_numpy() == pytest.approx(14.68623582, rel=1e-7)
    assert np.all(table["tolerance"] < 1e-5 * table["right"])


def test_X34_is_tight_at_the_flattest_network_and_a_larger_bound_is_violated(narrow, monkeypatch):
    problem, _ = narrow
    found = dl.minimal_sharpness(problem, 2, width=2)
    row = certify(problem, found.attaining(2), only="X-34").iloc[0]
    assert row.verdict == "holds"
    assert row.right == pytest.approx(row.left, rel=1e-6)
    larger = replace(found, lower=found.lower * 1.001)
    monkeypatch.setattr(exact, "minimal_sharpness", lambda *_, **__: larger)
    assert certify(problem, found.attaining(2), only="X-34").iloc[0].verdict == "violated"


def test_X34_allows_a_network_near_a_minimizer_what_its_distance_explains(narrow):
    """Beside the flattest network S falls below S_min, by less than the tolerance."""
    problem, _ = narrow
    flattest = dl.minimal_sharpness(problem, 2, width=2).attaining(2)
    rng = np.random.default_rng(1)
    below = 0
    for size in (1e-6, 1e-5, 1e-4):
        for _ in range(2):
            moved = [np.asarray(w) + size * rng.normal(size=w.shape) for w in flattest.weights]
            row = certify(problem, dl.Network(moved), only="X-34").iloc[0]
            assert row.verdict == "holds"
            assert row.tolerance < 300 * size * row.right
            below += row.right < row.left
    assert below


def test_X34_asks_for_a_bottleneck_and_for_its_minimizer(narrow):
    problem, run = narrow
    wide = dl.initialize.gaussian(jax.random.key(0), (4, 3, 3), 0.4)
    row = certify(problem, wide, only="X-34").iloc[0]
    assert row.verdict == NOT_APPLICABLE
    assert "narrower than the rank of Θ*, 3" in row.hypotheses
    rows = certify(problem, run.initial, only="X-34")
    assert set(rows["verdict"]) == {UNMET}
    assert rows["hypotheses"].str.contains("a minimizer of its width").all()


@pytest.fixture(scope="module")
def unseen():
    rng = np.random.default_rng(0)
    X, truth = rng.normal(size=(8, 20)), rng.normal(size=20) / np.sqrt(20)
    problem = dl.Problem.from_data(X, X @ truth + 0.3 * rng.normal(size=8))
    starts = dl.initialize.gaussian(jax.random.split(jax.random.key(1), 8), (20, 10, 10, 1), 0.3)
    run = dl.gradient_descent(problem, starts, 0.02, 1500, record_every=101)
    return problem, run, dl.Population(truth, np.ones(20))


def test_X35_holds_and_its_sides_are_those_of_the_added_risk(unseen):
    problem, run, population = unseen
    table = certify(problem, run, only="X-35", population=population, parts=True).table
    parts = dict(list(table.groupby("part")))
    found = added_risk(problem, run, population)
    for name, bound in (("sharpness", found.by_sharpness), ("the learning rate", found.by_rate)):
        rows = parts[f"by {name}"]
        assert set(rows["verdict"]) == {"holds"}
        np.testing.assert_allclose(rows["right"] / rows["left"], bound / found.law, rtol=1e-5)


def test_X35_catches_a_rate_that_no_run_can_settle_at(unseen):
    """The corrupted run claims a rate at which its networks are far from stable."""
    problem, run, _ = unseen
    faster = replace(run, learning_rate=20 * 0.02)
    rows = certify(problem, faster, only="X-35", parts=True).table
    assert "violated" in set(rows.query("part == 'by the learning rate'")["verdict"])
    assert set(rows.query("part == 'by sharpness'")["verdict"]) == {"holds"}


def test_X35_does_not_apply_to_data_that_span_all_inputs_or_with_weight_decay(unseen, narrow):
    problem, run, _ = unseen
    assert set(certify(*narrow, only="X-35")["verdict"]) == {NOT_APPLICABLE}
    decayed = replace(run, weight_decay=0.1)
    assert set(certify(problem, decayed, only="X-35")["verdict"]) == {NOT_APPLICABLE}
