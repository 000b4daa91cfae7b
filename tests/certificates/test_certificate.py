import dataclasses
import json
import re
import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin.certificates import registry
from deeplin.certificates.certificate import (
    HOLDS,
    MEASURED,
    NOT_APPLICABLE,
    UNMET,
    VIOLATED,
    certify,
)
from deeplin.certificates.context import Context
from deeplin.certificates.registry import (
    Check,
    Hypothesis,
    NotApplicable,
    statement,
    value,
)
from deeplin.certificates.statements import STATEMENTS
from deeplin.dynamics import Run, gradient_flow
from deeplin.dynamics.run import Records
from deeplin.papers.catalogue import FIGURES
from deeplin.theory.benign_overfitting import Constants
from deeplin.theory.bounds import initialization_scale

DOCS = Path(__file__).parents[2] / "docs"

PUBLISHED = (
    "FM-grad FM-sharp FM-L8 FM-T1 FM-T2 FM-rescale FM-crit FM-toy FM-A1 FM-L1 FM-ε FM-L2 FM-T3 "
    "FM-L7 FM-A2 FM-C1 FM-C2 FM-grad-sandwich FM-L3 FM-L6 FM-L9 FM-T4 FM-T5 FM-C3 FM-L4 FM-L5 "
    "Talk-descent Talk-res Talk-log X-1 X-2 X-3 X-4 X-5 X-6 X-7 X-8 X-9 X-10 X-11 X-12 X-13 "
    "BO-risk BO-D2.1 BO-D2.2 BO-A1 BO-A2 BO-A3 BO-A4 BO-A5 BO-D2.3 BO-mod-id BO-D2.4 BO-D2.5 "
    "BO-L4.1 BO-L4.2 BO-L4.3 BO-L5.6 BO-L5.7 BO-L4.4 BO-L4.5 BO-L5.3 BO-L5.4 BO-L5.5 BO-T3.1 "
    "BO-D5.1 BO-P5.2 BO-T3.2 BO-D3.3 BO-C3.4 BO-disc BO-LB.1 BO-LB.2 BO-LB.3 BO-LB.4 BO-LB.5 "
    "BO-trace BO-sigma-min E-4 E-19 E-24 X-25 X-26 X-27 X-28 X-31 X-32 X-33 X-34 X-35"
)
"""Ids of the papers, the errata and the exact results."""


@pytest.fixture
def temporary_statement():
    """Register a statement for one test; its evaluation returns the checks it is given."""

    def register(*checks, kind="lemma"):
        @statement("T-1", title="test", kind=kind, reference="none", formula="")
        def evaluate(context):
            return list(checks)

    yield register
    STATEMENTS.pop("T-1", None)


@pytest.fixture
def network():
    return dl.initialize.gaussian(jax.random.key(3), (5, 4, 1), 0.4)


@pytest.fixture
def flow_run(problem):
    net = dl.initialize.gaussian(jax.random.key(1), (5, 4, 3, 1), 0.3)
    return gradient_flow(problem, net, until=6.0, record_every=0.5)


def test_every_statement_of_the_specification_is_registered():
    assert set(PUBLISHED.split()) <= set(STATEMENTS)
    for id, entry in STATEMENTS.items():
        assert entry.id == id
        assert entry.title
        assert entry.reference


def test_the_map_is_written_from_the_registry():
    written = runpy.run_path(str(DOCS / "map.py"))
    assert (DOCS / "map.md").read_text(encoding="utf-8") == written["page"]()
    assert set(" ".join(written["TESTS"].values()).split()) == set(STATEMENTS)


def test_the_map_names_figures_that_exist():
    named = re.findall(r"[\w-]+-[\w-]+", " ".join(runpy.run_path(str(DOCS / "map.py"))["FIGURES"]))
    assert set(named) <= {figure.name for figure in FIGURES}


