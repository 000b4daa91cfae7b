"""`deeplin train`: the prediction, whether it was right, and a run that can be read again."""

import dataclasses
import inspect
import io
import json
import re

import jax
import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.linear_model import LinearRegression

import deeplin as dl
from deeplin.cli import tables
from deeplin.cli.tables import LiveTraining, TableOptions, Training
from deeplin.dynamics.saved import load_run
from deeplin.hessian import sharpness
from deeplin.training import TrainingSpec, advise, descend, starting_network
from deeplin.training.scores import folds
from deeplin.training.trials import INITIALIZATIONS


@pytest.fixture
def csv(rng, tmp_path):
    frame = pd.DataFrame(rng.normal(size=(60, 3)) * [1, 20, 1], columns=["a", "b", "c"])
    frame["y"] = frame @ [1.0, 0.1, -2.0] + rng.normal(size=60) + 5
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


def test_training_settles_as_predicted_and_is_kept(csv, command, tmp_path):
    out = tmp_path / "run.npz"
    options = ["--depth", 3, "--out", out, "--json"]
    code, text, _ = command("train", csv, "--target", "y", *options)
    report = json.loads(text)
    assert code == 0
    assert report["status"] == "converged"
    assert report["minimal_sharpness"] <= report["sharpness"] * (1 + 1e-6)
    assert report["sharpness"] <= report["largest_stable_sharpness"] == 2 / report["learning_rate"]
    frame = pd.read_csv(csv)
    model = LinearRegression().fit(frame[["a", "b", "c"]], frame["y"])
    np.testing.assert_allclose(report["coefficients"][0], model.coef_, rtol=1e-3)
    np.testing.assert_allclose(report["intercepts"], model.intercept_, rtol=1e-3)
    problem, run = load_run(out)
    assert report["sharpness"] == pytest.approx(float(sharpness(problem, run.network).value))
    assert len(run.trajectory.weights[0]) == len(run.records["sharpness"])
    manifest = json.loads(out.with_suffix(".json").read_text())
    assert manifest["settings"]["depth"] == 3
    assert manifest["sharpness"] == report["sharpness"]
    statements = ["--only", "FM-crit", "--only", "X-2"]
    code, text, _ = command("certify", out, *statements, "--json")
    assert code == 0
    assert {row["id"]: row["verdict"] for row in json.loads(text)} == {
        "FM-crit": "holds",
        "X-2": "holds",
    }


def test_a_run_that_is_not_finished_says_how_much_it_has_learned(csv, command, tmp_path):
    arguments = ["--depth", 3, "--steps", 4, "--out", tmp_path / "run.npz"]
    code, text, _ = command("train", csv, "--target", "y", *arguments)
    assert code == 1
    problem, run = load_run(tmp_path / "run.npz")
    share = 1 - float(run.evidence["gap"]) / problem.zero_gap
    said = f"Not finished: .* It has learned {share:.2%} of what least squares explains."
    assert re.match(said, " ".join(text.split()))


def test_a_rate_above_the_critical_one_does_not_settle(csv, command, tmp_path):
    prepared = ["--out", tmp_path / "run.npz"]
    code, text, _ = command(
        "train", csv, "--target", "y", "--depth", 3, *prepared, "--json", "--steps", 100
    )
    critical = json.loads(text)["critical_learning_rate"]
    rate = ["--learning-rate", 1.2 * critical, "--steps", 3000]
    older = (tmp_path / "run.npz").read_bytes()
    code, _, err = command("train", csv, "--target", "y", "--depth", 3, *prepared, *rate)
    assert code == 2
    assert "holds a run already" in err
    assert (tmp_path / "run.npz").read_bytes() == older
    rate.append("--overwrite")
    code, text, _ = command("train", csv, "--target", "y", "--depth", 3, *prepared, *rate)
    assert code == 1
    assert "from almost no start does training settle" in " ".join(text.split())


def test_several_targets_are_trained_together(csv, command, tmp_path):
    targets = ["--target", "y", "--target", "a", "--out", tmp_path / "two.npz"]
    code, text, _ = command("train", csv, *targets, "--depth", 2, "--json")
    report = json.loads(text)
    assert code == 0
    assert report["minimal_sharpness"] <= report["sharpness"] * (1 + 1e-6)
    assert np.shape(report["coefficients"]) == (2, 2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--learning-rate", "fast"], "learning-rate is 'fast'"),
        (["--learning-rate", "-1"], "learning-rate"),
        (["--depth", "0"], "depth"),
        (["--steps", "0"], "steps"),
        (["--initialization", "ones"], "initialization is 'ones'"),
        (["--out", "run.pkl"], ".npz"),
        (["--momentum", "1"], "momentum"),
    ],
)
def test_bad_requests_exit_with_2_and_leave_nothing(
    csv, command, monkeypatch, tmp_path, options, sentence
):
    monkeypatch.chdir(tmp_path)
    code, out, err = command("train", csv, "--target", "y", *options)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert [file.name for file in tmp_path.iterdir()] == ["table.csv"]


