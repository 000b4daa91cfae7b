import dataclasses
import json

import jax
import pytest
from typer.testing import CliRunner

import deeplin as dl
from deeplin.cli import app, main
from deeplin.dynamics import gradient_flow
from deeplin.dynamics.saved import save_run
from deeplin.theory import STATEMENTS

runner = CliRunner()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A true run and a corrupted one, as `deeplin train` would keep them."""
    folder = tmp_path_factory.mktemp("runs")
    problem = dl.problems.synthetic.flat_minima(seed=0).problem
    net = dl.initialize.gaussian(jax.random.key(0), (5, 5, 1), 0.3)
    run = gradient_flow(problem, net, until=4.0, record_every=0.5)
    damaged = jax.tree.map(lambda leaf: leaf, run.trajectory)
    weights = (damaged.weights[0].at[4:].multiply(1.5), damaged.weights[1])
    damaged = jax.tree.unflatten(jax.tree.structure(damaged), weights)
    bad = dataclasses.replace(run, trajectory=damaged)
    return (
        save_run(folder / "good.npz", problem, run),
        save_run(folder / "bad.npz", problem, bad),
    )


def test_a_saved_run_is_certified(saved):
    answer = runner.invoke(app, ["certify", str(saved[0])])
    assert answer.exit_code == 0, answer.output
    assert "FM-L1" in answer.output


def test_a_corrupted_run_exits_with_one(saved):
    answer = runner.invoke(app, ["certify", str(saved[1]), "--json", "--only", "FM-L1"])
    assert answer.exit_code == 1
    rows = json.loads(answer.output)
    assert [(row["id"], row["verdict"]) for row in rows] == [("FM-L1", "violated")]


@pytest.mark.parametrize(
    "options", [["--start", "small"], ["--start", "residual", "--learning-rate", "0.05"]]
)
def test_a_fresh_run_is_certified_as_json(options):
    answer = runner.invoke(app, ["certify", "--depth", "3", "--json", *options])
    assert answer.exit_code == 0, answer.output
    rows = json.loads(answer.output)
    assert [row["id"] for row in rows] == list(STATEMENTS)


@pytest.mark.parametrize(
    "arguments",
    [
        ["certify", "nowhere.npz"],
        ["certify", "--depth", "0"],
        ["certify", "--start", "lucky"],
        ["certify", "--learning-rate", "-1"],
        ["certify", "--only", "FM-L99"],
        ["certify", "--tolerance", "-1"],
        ["certify", "--seed", "-4"],
    ],
)
def test_bad_input_exits_with_two_and_one_sentence(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err