def test_one_row_for_each_statement(problem, network):
    table = certify(problem, network, scope="all")
    assert list(table["id"]) == list(STATEMENTS)
    for column in ("verdict", "holds", "left", "right", "margin", "tolerance", "at", "hypotheses"):
        assert column in table.columns
    assert set(table["verdict"]) <= {HOLDS, VIOLATED, MEASURED, UNMET, NOT_APPLICABLE}


def test_a_certificate_of_a_run_leaves_out_what_says_nothing_about_it(problem, network):
    left_out = {s.id for s in STATEMENTS.values() if s.scope == "theory"}
    assert {"Talk-log", "X-22", "X-23", "X-24", "FM-L4", "FM-L5", "FM-L6", "FM-toy"} <= left_out
    assert not left_out & set(certify(problem, network)["id"])
    assert set(certify(problem, network, only="FM-toy")["id"]) == {"FM-toy"}
    with pytest.raises(dl.InputError, match="scope is 'data'"):
        certify(problem, network, scope="data")


def test_statements_about_no_run_hold(problem, network):
    table = certify(problem, network, scope="theory").set_index("id")
    assert set(table["verdict"]) <= {HOLDS, MEASURED, NOT_APPLICABLE}
    assert set(table.loc[["FM-L4", "FM-L5", "FM-L6", "FM-toy"], "verdict"]) == {HOLDS}


def test_the_registry_knows_the_twelve_theorems_of_the_papers():
    flat = {f"FM-{name}" for name in ["T1", "T2", "T3", "T4", "T5", "C1", "C2", "C3"]}
    assert set(registry.THEOREMS) == flat | {"BO-T3.1", "BO-T3.2", "BO-C3.4", "BO-P5.2"}


def test_a_true_claim_holds_and_a_false_one_is_violated(temporary_statement, problem, network):
    temporary_statement(Check(1.0, 2.0, "true"), Check(3.0, 2.0, "false"))
    row = certify(problem, network, only="T-1").iloc[0]
    assert (row.verdict, row.part, row.margin) == (VIOLATED, "false", -1.0)
    assert row.holds is False
    every = certify(problem, network, only="T-1", parts=True)
    assert list(every["verdict"]) == [HOLDS, VIOLATED]


def test_a_number_with_nothing_to_compare_is_measured(temporary_statement, problem, flow_run):
    """The largest along the run is shown, beside no other side and no margin."""
    count = len(flow_run.records["time"])
    numbers = np.arange(count, 0.0, -1)[:, None]
    temporary_statement(value(numbers, "c"))
    row = certify(problem, flow_run, only="T-1").iloc[0]
    assert (row.verdict, row.left, row.holds) == (MEASURED, count, None)
    assert np.isnan(row.right)
    assert np.isnan(row.margin)


@pytest.mark.parametrize(
    ("checks", "kind", "verdict", "part"),
    [
        ([value(np.inf, "smallest c")], "lemma", MEASURED, "smallest c"),  # nobody knows c
        ([value(np.inf, "smallest c")], "definition", MEASURED, "smallest c"),
        ([value(7.0), Check(1.0, 2.0, "judged")], "lemma", HOLDS, "judged"),
        ([Check(np.nan, 2.0)], "lemma", VIOLATED, ""),  # not a number is never a proof
        ([Check(3.0, 2.0)], "assumption", UNMET, ""),
        ([Check(3.0, 2.0, where=False)], "lemma", NOT_APPLICABLE, ""),  # it applies nowhere
    ],
)
def test_checks_of_each_kind_get_their_verdict(
    temporary_statement, problem, network, checks, kind, verdict, part
):
    temporary_statement(*checks, kind=kind)
    row = certify(problem, network, only="T-1").iloc[0]
    assert (row.verdict, row.part) == (verdict, part)
    assert np.isnan(row.left) == (verdict == NOT_APPLICABLE or np.isnan(checks[0].left))


