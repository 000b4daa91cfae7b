import dataclasses
import json

import jax
import pytest

import deeplin as dl
from deeplin.certificates.statements import STATEMENTS
from deeplin.dynamics import gradient_flow
from deeplin.dynamics.saved import save_run


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


def test_a_saved_run_is_certified(command, saved):
    code, out, err = command("certify", saved[0])
    assert code == 0, err
    assert "neighboring layers that gradient flow conserves" in " ".join(out.split())
    assert "FM-L1" not in out
    assert "FM-L1" in command("certify", saved[0], "--details")[1]


def test_a_corrupted_run_exits_with_one(command, saved):
    code, out, _ = command("certify", saved[1], "--json", "--only", "FM-L1")
    assert code == 1
    assert [(row["id"], row["verdict"]) for row in json.loads(out)] == [("FM-L1", "violated")]


@pytest.mark.parametrize(
    "options", [["--start", "small"], ["--start", "residual", "--learning-rate", "0.05"]]
)
def test_a_fresh_run_is_certified_as_json(command, options):
    code, out, err = command("certify", "--depth", "3", "--json", *options)
    assert code == 0, err
    assert [row["id"] for row in json.loads(out)] == [
        name for name, entry in STATEMENTS.items() if entry.scope == "run"
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere.npz"],
        ["--depth", "0"],
        ["--start", "lucky"],
        ["--learning-rate", "-1"],
        ["--only", "FM-L99"],
    ],
)
def test_bad_input_exits_with_two(command, arguments):
    assert command("certify", *arguments)[0] == 2