@pytest.mark.parametrize("initialization", INITIALIZATIONS)
def test_every_start_fits_the_problem(problem, initialization):
    net = starting_network(problem, jax.random.key(0), depth=3, initialization=initialization)
    dl.networks.network.check_fits(problem, net)
    assert net.depth == 3


def test_an_automatic_rate_is_halved_until_a_sharp_start_does_not_diverge(problem):
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 5, 1), scale=2.0)
    tried = []
    run = descend(problem, net, "auto", 20_000, announce=tried.append)
    assert run.status != "diverged"
    assert run.evidence["halvings"] == len(tried) - 1 > 0
    assert tried[0] == advise(problem, net.depth).learning_rate
    assert run.learning_rate == tried[-1] == tried[0] / 2 ** (len(tried) - 1)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_line_shows_loss_and_sharpness_against_the_limit_on_a_terminal(terminal):
    console = Console(file=io.StringIO(), width=120, force_terminal=terminal, color_system=None)
    with LiveTraining(steps=10, console=console) as live:
        live.restart(0.5)
        live.watch(2, {"risk": np.array([0.01]), "sharpness": np.array([5.0])})
    line = "step 2 of 10: loss 0.01, sharpness 5, which is 1.250 times 2/η at learning rate η = 0.5"
    assert (line in console.file.getvalue()) == terminal
    assert bool(console.file.getvalue()) == terminal


def test_a_run_predicts_new_rows_as_least_squares_does(csv, command, tmp_path):
    out = tmp_path / "run.npz"
    code, text, _ = command("train", csv, "--target", "y", "--depth", 2, "--out", out)
    assert code == 0
    assert "y = " in text
    assert f"deeplin predict {out}" in text
    frame = pd.read_csv(csv)
    model = LinearRegression().fit(frame[["a", "b", "c"]], frame["y"])
    new = frame[["c", "a", "b"]].head(7) + 1
    new.to_csv(tmp_path / "new.csv", index=False)
    code, text, _ = command("predict", out, tmp_path / "new.csv")
    assert code == 0
    found = pd.read_csv(io.StringIO(text))
    np.testing.assert_allclose(found["y"], model.predict(new[["a", "b", "c"]]), rtol=1e-3)
    target = tmp_path / "predictions.csv"
    assert command("predict", out, tmp_path / "new.csv", "--out", target)[0] == 0
    pd.testing.assert_frame_equal(pd.read_csv(target), found)


def test_what_cannot_be_predicted_gets_one_sentence_and_costs_no_file(csv, command, tmp_path):
    out = tmp_path / "run.npz"
    assert command("train", csv, "--target", "y", "--depth", 2, "--out", out)[0] == 0
    lacking = tmp_path / "lacking.csv"
    pd.read_csv(csv)[["a", "b"]].to_csv(lacking, index=False)
    target = tmp_path / "kept.csv"
    target.write_text("precious")
    code, _, err = command("predict", out, lacking, "--out", target)
    assert code == 2
    assert "no column 'c'" in err
    assert target.read_text() == "precious"
    out.with_suffix(".json").unlink()  # the run itself knows its table
    frame = pd.read_csv(csv)
    frame.loc[4, "b"] = np.nan
    frame.to_csv(lacking, index=False)
    code, text, err = command("predict", out, lacking)
    assert code == 0
    assert text.splitlines()[5] == '""'
    assert "1 of 60 rows is not predicted because a value is missing: row 5." in err
    code, text, _ = command("predict", out, lacking, "--missing", "drop")
    assert pd.read_csv(io.StringIO(text))["row"].tolist() == [k for k in range(1, 61) if k != 5]
    code, _, err = command("predict", out, lacking, "--missing", "refuse", "--out", target)
    assert (code, target.read_text()) == (2, "precious")
    code, text, _ = command("predict", out, lacking, "--missing", "refuse")
    assert (code, text) == (2, "")