def test_a_known_erratum_does_not_make_a_certificate_fail(temporary_statement, problem, network):
    temporary_statement(Check(3.0, 2.0), kind="erratum")
    table = certify(problem, network, only="T-1")
    assert table.iloc[0].verdict == VIOLATED
    assert table.all_hold


def test_unmet_hypotheses_are_named_and_the_sides_still_shown(
    temporary_statement, problem, network
):
    temporary_statement(Check(3.0, 2.0, hypotheses={"warm": True, "blue": False}))
    row = certify(problem, network, only="T-1").iloc[0]
    assert (row.verdict, row.hypotheses, row.left) == (UNMET, "blue", 3.0)
    assert row.holds is None


def test_an_unmet_hypothesis_shows_its_numbers_in_every_form(temporary_statement, problem, network):
    assumed = {
        "ε small": Hypothesis(5.0, "≤", 1.0),
        "n large": Hypothesis(3, "≥", 2),
        "flow": False,
    }
    temporary_statement(Check(1.0, 2.0, hypotheses=assumed))
    table = certify(problem, network, only="T-1")
    row = table.iloc[0]
    assert (row.verdict, row.hypotheses) == (UNMET, "ε small (5 > 1); flow")
    first, second = row.unmet
    assert (first.hypothesis, first.value, first.relation, first.threshold) == (
        "ε small", 5.0, "≤", 1.0,
    )  # fmt: skip
    assert second.hypothesis == "flow"
    assert np.isnan(second.value)
    assert table.records()[0]["unmet"] == [
        {"hypothesis": "ε small", "value": 5.0, "relation": "≤", "threshold": 1.0},
        {"hypothesis": "flow", "value": None, "relation": "", "threshold": None},
    ]
    assert "ε small (5 > 1); flow" in table.to_markdown()
    assert "ε small (5 > 1); flow" in table.to_latex()


@pytest.mark.parametrize(
    ("value", "relation", "threshold", "met"),
    [
        (1.0, "≤", 1.0, True),
        (1.0 + 1e-12, "≤", 1.0, True),  # rounding
        (1.0 + 1e-6, "≤", 1.0, False),
        (1.0, "<", 1.0, False),
        (1.0, ">", 0.0, True),
        (np.inf, "≤", 1.0, False),
        (10.0, "≥", np.inf, False),
        (np.nan, "≤", 1.0, False),
        (1e-300, "≤", 0.0, False),
    ],
)
def test_a_hypothesis_is_met_by_its_numbers(value, relation, threshold, met):
    assert Hypothesis(value, relation, threshold).met() == met


def test_the_assumptions_of_the_small_start_show_their_numbers(problem, network):
    row = certify(problem, network, only="FM-C2").iloc[0]
    parts = {entry.hypothesis: entry for entry in row.unmet}
    asked = parts["FM-A2, 32 L √ε ≤ 1"]
    epsilon = initialization_scale(network)
    assert asked.value == pytest.approx(32 * network.depth * np.sqrt(epsilon))
    assert asked.threshold == 1.0


def test_a_margin_within_its_tolerance_is_zero(temporary_statement, problem, network):
    temporary_statement(Check(1.0 + 1e-12, 1.0, "below"), Check(1.0, 1.0 + 1e-12, "above"))
    table = certify(problem, network, only="T-1", parts=True)
    assert list(table["margin"]) == [0.0, 0.0]
    assert list(table["verdict"]) == [HOLDS, HOLDS]
    assert np.all(table["tolerance"] > 0)


def test_the_tolerance_is_relative_to_the_scale_and_stated(temporary_statement, problem, network):
    temporary_statement(Check(1000.5, 1000.0, scale=1000.0))
    loose = certify(problem, network, only="T-1", tolerance=1e-3).iloc[0]
    assert (loose.verdict, loose.tolerance) == (HOLDS, 1.0)
    assert certify(problem, network, only="T-1", tolerance=1e-4).iloc[0].verdict == VIOLATED


