"""Classes of a table: diagnosed, trained, scored beside simpler models, and predicted again."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

import deeplin as dl
from deeplin.tables.reading import read_problem
from deeplin.training import TrainingSpec, advise, advise_start, diagnose, separated_classes
from deeplin.training.scores import cross_validate, folds


@pytest.fixture
def frame(rng):
    X = rng.normal(size=(120, 3)) * [1, 2, 0.5] + [0, 1, 3]
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    scores = np.c_[X @ [1, 0.5, 0], X @ [-1, 0, 1], np.zeros(120)] + rng.gumbel(size=(120, 3))
    table["kind"] = np.array(["bird", "cat", "dog"])[scores.argmax(axis=1)]
    table["ill"] = np.where(X[:, 0] - 0.5 * X[:, 1] + rng.logistic(size=120) > -0.5, "yes", "no")
    return table


def only(frame, target):
    return frame[["a", "b", "c", target]]


def plain_logistic(X, y):
    return LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(X, y)


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "loss", "outputs"), [("ill", "logistic", 1), ("kind", "softmax", 3)]
)
def test_text_becomes_classes_with_a_constant_input(frame, target, loss, outputs):
    reading = read_problem(only(frame, target), target, intercept=True)
    assert (reading.task, reading.problem.loss) == ("classification", loss)
    assert reading.inputs == ("a", "b", "c", "constant")
    np.testing.assert_array_equal(reading.problem.inputs[:, 3], 1)
    assert tuple(reading.problem.classes) == tuple(sorted(set(frame[target])))
    assert reading.problem.outputs == outputs
    assert any(note.startswith("Classification: the target") for note in reading.notes)


@pytest.mark.parametrize(
    ("values", "classes"),
    [([0, 1], (0, 1)), ([1.5, 2.0], (1.5, 2)), ([False, True], ("false", "true"))],
)
def test_two_values_are_classes_unless_regression_is_asked_for(frame, values, classes):
    table = frame[["a"]].assign(y=np.array(values)[(frame["ill"] == "yes").to_numpy().astype(int)])
    reading = read_problem(table, "y", intercept=True)
    assert reading.preparation.classes == classes
    assert tuple(reading.problem.targets) == tuple(np.where(frame["ill"] == "yes", 1.0, -1.0))
    amount = read_problem(table, "y", task="regression")
    assert (amount.task, amount.problem.loss) == ("regression", "squared")
    np.testing.assert_allclose(amount.problem.targets, table["y"].astype(float))
    few = read_problem(table.head(5), "y").task  # too few numbers to guess
    assert few == ("regression" if isinstance(classes[0], int | float) else "classification")


def test_whole_numbers_are_classes_only_if_asked_for(frame):
    table = frame[["a", "b"]].assign(y=pd.factorize(frame["kind"])[0])
    assert read_problem(table, "y").task == "regression"
    assert any("--task classification" in note for note in read_problem(table, "y").notes)
    assert read_problem(table, "y", task="classification").preparation.classes == (0, 1, 2)


def test_standardized_inputs_have_deviation_one_and_the_constant_stays(frame):
    rows = read_problem(only(frame, "ill"), "ill", standardize=True).problem.inputs
    np.testing.assert_allclose(rows.mean(axis=0), [0, 0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(rows.std(axis=0), [1, 1, 1, 0], atol=1e-12)


def test_held_out_rows_have_their_share_of_every_class(frame):
    reading = read_problem(only(frame, "kind"), "kind", intercept=True, test_share=0.25)
    rows, targets = reading.held_out
    whole = np.array([np.sum(frame["kind"] == label) for label in reading.problem.classes])
    np.testing.assert_array_equal(targets.sum(axis=0), np.round(0.25 * whole))
    np.testing.assert_array_equal(rows[:, 3], 1)


def test_a_class_with_one_row_is_named_and_never_left_out(frame):
    frame.loc[7, "kind"] = "elk"
    reading = read_problem(only(frame, "kind"), "kind", intercept=True, test_share=0.5)
    assert any("Only one row has the class 'elk'" in note for note in reading.notes)
    assert reading.held_out[1][:, list(reading.problem.classes).index("elk")].sum() == 0
    labels = np.r_[0, np.ones(19, int), np.full(20, 2)]
    left = [test for _, test in folds(40, labels=labels)]
    assert sorted(np.concatenate(left)) == list(range(1, 40))


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        ({"y": "same"}, {}, "one class only, 'same'"),
        ({"y": 1.0}, {"task": "classification"}, "one class only, 1"),
        ({"y": [f"n{k}" for k in range(120)]}, {}, "more than 50 different values"),
        ({"y": np.arange(120.0)}, {"task": "classification"}, "120 different values"),
        ({"y": [None, "u", "v"] * 40}, {}, "missing value in row 1"),
        ({"y": pd.date_range("2024-01-01", periods=120)}, {}, "is a date"),
        ({"y": ["u", "v"] * 60, "a": 1.0}, {"intercept": True}, "every input is constant"),
        ({"y": ["u", "v"] * 60}, {"task": "sorting"}, "task is 'sorting'"),
    ],
)
def test_what_is_no_classification_gets_one_sentence(frame, change, options, sentence):
    table = frame[["a"]].assign(**change)
    with pytest.raises(dl.InputError, match=sentence):
        read_problem(table, "y", **options)


def test_several_classes_at_once_and_streamed_tables_are_refused(frame):
    with pytest.raises(dl.InputError, match="classification has one target"):
        read_problem(frame, ["ill", "kind"], task="classification")
    with pytest.raises(dl.InputError, match="no classes can be predicted; pass a larger memory"):
        read_problem(only(frame, "ill"), "ill", memory=1000)


# --- diagnosis and advice ------------------------------------------------------------------------


def test_a_diagnosis_of_classes_has_the_exact_critical_rate(frame):
    options = {"initialization": None, "standardize": False}
    found = dl.diagnose(only(frame, "ill"), [2, 5], target="ill", **options)
    X, y = frame[["a", "b", "c"]], frame["ill"]
    problem = dl.Problem.from_data(np.c_[X, np.ones(120)], y, loss="logistic")
    for row in found.depths.itertuples():
        critical = dl.theory.critical_learning_rate(problem, row.depth)
        assert row.critical_learning_rate == pytest.approx(critical, rel=1e-9)
    model = LogisticRegression(max_iter=1000).fit(X, y)
    accuracy, loss = found.scores
    assert accuracy.linear == pytest.approx(model.score(X, y))
    assert loss.linear == pytest.approx(log_loss(y, model.predict_proba(X)), rel=1e-3)
    shares = y.value_counts(normalize=True)
    assert accuracy.constant == pytest.approx(shares.max())
    assert loss.constant == pytest.approx(-np.sum(shares * np.log(shares)))
    assert "to predict the class of ill" in found.answer
    json.dumps(found.as_json())


def test_cross_validation_is_that_of_scikit_learn_on_the_same_folds(frame):
    reading = read_problem(only(frame, "kind"), "kind", standardize=True)
    found = cross_validate(reading.problem, reading.preparation, lambda part: (part.optimum, 0.0))
    X, y = frame[["a", "b", "c"]].to_numpy(), frame["kind"].to_numpy()
    own, penalized = np.empty((2, 120, 3))
    labels = np.searchsorted(["bird", "cat", "dog"], y)
    for train, test in folds(120, labels=labels):
        own[test] = plain_logistic(X[train], y[train]).predict_proba(X[test])
        scaler = StandardScaler().fit(X[train])
        model = LogisticRegression(max_iter=1000).fit(scaler.transform(X[train]), y[train])
        penalized[test] = model.predict_proba(scaler.transform(X[test]))
    accuracy, loss = found.scores
    assert loss.network == pytest.approx(log_loss(y, own, labels=["bird", "cat", "dog"]), rel=1e-5)
    expected = log_loss(y, penalized, labels=["bird", "cat", "dog"])
    assert loss.linear == pytest.approx(expected, rel=1e-3)
    assert accuracy.linear == pytest.approx(np.mean(penalized.argmax(axis=1) == labels))


def test_arrays_frames_and_problems_give_one_answer(frame):
    X, y = frame[["a", "b", "c"]], frame["ill"]
    options = {"depth": [3], "initialization": None, "standardize": False}
    problem = dl.Problem.from_data(np.c_[X, np.ones(120)], y, loss="logistic")
    given = [(X, y), (X.to_numpy().tolist(), y.tolist()), (problem,)]
    rates = [dl.diagnose(*data, **options).advice[0].critical_learning_rate for data in given]
    np.testing.assert_allclose(rates, rates[0], rtol=1e-10)
    with pytest.raises(dl.InputError, match="X has 120 rows and y has 3"):
        dl.diagnose(X, y[:3])
    with pytest.raises(dl.InputError, match="a table needs its target"):
        dl.diagnose(X)


@pytest.mark.parametrize("loss", ["poisson", "huber"])
def test_other_losses_are_diagnosed_without_scores_of_squared_errors(frame, loss):
    problem = dl.Problem.from_data(frame[["a", "b"]], frame["c"].round().abs(), loss=loss)
    found = diagnose(problem, [2], biases=False)
    assert (found.r_squared, found.scores) == ({}, ())
    critical = dl.theory.critical_learning_rate(problem, 2)
    assert found.advice[0].critical_learning_rate == pytest.approx(critical)
    trials = found.advice[0].trials
    assert trials.learned == trials.starts
    assert "nan" not in str(found)


def separable(frame):
    return frame[["a", "b", "c"]].assign(y=np.where(frame["a"] > 0.2, "up", "down"))


def test_separable_classes_have_no_critical_rate_and_it_is_said_why(frame):
    found = dl.diagnose(separable(frame), [2], target="y")
    assert np.isnan(found.advice[0].critical_learning_rate)
    assert found.as_json()["optimum_norm"] == "inf"
    trials = found.advice[0].trials
    assert trials.learned == trials.starts
    text = " ".join(str(found).split())
    assert "A hyperplane separates the classes" in text
    assert "the loss tends to 0" in text
    assert "nan" not in text
    decayed = diagnose(
        read_problem(separable(frame), "y", intercept=True),
        [2],
        initialization=None,
        optimizer=TrainingSpec(weight_decay=1e-2),
    )
    assert np.isfinite(decayed.advice[0].critical_learning_rate)
    assert "hyperplane" not in str(decayed)


def test_a_classification_is_standardized(frame):
    table = only(frame, "ill").assign(b=1e4 * frame["b"])
    found = dl.diagnose(table, 2, target="ill", initialization=None)
    assert "on standardized inputs (StandardScaler)" in found.answer
    scaled = read_problem(table, "ill", standardize=True).problem
    critical = dl.theory.critical_learning_rate(scaled, 2)
    assert found.advice[0].critical_learning_rate == pytest.approx(critical, rel=1e-12)
    plain = read_problem(table, "ill", intercept=True).problem
    critical = dl.theory.critical_learning_rate(plain, 2)
    assert found.raw[0].critical_learning_rate == pytest.approx(critical, rel=1e-6)


def test_it_is_said_which_classes_a_hyperplane_separates():
    """Of the irises, setosa only; the loss of the others has a minimum that it falls to."""
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    found = dl.diagnose(X.assign(kind=names), target="kind", initialization=None)
    assert separated_classes(found.problem) == ("setosa",)
    said = " ".join(str(found).split())
    assert "A hyperplane separates the class setosa from all others" in said
    assert "the other classes overlap" in said
    rest = dl.Problem.from_data(np.c_[X, np.ones(150)][50:], names[50:], loss="logistic")
    least = rest.minimal_risk * 100 / 150
    assert found.problem.minimal_risk == pytest.approx(least, rel=1e-6)
    assert f"the loss falls towards {least:.3g}" in said
    run = dl.train(found.reading, 2, steps=20_000)
    assert run.status == "converged"
    chosen = found.problem.inputs @ np.asarray(run.network.product).T
    assert np.all(chosen[:50].argmax(axis=1) == 0)


def test_the_critical_rate_of_many_weights_of_softmax_is_not_computed(frame, monkeypatch):
    problem = read_problem(only(frame, "kind"), "kind", standardize=True).problem
    exact = advise(problem, 3)
    monkeypatch.setattr(dl.training.learning_rate, "LARGEST_PROGRAM", 1)
    unknown = advise(problem, 3)
    assert np.isnan(unknown.critical_learning_rate)
    assert unknown.balanced_sharpness == exact.balanced_sharpness
    assert unknown.remarks == ("For 3 classes and 4 inputs the critical rate is not computed.",)


# --- optimizers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["ill", "kind", "b"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_sam_adam_and_rmsprop_have_the_rates_of_the_theory(frame, target, reduction):
    table = frame[["a", "c", target]]
    problem = read_problem(table, target, intercept=True).problem
    factor = 120 if reduction == "sum" else 1
    sam = advise(problem, 3, TrainingSpec(optimizer="sam", rho=0.1, reduction=reduction))
    expected = dl.theory.critical_learning_rate(problem, 3, sam_radius=0.1 * factor) / factor
    assert sam.critical_learning_rate == pytest.approx(expected, rel=1e-9)
    for name, beta1 in (("adam", 0.8), ("rmsprop", 0.0)):
        spec = TrainingSpec(optimizer=name, beta1=0.8, epsilon=1e-3, reduction=reduction)
        epsilon = {"beta1": beta1, "epsilon": 1e-3 / factor}
        expected = dl.theory.adam_critical_learning_rate(problem, 3, **epsilon)
        found = advise(problem, 3, spec)
        assert found.critical_learning_rate == pytest.approx(expected, rel=1e-9)
        assert any("last steps only" in remark for remark in found.remarks)


@pytest.mark.parametrize("factor", [0.97, 1.03])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("decay", [0.0, 0.02])
def test_sam_settles_below_its_critical_rate_and_not_above(frame, factor, momentum, decay):
    """From starts beside the flattest minimizer, in the units of a sum over the samples."""
    problem = read_problem(
        frame[["a", "b"]].assign(y=frame["a"] + frame["c"]),
        "y",
        standardize=True,
        scale_targets=True,
    ).problem
    spec = TrainingSpec(
        optimizer="sam", rho=2e-3, momentum=momentum, reduction="sum", weight_decay=120 * decay
    )
    critical = advise(problem, 2, spec).critical_learning_rate
    if decay:
        end = dl.theory.decayed_minimum(problem, 2, decay)
        start = end.network
    else:
        start = dl.theory.minimal_sharpness(problem, 2).minimizer
    moved = [w + 1e-4 for w in start.weights]
    run = dl.gradient_descent(
        problem, dl.Network(moved), factor * critical * 120, 4000, **spec.settings(problem)
    )
    last = dl.gradient_descent(
        problem, run.network, factor * critical * 120, 1, **spec.settings(problem)
    )
    step = sum(
        np.abs(a - b).max() for a, b in zip(run.network.weights, last.network.weights, strict=True)
    )
    assert (step < 1e-6) == (factor < 1)


@pytest.mark.parametrize("name", ["sam", "adam"])
def test_a_rate_for_each_optimizer_learns_from_simulated_starts(frame, name):
    problem = read_problem(only(frame, "ill"), "ill", standardize=True).problem
    found = advise_start(problem, 3, "torch", TrainingSpec(optimizer=name))
    assert found.trials.learned == found.trials.starts
    assert found.learning_rate <= 0.1 or name == "sam"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"optimizer": "lion"}, "optimizer is 'lion'"),
        ({"optimizer": "adam", "momentum": 0.9}, "adam takes no momentum"),
        ({"optimizer": "sam", "batch_size": 5}, "SAM on batches"),
        ({"beta1": 1.0}, "beta1 is 1"),
        ({"rho": -1}, "rho"),
        ({"epsilon": 0}, "epsilon"),
    ],
)
def test_optimizers_that_make_no_sense_get_one_sentence(options, sentence):
    with pytest.raises(dl.InputError, match=sentence):
        TrainingSpec(**options)


# --- training and prediction ---------------------------------------------------------------------


@pytest.mark.parametrize("target", ["ill", "kind"])
def test_a_trained_run_predicts_classes_and_probabilities(frame, target, command, tmp_path):
    path, out = tmp_path / "table.csv", tmp_path / "run.npz"
    only(frame, target).to_csv(path, index=False)
    options = ["--depth", 3, "--out", out, "--json"]
    code, text, err = command("train", path, "--target", target, *options)
    assert code == 0, err
    report = json.loads(text)
    assert report["status"] == "converged"
    X, y = frame[["a", "b", "c"]], frame[target]
    model = plain_logistic(X, y)
    chances = model.predict_proba(X)
    score = {entry["measure"]: entry for entry in report["scores"]}
    assert score["accuracy"]["network"] == pytest.approx(model.score(X, y), abs=1e-9)
    assert score["log-loss"]["network"] == pytest.approx(log_loss(y, chances), rel=1e-6)
    assert {entry["measure"] for entry in report["left_out"]["scores"]} == {"accuracy", "log-loss"}
    _, run = dl.load_run(out)
    assert run.preparation.classes == tuple(model.classes_)
    np.testing.assert_array_equal(run.predict(X), model.predict(X))
    np.testing.assert_allclose(run.predict_proba(X), chances, atol=1e-3)
    table = only(frame, target).drop(columns=target)
    table.loc[4, "b"] = np.nan
    table.to_csv(path, index=False)
    code, text, err = command("predict", out, path)
    found = pd.read_csv(io.StringIO(text), keep_default_na=False)
    assert list(found) == [target, *(f"P({target}={label})" for label in model.classes_)]
    assert list(found.loc[4]) == [""] * (1 + len(model.classes_))
    assert "row 5." in err
    with pytest.warns(UserWarning, match="row 5"):
        assert run.predict(path)[4] is None


def test_three_classes_with_weight_decay_settle(frame):
    reading = read_problem(only(frame, "kind"), "kind", standardize=True)
    optimizer = TrainingSpec(weight_decay=1e-2)
    ends = {steps: dl.train(reading, 2, optimizer=optimizer, steps=steps) for steps in (5, 3000)}
    assert {steps: str(run.status) for steps, run in ends.items()} == {
        5: "stopped",
        3000: "converged",
    }
    assert advise(reading.problem, 2, optimizer).settles


def test_training_on_separable_classes_ends_when_every_row_is_right(frame, command, tmp_path):
    path, out = tmp_path / "table.csv", tmp_path / "run.npz"
    separable(frame).to_csv(path, index=False)
    code, text, _ = command("train", path, "--target", "y", "--depth", 2, "--out", out)
    assert code == 0
    assert "every row is classified right" in " ".join(text.split())
    assert "nan" not in text
    _, run = dl.load_run(out)
    assert run.evidence["risk"] <= np.log(2) / 120
    np.testing.assert_array_equal(run.predict(path), separable(frame)["y"])


def test_a_run_of_arrays_predicts_arrays(frame):
    X, y = frame[["a", "b", "c"]].to_numpy(), (frame["ill"] == "yes").to_numpy().astype(int)
    run = dl.train(X, y, depth=2)
    np.testing.assert_array_equal(run.predict(X), plain_logistic(X, y).predict(X))
    amounts = dl.train(X, y, depth=2, task="regression")
    assert amounts.predict(X).dtype == float
    with pytest.raises(dl.InputError, match="amounts, not classes"):
        amounts.predict_proba(X)


@pytest.mark.parametrize(
    "options",
    [
        ["--optimizer", "sam", "--rho", 0.1],
        ["--optimizer", "adam", "--epsilon", 1e-4],
        ["--batch-size", 40, "--steps", 500],
    ],
)
def test_every_optimizer_trains_classes(frame, command, tmp_path, options):
    path = tmp_path / "table.csv"
    only(frame, "ill").to_csv(path, index=False)
    arguments = ["--depth", 2, "--out", tmp_path / "run.npz", "--json"]
    code, text, err = command("train", path, "--target", "ill", *arguments, *options)
    assert code == 0, err
    score = {entry["measure"]: entry for entry in json.loads(text)["scores"]}
    assert score["log-loss"]["network"] < score["log-loss"]["linear"] + 0.03


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--task", "regression"], "does not hold numbers"),
        (["--half"], "log-loss has no factor"),
        (["--optimizer", "adam", "--momentum", "0.9"], "takes no momentum"),
    ],
)
def test_bad_requests_about_classes_exit_with_2(frame, command, tmp_path, options, sentence):
    path = tmp_path / "table.csv"
    only(frame, "ill").to_csv(path, index=False)
    for name in ("diagnose", "train"):
        more = ["--out", tmp_path / "run.npz"] if name == "train" else []
        code, out, err = command(name, path, "--target", "ill", "--depth", 2, *more, *options)
        assert (code, out) == (2, "")
        assert sentence in err
    assert not (tmp_path / "run.npz").exists()
