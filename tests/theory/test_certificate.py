import dataclasses
import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics import gradient_flow
from deeplin.theory import STATEMENTS, Check, NotApplicable, certify, registry
from deeplin.theory.certificate import HOLDS, NOT_APPLICABLE, UNMET, VIOLATED
from deeplin.theory.context import Context
from deeplin.theory.registry import statement

DOCS = Path(__file__).parents[2] / "docs"

FLAT_MINIMA = ["FM-grad", "FM-sharp", "FM-L8", "FM-T1", "FM-T2", "FM-rescale", "FM-crit", "FM-toy"]
FLAT_MINIMA += ["FM-A1", "FM-L1", "FM-ε", "FM-L2", "FM-T3", "FM-L7", "FM-A2", "FM-C1", "FM-C2"]
FLAT_MINIMA += ["FM-grad-sandwich", "FM-L3", "FM-L6", "FM-L9", "FM-T4", "FM-T5", "FM-C3"]
FLAT_MINIMA += ["Talk-res", "Talk-log", "X-1", "X-2", "X-3", "X-4", "X-5", "X-6"]


@pytest.fixture
def temporary_statement(monkeypatch):
    """Register a statement for one test; its evaluation returns the checks it is given."""
    monkeypatch.setattr(registry, "_STATEMENTS", dict(registry.STATEMENTS))

    def register(*checks, kind="lemma"):
        @statement("T-1", title="test", kind=kind, reference="none", formula="")
        def evaluate(context):
            return list(checks)

    return register


@pytest.fixture
def network():
    return dl.initialize.gaussian(jax.random.key(3), (5, 4, 1), 0.4)


@pytest.fixture
def flow_run(problem):
    net = dl.initialize.gaussian(jax.random.key(1), (5, 4, 3, 1), 0.3)
    return gradient_flow(problem, net, until=6.0, record_every=0.5)


def test_every_statement_of_the_specification_is_registered():
    assert set(FLAT_MINIMA) <= set(STATEMENTS)
    for id, entry in STATEMENTS.items():
        assert entry.id == id
        assert entry.title
        assert entry.reference


def test_map_lists_exactly_the_registered_statements():
    text = (DOCS / "map.md").read_text()
    listed = re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE)
    assert sorted(listed) == sorted(STATEMENTS)


def test_map_names_functions_and_tests_that_exist():
    root = DOCS.parent
    for line in (DOCS / "map.md").read_text().splitlines():
        for path, name in re.findall(r"`((?:tests|src)/[\w/]+\.py)(?:::(\w+))?`", line):
            assert (root / path).exists(), path
            assert not name or f"def {name}(" in (root / path).read_text(), (path, name)


def test_one_row_for_each_statement(problem, network):
    table = certify(problem, network)
    assert list(table["id"]) == list(STATEMENTS)
    for column in ("verdict", "holds", "left", "right", "margin", "tolerance", "at", "hypotheses"):
        assert column in table.columns
    assert set(table["verdict"]) <= {HOLDS, VIOLATED, UNMET, NOT_APPLICABLE}


def test_a_true_claim_holds_and_a_false_one_is_violated(temporary_statement, problem, network):
    temporary_statement(Check(1.0, 2.0, "true"), Check(3.0, 2.0, "false"))
    row = certify(problem, network, only="T-1").iloc[0]
    assert (row.verdict, row.part, row.margin) == (VIOLATED, "false", -1.0)
    assert row.holds is False
    every = certify(problem, network, only="T-1", parts=True)
    assert list(every["verdict"]) == [HOLDS, VIOLATED]


def test_not_a_number_is_never_a_proof(temporary_statement, problem, network):
    temporary_statement(Check(np.nan, 2.0))
    assert certify(problem, network, only="T-1").iloc[0].verdict == VIOLATED


def test_unmet_hypotheses_are_named_and_the_sides_still_shown(
    temporary_statement, problem, network
):
    temporary_statement(Check(3.0, 2.0, hypotheses={"warm": True, "blue": False}))
    row = certify(problem, network, only="T-1").iloc[0]
    assert (row.verdict, row.hypotheses, row.left) == (UNMET, "blue", 3.0)
    assert row.holds is None


def test_a_failed_assumption_is_not_a_violation(temporary_statement, problem, network):
    temporary_statement(Check(3.0, 2.0), kind="assumption")
    assert certify(problem, network, only="T-1").iloc[0].verdict == UNMET


def test_a_claim_that_applies_nowhere_is_not_applicable(temporary_statement, problem, network):
    temporary_statement(Check(3.0, 2.0, where=False))
    row = certify(problem, network, only="T-1").iloc[0]
    assert row.verdict == NOT_APPLICABLE
    assert np.isnan(row.left)


def test_the_tolerance_is_relative_to_the_scale_and_stated(temporary_statement, problem, network):
    temporary_statement(Check(1000.5, 1000.0, scale=1000.0))
    loose = certify(problem, network, only="T-1", tolerance=1e-3).iloc[0]
    assert (loose.verdict, loose.tolerance) == (HOLDS, 1.0)
    assert certify(problem, network, only="T-1", tolerance=1e-4).iloc[0].verdict == VIOLATED


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
        assert context.moments[0] == 0
        assert context.moments[-1] == 2
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
        shown = ["left", "right"]
        big = member[shown].abs().max(axis=1).to_numpy() > 1e-9
        np.testing.assert_allclose(
            member[shown].to_numpy()[big], alone[shown].to_numpy()[big], rtol=1e-6
        )
    assert run.status[2] == "diverged"  # and did not disturb its neighbours


def test_certificate_becomes_json_and_prints(problem, flow_run):
    table = certify(problem, flow_run)
    rows = json.loads(json.dumps(table.records(), allow_nan=False))
    assert [row["id"] for row in rows] == list(STATEMENTS)
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
    with pytest.raises(dl.InputError, match="float64"):
        certify(problem, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), network))
    with pytest.raises(dl.InputError, match="inputs"):
        certify(problem, dl.initialize.gaussian(jax.random.key(0), (3, 1), 1.0))


def test_zero_signal_leaves_statements_silent_not_broken(rng):
    problem = dl.Problem.from_data(rng.normal(size=(20, 5)), np.zeros(20))
    table = certify(problem, dl.initialize.gaussian(jax.random.key(3), (5, 4, 1), 0.4))
    assert table.all_hold, table.violated.to_string()
    assert table.set_index("id").loc["FM-T1", "verdict"] == NOT_APPLICABLE