def _badly_conditioned(condition, noise):
    """Data with singular values from 1 to 1/condition, and a target that needs all of them."""
    rng = np.random.default_rng(5)
    basis, sizes = np.linalg.qr(rng.normal(size=(4, 4)))[0], np.geomspace(1, 1 / condition, 4)
    X = rng.normal(size=(12, 4)) * sizes @ basis.T
    return X, X @ basis @ (rng.normal(size=4) / sizes) + noise * rng.normal(size=12)


@pytest.mark.parametrize("chunks", [False, True])
@pytest.mark.parametrize("at_minimizer", [False, True])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_expanded_risk_is_known_to_the_rounding_of_its_terms(chunks, at_minimizer, noise):
    """R is of size one; Λ‖w*‖², whose rounding it has, is more than a hundred million."""
    X, y = _badly_conditioned(1e6, noise)
    problem = dl.Problem.from_chunks([(X, y)]) if chunks else dl.Problem.from_data(X, y)
    net = dl.Network([at_minimizer * np.asarray(problem.optimum)[None], np.ones((1, 1))])
    assert set(certify(problem, net, only="FM-L8", parts=True)["verdict"]) == {HOLDS}


def test_a_wrong_gap_is_seen_in_badly_conditioned_data(monkeypatch):
    X, y = _badly_conditioned(1e4, 0.1)
    problem = dl.Problem.from_data(X, y)
    gap, net = dl.Problem.gap, dl.Network([np.zeros((1, 4)), np.ones((1, 1))])
    assert set(certify(problem, net, only="FM-L8")["verdict"]) == {HOLDS}
    monkeypatch.setattr(dl.Problem, "gap", lambda *args: 1.001 * gap(*args))
    assert set(certify(problem, net, only="FM-L8")["verdict"]) == {VIOLATED}


def test_what_is_left_of_a_subtraction_is_the_tolerance_of_a_loss(
    temporary_statement, problem, network
):
    """A loss of 7e-14 that started at 40 does not contradict a bound of 1e-77, one of 1e-3 does."""
    known = {"subtracted": 40.0, "condition": 100.0}
    assert registry.tolerance(0.0, **known) == pytest.approx(100 * 100 * 40 * 2.0**-52)
    temporary_statement(
        Check(7e-14, 1e-77, "rounding", **known),
        Check(1e-3, 1e-77, "a loss", **known),
        Check(7e-14, 0.0, "zero", **known),
    )
    table = certify(problem, network, only="T-1", parts=True).set_index("part")
    assert list(table["verdict"]) == [HOLDS, VIOLATED, HOLDS]
    assert table.loc["rounding", "margin"] == 0.0


def test_hypotheses_with_an_open_constant_make_a_claim_measured(
    temporary_statement, problem, network
):
    """The row reports the factor that the run needs, and the largest c it meets the hypotheses."""
    wide = {"m ≥ c(d + q)": Hypothesis(60.0, "≥", 20.0, constant=True), "flow": True}
    temporary_statement(Check(6.0, 2.0, "bound", hypotheses=wide))
    certificate = certify(problem, network, only="T-1")
    row = certificate.iloc[0]
    assert (row.verdict, row.left, row.allowed) == (MEASURED, 3.0, 3.0)
    assert row.part == "bound: smallest factor"
    assert list(certificate.judged["id"]) == ["T-1"]
    own = {
        c: certify(problem, network, only="T-1", constants=Constants(c=c)).iloc[0] for c in (1, 4)
    }
    assert (own[1].verdict, own[1].left, own[1].right) == (VIOLATED, 6.0, 2.0)
    assert (own[4].verdict, own[4].hypotheses) == (UNMET, "m ≥ c(d + q) (60 < 80)")