@pytest.mark.parametrize(
    "options",
    [
        ["--momentum", 0.9],
        ["--momentum", 0.5, "--nesterov"],
        ["--weight-decay", 1e-3],
        ["--batch-size", 20, "--steps", 2000],
        ["--reduction", "sum", "--half"],
    ],
)
def test_every_optimizer_trains_at_its_own_rate(csv, command, tmp_path, options):
    arguments = ["--depth", 3, "--out", tmp_path / "run.npz", "--json"]
    code, text, err = command("train", csv, "--target", "y", *arguments, *options)
    assert code == 0, err
    report = json.loads(text)
    assert report["learning_rate"] < report["critical_learning_rate"]
    assert report["r_squared"]["y"] > 0.7
    assert report["left_out"]["network"]["y"] < report["r_squared"]["y"] + 0.01


def test_the_network_itself_is_scored_on_rows_left_out(csv, command, tmp_path):
    """Least squares beside it is that of scikit-learn on the same folds; a collapsed one has 0."""
    options = ["--depth", 2, "--overwrite", "--out", tmp_path / "run.npz"]
    _, text, _ = command("train", csv, "--target", "y", *options, "--json")
    found = json.loads(text)["left_out"]
    frame = pd.read_csv(csv)
    inputs, target = frame[["a", "b", "c"]].to_numpy(), frame["y"].to_numpy()
    errors, mean = np.empty(60), np.empty(60)
    for train, test in folds(60, seed=0):
        model = LinearRegression().fit(inputs[train], target[train])
        errors[test] = target[test] - model.predict(inputs[test])
        mean[test] = target[test] - target[train].mean()
    expected = 1 - np.mean(errors**2) / np.mean(mean**2)
    assert found["least_squares"]["y"] == pytest.approx(expected, rel=1e-8)
    assert found["network"]["y"] == pytest.approx(expected, rel=1e-3)
    _, text, _ = command("train", csv, "--target", "y", *options, "--weight-decay", 10, "--json")
    assert json.loads(text)["left_out"]["network"]["y"] == pytest.approx(0, abs=1e-6)
    _, text, _ = command("train", csv, "--target", "y", *options, "--test-share", 0.25, "--json")
    assert json.loads(text)["left_out"]["method"] == "15 rows held out of training"


def test_the_command_line_has_the_options_of_python():
    """Names and defaults of `TrainingSpec`, and the names of `dl.diagnose` and `dl.train`."""
    fields = {field.name: field.default for field in dataclasses.fields(TrainingSpec)}
    assert Training._field_defaults == fields
    for command, function in ((tables.diagnose, dl.diagnose), (tables.train, dl.train)):
        own = set(inspect.signature(command).parameters) - set(fields)
        own -= {*TableOptions._fields, "source", "out", "overwrite", "as_json", "details"}
        assert own - {"test_share"} <= set(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", ["torch", "xavier"])
def test_one_start_has_one_rate_wherever_it_is_asked_for(csv, command, tmp_path, name):
    asked = [csv, "--target", "y", "--depth", 2, "--init", name, "--json"]
    _, text, _ = command("diagnose", *asked)
    found = json.loads(text)
    rate = found["learning_rate"]
    assert rate == found["depths"][0]["learning_rate"]
    assert f"Use learning rate {rate:.3g}" in found["answer"]
    assert dl.diagnose(str(csv), 2, target="y", initialization=name).learning_rate == rate
    code, text, _ = command("train", *asked, "--out", tmp_path / "run.npz")
    assert (code, json.loads(text)["learning_rate"]) == (0, rate)
    run = dl.train(str(csv), 2, target="y", initialization=name)
    assert run.learning_rate == rate
    _, text, _ = command("diagnose", *asked[:3], "--depth", "2,3", "--init", name, "--json")
    assert json.loads(text)["learning_rate"][0] == rate


def test_the_rate_does_not_change_when_rows_are_held_out(rng, command, tmp_path):
    frame = pd.DataFrame(rng.normal(size=(1000, 3)), columns=["a", "b", "c"])
    frame.assign(y=frame.sum(axis=1) + rng.normal(size=1000)).to_csv(tmp_path / "t.csv")
    asked = [tmp_path / "t.csv", "--target", "y", "--depth", 2, "--init", "torch", "--json"]
    rates = []
    for name, more in (("diagnose", []), ("train", ["--out", tmp_path / "run.npz"])):
        _, text, _ = command(name, *asked, *more)
        rates.append(json.loads(text)["learning_rate"])
    assert rates[0] == rates[1]
    assert json.loads(text)["left_out"]["method"] == "200 rows held out of training"
