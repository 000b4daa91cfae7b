"""A diagnosis says what the theory says, in numbers, words, a picture and a page."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import deeplin as dl
from deeplin.networks import Network
from deeplin.report.diagnosis_page import as_page, draw_diagnosis
from deeplin.report.text import diagnosis_text
from deeplin.tables.reading import read_problem
from deeplin.training.diagnosis import DRAWS, admissible_scale, diagnose


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


@pytest.mark.parametrize("readout", [None, [0.6, 0.8, 1.0]])
def test_every_depth_carries_the_exact_values(problem, readout):
    found = diagnose(problem, [1, 2, 10], readout=readout)
    for row in found.depths.itertuples():
        exact = dl.theory.minimal_sharpness(problem, row.depth, readout)
        assert (row.lower, row.minimal_sharpness, row.upper) == (
            exact.lower,
            exact.exact,
            exact.upper,
        )
        assert row.critical_learning_rate == 2 / exact.exact
        assert row.balanced_sharpness == dl.theory.balanced_sharpness(problem, row.depth, readout)
    assert found.depths["largest_scale"].isna().all() == (found.scale_obstacle is not None)


def test_the_admissible_scale_is_the_largest_that_meets_the_assumption():
    scale = admissible_scale(dimension=4, depth=3, width=5, seed=7)
    rng = np.random.default_rng(7)
    shapes = [(5, 4), (5, 5), (1, 5)]
    draws = [[rng.normal(size=shape) for shape in shapes] for _ in range(DRAWS)]

    def assumption(factor):
        networks = [Network([factor * scale * w for w in draw]) for draw in draws]
        return [32 * 3 * dl.theory.initialization_scale(net) ** 0.5 for net in networks]

    assert max(assumption(1.0)) == pytest.approx(1.0, rel=1e-12)
    assert max(assumption(1.001)) > 1


def test_what_stands_in_the_way_of_small_initialisations_is_named(rng):
    X = rng.normal(size=(30, 3))
    small = diagnose(dl.Problem.from_data(X, X @ [0.1, 0.1, 0.1]), [2])
    assert "below 1" in small.scale_obstacle
    deficient = diagnose(dl.Problem.from_data(np.c_[X, X[:, 0]], X @ [3.0, 1.0, 1.0]), [2])
    assert "rank 3 of 4" in deficient.scale_obstacle
    assert deficient.scale_obstacle in diagnosis_text(deficient, width=1000)
    assert "Training is not affected" in diagnosis_text(deficient, width=1000)
    large = diagnose(dl.Problem.from_data(X, X @ [3.0, 1.0, 1.0]), [2])
    assert large.scale_obstacle is None


def test_interpolation_is_judged_where_inputs_outnumber_samples(wide_csv):
    reading = read_problem(wide_csv, "y", intercept=True)
    found = diagnose(reading.problem, [2], names=reading.inputs, notes=reading.notes)
    assert found.overfitting.tail.index == 3
    assert found.overfitting.verdict == "benign"
    text = diagnosis_text(found)
    assert "Interpolation looks benign" in " ".join(text.split())
    assert "R_k (estimated)" in text
    assert found.as_json()["overfitting"]["verdict"] == "benign"


def test_a_spectrum_without_a_tail_is_said_in_words_and_in_json(rng):
    X = rng.normal(size=(40, 60)) / np.arange(1, 61)
    found = diagnose(dl.Problem.from_data(X, X[:, 0]), [2])
    assert found.as_json()["overfitting"]["tail"]["index"] == "inf"
    assert any("k = ∞" in sentence for sentence in found.summary)


def test_a_bad_condition_number_brings_advice(rng):
    X = rng.normal(size=(50, 3)) * [1.0, 1.0, 1e-3]
    found = diagnose(dl.Problem.from_data(X, X @ [1.0, 1.0, 1.0]), [2])
    assert any("ill-conditioned" in sentence for sentence in found.summary)


def test_no_signal_and_no_depth_are_refused(rng):
    X = rng.normal(size=(20, 3))
    with pytest.raises(dl.InputError, match="w\\* is zero"):
        diagnose(dl.Problem.from_data(X, np.zeros(20)))
    with pytest.raises(dl.InputError, match="no depth"):
        diagnose(dl.Problem.from_data(X, X[:, 0]), [])


def test_the_picture_shows_the_spectrum_and_the_critical_rates(problem):
    found = diagnose(problem, range(2, 41))
    spectrum, rates = draw_diagnosis(found).axes
    np.testing.assert_array_equal(spectrum.lines[0].get_ydata(), found.eigenvalues)
    np.testing.assert_array_equal(
        rates.lines[0].get_ydata(), found.depths["critical_learning_rate"]
    )


def test_the_page_is_self_contained_and_escapes_names(csv):
    reading = read_problem(csv, "y")
    found = diagnose(reading.problem, [2], names=reading.inputs, notes=["a <note>"])
    page = as_page(found, "<title>")
    assert page == as_page(found, "<title>")
    assert "<b>c</b>" not in page
    assert "&lt;note&gt;" in page
    assert not re.search(r"(src|href)=[\"']?https?:", page)


def test_the_command_prints_text_or_json_and_writes_files(csv, command, tmp_path):
    code, out, _ = command("diagnose", csv, "--target", "y", "--depth", "2..4")
    assert code == 0
    problem = read_problem(csv, "y").problem
    rates = [f"{1 / dl.theory.balanced_sharpness(problem, depth):.3g}" for depth in (2, 4)]
    first = " ".join(out.split("\n\n")[0].split())
    assert first.startswith(f"Use learning rate {rates[0]} at depth 2 and {rates[1]} at depth 4")
    assert "full-batch gradient descent on the mean squared error (no ½)" in first
    assert max(map(len, out.splitlines())) <= 80
    page, picture = tmp_path / "page.html", tmp_path / "picture.svg"
    arguments = ["--depth", "2,10", "--readout", "0.5", "--standardize", "--intercept", "--json"]
    code, out, _ = command(
        "diagnose", csv, "--target", "y", *arguments, "--html", page, "--plot", picture
    )
    assert code == 0
    values = json.loads(out)
    problem = read_problem(csv, "y", standardize=True, intercept=True).problem
    assert values["depths"][1]["critical_learning_rate"] == pytest.approx(
        dl.theory.critical_learning_rate(problem, 10, [0.5]), rel=1e-12
    )
    assert any("standardised" in note for note in values["notes"])
    assert page.read_text().startswith("<!doctype html>")
    assert "<svg" in picture.read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--target", "price"], "no column 'price'"),
        (["--target", "y", "--depth", "0"], "depth is '0'"),
        (["--target", "y", "--depth", "few"], "depth is 'few'"),
        (["--target", "y", "--depth", "9..2"], "depth is '9..2'"),
        (["--target", "y", "--readout", "x"], "readout is 'x'"),
        (["--target", "y", "--readout", "0"], "readout is zero"),
        (["--target", "y", "--reduction", "median"], "'mean' or 'sum'"),
        (["--target", "y", "--momentum", "1"], "momentum"),
        (["--target", "y", "--batch-size", "0"], "batch_size"),
        (["--target", "y", "--weight-decay", "-1"], "weight_decay"),
        (["--target", "y", "--nesterov"], "needs momentum"),
        (["--target", "y", "--missing", "guess"], "'refuse' or 'drop'"),
        (["--target", "y", "--html", "/dev/null/page.html"], "cannot write"),
        (["--target", "y", "--plot", "picture.txt"], "cannot write"),
    ],
)
def test_bad_requests_exit_with_2_and_one_sentence(csv, command, monkeypatch, arguments, sentence):
    monkeypatch.chdir(csv.parent)
    code, out, err = command("diagnose", csv, *arguments)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_several_targets_are_answered_together_and_each_alone(csv, command):
    code, out, _ = command(
        "diagnose", csv, "--target", "y", "--target", "a", "--depth", "3", "--json"
    )
    values = json.loads(out)
    assert code == 0
    reading = read_problem(csv, ["y", "a"])
    joint = dl.theory.critical_learning_rate(reading.problem, 3)
    assert values["depths"][0]["critical_learning_rate"] == pytest.approx(joint, rel=1e-12)
    for name in ("y", "a"):
        frame = pd.read_csv(csv)
        inputs = frame[list(reading.inputs)].to_numpy()
        alone = dl.Problem.from_data(inputs, frame[name].to_numpy())
        assert values["alone"][name][0]["critical_learning_rate"] == pytest.approx(
            dl.theory.critical_learning_rate(alone, 3), rel=1e-9
        )
        model = LinearRegression(fit_intercept=False).fit(inputs, frame[name])
        assert values["r_squared"][name] == pytest.approx(model.score(inputs, frame[name]))


def test_interpolating_pure_noise_is_not_called_benign(rng):
    problem = dl.Problem.from_data(rng.normal(size=(50, 2000)), rng.normal(size=50))
    text = diagnosis_text(diagnose(problem, [2]), width=10_000)
    assert "looks benign" not in text
    assert "do not predict the target" in text


def test_explained_variance_is_that_of_scikit_learn(csv):
    reading = read_problem(csv, "y", standardize=True)
    found = diagnose(reading.problem, [2], targets=reading.targets)
    frame = pd.read_csv(csv)
    inputs = frame[list(reading.inputs)]
    score = LinearRegression().fit(inputs, frame["y"]).score(inputs, frame["y"])
    assert found.r_squared["y"] == pytest.approx(score, rel=1e-10)
    moments = reading.problem
    streamed = dl.Problem.from_moments(
        moments.covariance,
        moments.inputs.T @ moments.targets[:, 0] / moments.samples,
        moments.target_moment,
        samples=moments.samples,
    )
    assert diagnose(streamed, [2]).r_squared["y1"] == pytest.approx(score, rel=1e-10)