def test_statements_about_all_products_do_not_apply_behind_a_bottleneck(rng):
    X = rng.normal(size=(20, 4))
    problem = dl.Problem.from_data(X, X @ rng.normal(size=(4, 3)))
    narrow = dl.initialize.gaussian(jax.random.key(0), (4, 1, 3), 0.3)
    table = certify(problem, narrow, only=["X-1", "X-7", "X-8"])
    assert set(table["verdict"]) == {NOT_APPLICABLE}
    assert table["hypotheses"].str.endswith("rank of Θ*, 3; the narrowest has width 1").all()


def test_the_smallest_margin_is_found_along_the_run(temporary_statement, problem, flow_run):
    count = len(flow_run.records["time"])
    margins = np.full((count, 1, 2), 1.0)
    margins[4, 0, 1] = 0.25
    temporary_statement(Check(1 - margins, 1.0, scale=1.0))
    row = certify(problem, flow_run, only="T-1").iloc[0]
    assert row.margin == 0.25
    assert row["at"] == flow_run.records["time"][4]


def test_registering_an_id_twice_or_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="twice"):
        statement("FM-L1", title="", kind="lemma", reference="", formula="")(lambda context: None)
    with pytest.raises(ValueError, match="kind"):
        statement("T-2", title="", kind="guess", reference="", formula="")


def test_statements_that_do_not_apply_say_why(problem, network):
    table = certify(problem, network)
    silent = table[table["verdict"] == NOT_APPLICABLE]
    assert len(silent) > 0
    assert all(silent["hypotheses"] != "")
    assert issubclass(NotApplicable, Exception)


def test_a_true_flow_breaks_no_statement(problem, flow_run):
    table = certify(problem, flow_run)
    assert table.all_hold, table.violated.to_string()
    assert table.set_index("id").loc["FM-L1", "verdict"] == HOLDS


def test_start_and_end_are_seen_even_where_they_were_not_recorded(problem):
    net = dl.initialize.gaussian(jax.random.key(1), (5, 4, 3, 1), 0.3)
    between = gradient_flow(problem, net, until=2.0, at=[0.5, 1.0])
    unrecorded = gradient_flow(problem, net, until=2.0)
    for run in (between, unrecorded):
        table = certify(problem, run)
        assert table.all_hold, table.violated.to_string()
        context = Context(problem, run)
        assert context.times[0] == 0
        assert context.times[-1] == 2
        np.testing.assert_array_equal(context.weights[0][0, 0], net.weights[0])
        np.testing.assert_array_equal(context.weights[0][-1, 0], run.network.weights[0])


def corrupted(run, record, factor):
    """One layer rescaled from a record on, as a bug or a damaged file would do it."""
    weights = list(run.trajectory.weights)
    weights[1] = jnp.asarray(np.asarray(weights[1]).copy()).at[record:].multiply(factor)
    trajectory = jax.tree.unflatten(jax.tree.structure(run.trajectory), weights)
    last = dl.Network([weight[-1] for weight in weights])
    return dataclasses.replace(run, trajectory=trajectory, network=last)


@pytest.mark.parametrize("factor", [1.001, 0.5, -2.0])
def test_a_corrupted_flow_is_caught(problem, flow_run, factor):
    table = certify(problem, corrupted(flow_run, 6, factor))
    assert "FM-L1" in set(table.violated["id"])
    assert table.set_index("id").loc["FM-L1", "at"] >= flow_run.records["time"][6]


@pytest.mark.parametrize("factor", [1.001, 0.5])
def test_a_corrupted_descent_recorded_at_every_step_is_caught(problem, factor):
    net = dl.initialize.gaussian(jax.random.key(1), (5, 4, 3, 1), 0.3)
    run = dl.gradient_descent(problem, net, 0.02, 40, record_every=1)
    assert certify(problem, run).all_hold
    table = certify(problem, corrupted(run, 20, factor), only="FM-L1")
    assert table.iloc[0].verdict == VIOLATED
    assert table.iloc[0]["at"] == 20


