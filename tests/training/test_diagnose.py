"""A diagnosis says what the theory says, in numbers and words."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_linnerud
from sklearn.linear_model import LinearRegression, Ridge

import deeplin as dl
from deeplin.tables.reading import read_problem
from deeplin.training import advise, advise_start
from deeplin.training.diagnosis import diagnose
from deeplin.training.overfitting import ridge_left_out
from deeplin.training.text import diagnosis_text


@pytest.fixture
def csv(rng, tmp_path):
    frame = pd.DataFrame(rng.normal(size=(60, 4)), columns=["a", "b", "<b>c</b>", "d"])
    frame["y"] = frame @ [3.0, 1.0, -2.0, 0.0] + 0.1 * rng.normal(size=60)
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


@pytest.fixture
def wide_csv(rng, tmp_path):
    X = rng.normal(size=(30, 400)) * np.sqrt(np.r_[np.ones(3), np.full(397, 0.01)])
    frame = pd.DataFrame(X).rename(columns=str).assign(y=X[:, 0] + 0.1 * rng.normal(size=30))
    frame.to_parquet(tmp_path / "wide.parquet")
    return tmp_path / "wide.parquet"


def test_every_depth_carries_the_exact_values(problem):
    found = diagnose(problem, [1, 2, 10], initialization=None)
    for row in found.depths.itertuples():
        exact = dl.theory.minimal_sharpness(problem, row.depth)
        assert (row.lower, row.minimal_sharpness, row.upper) == (
            exact.lower,
            exact.exact,
            exact.upper,
        )
        assert row.critical_learning_rate == 2 / exact.exact
        assert row.balanced_sharpness == dl.theory.balanced_sharpness(problem, row.depth)


def test_interpolation_is_judged_where_inputs_outnumber_samples(wide_csv):
    reading = read_problem(wide_csv, "y", intercept=True)
    found = diagnose(reading, [2])
    assert found.overfitting.verdict == "benign"
    text = diagnosis_text(found)
    assert "interpolation is benign here" in " ".join(text.split())
    assert found.as_json()["overfitting"]["verdict"] == "benign"


def test_a_table_is_standardized_and_dependent_inputs_are_named(rng):
    area = rng.normal(100, 30, size=80)
    frame = pd.DataFrame({"area": area, "feet": 10.764 * area + 0.01 * rng.normal(size=80)})
    frame["rooms"] = rng.normal(size=80)
    frame["price"] = 3000 * area + 1e4 * frame["rooms"] + 1e4 * rng.normal(size=80)
    found = dl.diagnose(frame, 2, target="price", biases=False)
    trials = found.advice[0].trials
    assert "on standardized columns (StandardScaler)" in found.answer
    assert f"learning rate {found.learning_rate:.3g} at depth 2" in found.answer
    assert trials.learned == trials.starts
    assert found.dependent == ("area", "feet")
    scaled = read_problem(frame, "price", standardize=True, scale_targets=True).problem
    assert found.learning_rate == advise_start(scaled, 2, biases=False).learning_rate
    raw = found.raw[0]
    plain = read_problem(frame, "price", intercept=True).problem
    assert raw.critical_learning_rate == pytest.approx(
        dl.theory.critical_learning_rate(plain, 2), rel=1e-6
    )
    details = " ".join(diagnosis_text(found, details=True).split())
    assert f"(--raw) the learning rate at depth 2 would be {raw.learning_rate:.3g}" in details
    as_is = dl.diagnose(frame, 2, target="price", standardize=False, initialization=None)
    assert "Standardize (leave --raw out)" in str(as_is)
    assert as_is.raw == ()


def test_an_offset_of_the_target_is_subtracted_and_said(csv, command):
    frame = pd.read_csv(csv)
    frame["y"] += 1000
    frame.to_csv(csv, index=False)
    code, out, _ = command("diagnose", csv, "--target", "y", "--depth", "2", "--json")
    values = json.loads(out)
    assert code == 0
    assert values["r_squared"]["y"] > 0.9
    assert any("means of the targets were subtracted" in note for note in values["notes"])
    arguments = ["--depth", "2", "--json", "--raw", "--no-intercept", "--init", "none"]
    _, out, _ = command("diagnose", csv, "--target", "y", *arguments)
    assert json.loads(out)["r_squared"]["y"] < 0


def test_no_signal_and_no_depth_are_refused(rng):
    X = rng.normal(size=(20, 3))
    with pytest.raises(dl.InputError, match="w\\* is zero"):
        diagnose(dl.Problem.from_data(X, np.zeros(20)))
    with pytest.raises(dl.InputError, match="no depth"):
        diagnose(dl.Problem.from_data(X, X[:, 0]), [])


def test_the_command_prints_text_or_json(csv, command):
    code, out, _ = command("diagnose", csv, "--target", "y", "--depth", "2,4")
    assert code == 0
    problem = read_problem(csv, "y", standardize=True, scale_targets=True).problem
    rates = [f"{advise_start(problem, depth).learning_rate:.3g}" for depth in (2, 4)]
    first = " ".join(out.split("\n\n")[0].split())
    assert first.startswith(f"Use learning rate {rates[0]} at depth 2 and {rates[1]} at depth 4")
    assert "PyTorch's default start" in first
    assert "full-batch gradient descent on the mean squared error (no ½)" in first
    assert f"{dl.theory.critical_learning_rate(problem, 4):.3g}" in out
    assert max(map(len, out.splitlines())) <= 80
    assert not re.search("Σ̂|S_bal|S_min|R_0|FM-", out)
    details = ["--depth", "2", "--details", "--init", "none"]
    _, out, _ = command("diagnose", csv, "--target", "y", *details)
    assert "S_bal is the sharpness where small starts end" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    arguments = ["--depth", "2,10", "--init", "none", "--json"]
    code, out, _ = command("diagnose", csv, "--target", "y", *arguments)
    assert code == 0
    values = json.loads(out)
    assert values["depths"][1]["critical_learning_rate"] == pytest.approx(
        dl.theory.critical_learning_rate(problem, 10), rel=1e-12
    )
    assert any("standardized" in note for note in values["notes"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--target", "price"], "no column 'price'"),
        (["--target", "y", "--init", "ones"], "initialization is 'ones'"),
        (["--target", "y", "--depth", "0"], "depth is '0'"),
        (["--target", "y", "--depth", "few"], "depth is 'few'"),
        (["--target", "y", "--depth", "9..2"], "depth is '9..2'"),
        (["--target", "y", "--reduction", "median"], "'mean' or 'sum'"),
        (["--target", "y", "--momentum", "1"], "momentum"),
        (["--target", "y", "--batch-size", "0"], "batch_size"),
        (["--target", "y", "--weight-decay", "-1"], "weight_decay"),
        (["--target", "y", "--nesterov"], "needs momentum"),
        (["--target", "y", "--missing", "guess"], "'refuse', 'drop' or 'median'"),
    ],
)
def test_bad_requests_exit_with_2_and_one_sentence(csv, command, monkeypatch, arguments, sentence):
    monkeypatch.chdir(csv.parent)
    code, out, err = command("diagnose", csv, *arguments)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_several_targets_are_answered_together(csv, command):
    arguments = ["--depth", "3", "--json", "--raw", "--no-intercept", "--no-bias"]
    code, out, _ = command("diagnose", csv, "--target", "y", "--target", "a", *arguments)
    values = json.loads(out)
    assert code == 0
    reading = read_problem(csv, ["y", "a"])
    joint = dl.theory.critical_learning_rate(reading.problem, 3)
    assert values["depths"][0]["critical_learning_rate"] == pytest.approx(joint, rel=1e-12)
    frame = pd.read_csv(csv)
    inputs = frame[list(reading.inputs)].to_numpy()
    for name in ("y", "a"):
        model = LinearRegression(fit_intercept=False).fit(inputs, frame[name])
        assert values["r_squared"][name] == pytest.approx(model.score(inputs, frame[name]))


def test_few_true_inputs_among_many_make_interpolation_harmful(rng):
    """60 rows of 400 inputs, five of which count: R² near 0 by interpolation, 0.9 by five."""
    X = rng.normal(size=(60, 400))
    y = X[:, :5] @ [3.0, -2.0, 2.0, 1.5, -1.0] + 0.5 * rng.normal(size=60)
    problem = dl.Problem.from_data(X, y)
    found = diagnose(problem, [2], initialization=None)
    over = found.overfitting
    assert over.verdict == "harmful"
    assert over.selected_error < 0.2 * over.zero_error
    assert over.leave_one_out > 0.5 * over.zero_error
    text = diagnosis_text(found)
    assert all(name in text for name in ("predicting the mean", "ridge", "fitting every row"))


def test_it_is_said_when_standardizing_made_interpolation_worse(rng):
    """Three strong inputs carry the signal; standardized they are lost among 400 others."""
    X = rng.normal(size=(50, 403)) * np.r_[5.0, 5.0, 5.0, np.full(400, 0.1)]
    frame = pd.DataFrame(X).add_prefix("x").assign(y=X[:, :3].sum(axis=1) + rng.normal(size=50))
    standardized = {"standardize": True, "scale_targets": True}
    found = diagnose(read_problem(frame, "y", **standardized), [2], initialization=None)
    over, said = found.overfitting, diagnosis_text(found, width=10_000)
    before = diagnose(read_problem(frame, "y", intercept=True), [2], initialization=None)
    plain = before.overfitting
    assert over.unstandardized_error == pytest.approx(
        plain.leave_one_out / plain.zero_error, rel=1e-8
    )
    assert over.unstandardized_error < 0.2 * over.leave_one_out
    assert "Standardizing made it worse" in said
    assert "not standardized" in said
    assert "Standardizing made it worse" not in diagnosis_text(before)
    # inputs of equal size lose nothing
    frame = pd.DataFrame(rng.normal(size=(50, 100))).add_prefix("x")
    frame["y"] = frame.sum(axis=1)
    found = diagnose(read_problem(frame, "y", **standardized), [2], initialization=None)
    assert "Standardizing made it worse" not in diagnosis_text(found)


def test_the_tuned_ridge_is_that_of_scikit_learn(rng):
    X = rng.normal(size=(40, 60))
    y = X[:, :10].sum(axis=1) + rng.normal(size=40)
    penalty, errors = ridge_left_out(dl.Problem.from_data(X, y))
    left = np.empty(40)
    for i in range(40):
        keep = np.arange(40) != i
        model = Ridge(alpha=40 * penalty, fit_intercept=False).fit(X[keep], y[keep])
        left[i] = y[i] - model.predict(X[i : i + 1])[0]
    # rounding of 1 − H, relative to errors that cancel nothing
    np.testing.assert_allclose(errors[:, 0], left, atol=1e-8 * np.abs(left).max())


def test_explained_variance_is_that_of_scikit_learn(csv):
    reading = read_problem(csv, "y", standardize=True)
    found = diagnose(reading, [2], initialization=None)
    frame = pd.read_csv(csv)
    inputs = frame[list(reading.inputs)]
    score = LinearRegression().fit(inputs, frame["y"]).score(inputs, frame["y"])
    assert found.r_squared["y"] == pytest.approx(score, rel=1e-10)
    moments = reading.problem
    streamed = dl.Problem.from_moments(
        moments.covariance,
        moments.inputs.T @ moments.targets / moments.samples,
        moments.target_moment,
        samples=moments.samples,
    )
    assert diagnose(streamed, [2], initialization=None).r_squared["y1"] == pytest.approx(
        score, rel=1e-10
    )


def test_the_repr_of_a_diagnosis_is_one_short_sentence():
    X = np.random.default_rng(0).normal(size=(30, 3))
    found = diagnose(dl.Problem.from_data(X, X[:, 0]), (2, 5), initialization=None)
    shown = repr(found)
    assert shown.startswith("<Diagnosis of 30 samples of 3 inputs, depth 2, 5: Use learning rate")
    assert found.answer in shown
    assert len(shown) < 300


def test_the_critical_rate_is_that_of_networks_with_biases():
    """scikit-learn's diabetes table, centered, depth 3: reference values of X-38 and X-2."""
    X, y = load_diabetes(return_X_y=True)
    problem = dl.Problem.from_data(X - X.mean(axis=0), y - y.mean())
    rates = [advise(problem, 3, biases=biased).critical_learning_rate for biased in (True, False)]
    assert rates == pytest.approx([0.00291499, 0.00823617], rel=1e-5)
    logistic = advise(dl.Problem.from_data(X, y > 100, loss="logistic"), 3, biases=True)
    assert np.isnan(logistic.critical_learning_rate)
    assert "With biases the critical rate is known for the squared error" in logistic.remarks[0]


def test_narrow_layers_are_measured_against_what_they_reach():
    X, Y = load_linnerud(return_X_y=True)
    X, Y = (part - part.mean(axis=0) for part in (X / X.std(axis=0), Y / Y.std(axis=0)))
    problem = dl.Problem.from_data(X, Y)
    found = dl.diagnose(problem, 2, width=1, biases=False)
    trials = found.advice[0].trials
    assert trials.learned == trials.starts
    said = " ".join(str(found).split())
    best = problem.best_of_rank(1).risk
    assert f"width 1 reach only linear maps of rank 1: a loss of {best:.4g} at best" in said
    assert "PyTorch's MSELoss also averages over the 3 targets" in said
    exact = dl.theory.critical_learning_rate(problem, 2, width=1)
    assert found.advice[0].critical_learning_rate == pytest.approx(exact, rel=1e-6)