def test_flow_statements_are_not_judged_on_descent(problem):
    net = dl.initialize.gaussian(jax.random.key(1), (5, 4, 3, 1), 0.3)
    run = dl.gradient_descent(problem, net, 0.05, 100, record_every=10)
    row = certify(problem, run, only="FM-L1").iloc[0]
    assert (row.verdict, row.hypotheses) == (UNMET, "gradient flow")
    assert row.left > 1e-4  # the drift is reported all the same


def test_a_batch_is_judged_as_its_members_are(problem):
    nets = dl.initialize.gaussian(jax.random.split(jax.random.key(5), 3), (5, 4, 1), 0.4)
    run = dl.gradient_descent(problem, nets, np.array([0.05, 0.1, 5.0]), 200, record_every=20)
    together = certify(problem, run)
    for index in range(3):
        one = dl.gradient_descent(
            problem,
            jax.tree.map(lambda leaf: leaf[index], nets),  # noqa: B023
            float(run.learning_rate[index]),
            200,
            record_every=20,
        )
        alone = certify(problem, one)
        member = together[together["run"] == index]
        assert list(member["verdict"]) == list(alone["verdict"])
        known = np.nan_to_num(alone["tolerance"].to_numpy())
        for side in ("left", "right"):
            first, second = member[side].to_numpy(), alone[side].to_numpy()
            np.testing.assert_array_equal(np.isfinite(first), np.isfinite(second))
            first, second = (np.where(np.isfinite(values), values, 0) for values in (first, second))
            apart = np.abs(first - second)
            assert np.all(apart <= known + 1e-6 * np.abs(second))
    assert run.status[2] == "diverged"  # and did not disturb its neighbors


def test_certificate_becomes_json_and_prints(problem, flow_run):
    table = certify(problem, flow_run)
    rows = json.loads(json.dumps(table.records(), allow_nan=False))
    assert [row["id"] for row in rows] == [s.id for s in STATEMENTS.values() if s.scope == "run"]
    assert rows[0]["left"] == table.iloc[0].left
    assert "FM-L1" in repr(table)
    assert table.summary().loc["FM-L1", HOLDS] == 1


def test_bad_input_is_named(problem, network):
    with pytest.raises(dl.InputError, match="no statement FM-L99"):
        certify(problem, network, only="FM-L99")
    with pytest.raises(dl.InputError, match="tolerance"):
        certify(problem, network, tolerance=-1.0)
    with pytest.raises(dl.InputError, match="linear networks"):
        certify(problem, dl.Network(network.weights, activation="relu"))
    with pytest.raises(dl.InputError, match="without biases"):
        certify(problem, dl.Network(network.weights, biases=(np.ones(4), None)))
    with pytest.raises(dl.InputError, match="float64"):
        certify(problem, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), network))
    with pytest.raises(dl.InputError, match="inputs"):
        certify(problem, dl.initialize.gaussian(jax.random.key(0), (3, 1), 1.0))


def test_with_zero_signal_statements_do_not_apply(rng):
    problem = dl.Problem.from_data(rng.normal(size=(20, 5)), np.zeros(20))
    table = certify(problem, dl.initialize.gaussian(jax.random.key(3), (5, 4, 1), 0.4))
    assert table.all_hold, table.violated.to_string()
    assert table.set_index("id").loc["FM-T1", "verdict"] == NOT_APPLICABLE


def _sharp_minimizer(problem):
    """A minimizer with S = 3 · 2/η for η = 0.1, its gap at rounding, and the run that stayed."""
    network = dl.initialize.rank_one(problem.optimum, 2)
    first, last = (np.asarray(weight) for weight in network.weights)
    S = dl.sharpness(problem, network).value
    stretch = np.sqrt(60 / S)
    while dl.sharpness(problem, dl.Network([first / stretch, last * stretch])).value < 60:
        stretch *= 1.02
    return dl.Network([first / stretch * (1 + 1e-13), last * stretch])


def _stayed(network, steps):
    """A run that claims to have stayed at a network for so many steps, recorded at both ends."""
    trajectory = dl.Network([jnp.stack([weight, weight]) for weight in network.weights])
    return Run(
        network,
        network,
        status="stopped",
        steps=steps,
        records=Records({"step": np.array([0, steps])}),
        trajectory=trajectory,
        learning_rate=0.1,
    )


@pytest.mark.parametrize(("steps", "verdict"), [(5, UNMET), (1000, VIOLATED)])
def test_staying_at_a_sharp_minimizer_is_judged_from_the_run_itself(problem, steps, verdict):
    """A few steps there prove nothing; after a thousand the instability must have shown."""
    row = certify(problem, _stayed(_sharp_minimizer(problem), steps), only="FM-crit").iloc[0]
    assert row.verdict == verdict
    assert (row.hypotheses != "") == (verdict == UNMET)


def test_a_step_that_gains_too_little_breaks_the_descent_lemma(problem):
    net = dl.initialize.gaussian(jax.random.key(1), (5, 4, 1), 0.3)
    run = dl.gradient_descent(problem, net, 0.05, 6, record_every=1)
    assert certify(problem, run, only="Talk-descent").iloc[0].verdict == HOLDS
    # The same records, said to come from a rate twenty times as small times the true gradient.
    states = [np.asarray(weight).copy() for weight in run.trajectory.weights]
    for weight in states:
        weight[1:] = weight[:1] + 0.1 * (weight[1:] - weight[:1])
    slow = dataclasses.replace(run, trajectory=dl.Network([jnp.asarray(w) for w in states]))
    assert certify(problem, slow, only="Talk-descent").iloc[0].verdict == VIOLATED


def test_a_detour_breaks_the_bound_on_the_path(problem):
    """Records that jump back and forth are a path that is too long for FM-L7."""
    net = dl.initialize.zero_layer(jax.random.key(1), (5, 4, 1), 0.05)
    run = gradient_flow(problem, net, until=30.0, record_every=0.5)
    table = certify(problem, run, only="FM-L7", parts=True)
    assert list(table["verdict"]) == [HOLDS, HOLDS]
    states = [np.asarray(weight).copy() for weight in run.trajectory.weights]
    states[0][3::2] += 1e4
    bent = dataclasses.replace(run, trajectory=dl.Network([jnp.asarray(w) for w in states]))
    table = certify(problem, bent, only="FM-L7", parts=True).set_index("part")
    assert table.loc["path length", "verdict"] == VIOLATED


def test_the_branches_of_tiny_layers_are_known_to_the_digits_of_one(problem):
    """I + (W_k − I) is W_k up to ε, which is not small beside layers of size 1e-9."""
    net = dl.initialize.gaussian(jax.random.key(0), (5, 5, 5), 1e-9)
    table = certify(problem, dl.Network(net.weights, readout=np.ones(5)), only="Talk-res")
    assert set(table["verdict"]) == {HOLDS}


def test_numbers_beyond_float64_judge_nothing(problem):
    """Weights of 1e80 are finite, their products are not: no verdict, and no warning either."""
    net = dl.Network([1e80 * jnp.ones((5, 5)), jnp.ones((5, 5)), 1e80 * jnp.ones((1, 5))])
    table = certify(problem, net).table
    beyond = table["hypotheses"] == "its numbers leave the range of float64"
    assert beyond.any()
    assert set(table["verdict"][beyond]) == {NOT_APPLICABLE}
    assert VIOLATED not in set(table["verdict"])


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.5, "0.5 < 1"), (1 - 3e-8, "0.99999997 < 1"), (1 - 2**-40, "0.99999999999909051 < 1")],
)
def test_the_numbers_of_an_unmet_hypothesis_are_told_apart(value, shown):
    assert str(registry.Unmet("‖w*‖ ≥ 1", value, "≥", 1.0)) == f"‖w*‖ ≥ 1 ({shown})"
