"""A saved run is the same run, read without executing anything."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import deeplin as dl
from deeplin.dynamics.run import Records, Run
from deeplin.dynamics.saved import load_run, save_run
from deeplin.networks import Trajectory


def _batch_run():
    keys = jax.random.split(jax.random.key(0), 3)
    net = dl.initialize.residual(keys, width=5, depth=2, scale=0.3, readout=jnp.arange(1.0, 6.0))
    net = net.with_batch()
    trajectory = Trajectory.of([net, jax.tree.map(lambda leaf: 2 * leaf, net)], batched=True)
    records = Records({"step": np.arange(2), "risk": np.ones((2, 3)), "norms": np.ones((2, 3, 2))})
    return Run(
        net,
        net,
        status=np.array(["converged", "diverged", "stopped"]),
        steps=np.array([5, 2, 9]),
        records=records,
        trajectory=trajectory,
        learning_rate=np.array([0.1, 0.2, 0.3]),
        momentum=0.5,
        evidence={"gap": np.zeros(3), "message": "fine"},
    )


def _equal(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_batch_with_its_trajectory_returns_unchanged(tmp_path, problem):
    run = _batch_run()
    again_problem, again = load_run(save_run(tmp_path / "deep" / "run.npz", problem, run))
    for name in ("network", "initial", "trajectory", "evidence"):
        _equal(getattr(run, name), getattr(again, name))
    _equal(dict(run.records), dict(again.records))
    np.testing.assert_array_equal(again.status, run.status)
    np.testing.assert_array_equal(again.learning_rate, run.learning_rate)
    assert again.momentum == run.momentum
    np.testing.assert_array_equal(again_problem.optimum, problem.optimum)


def test_a_single_run_keeps_plain_values_and_moments_suffice(tmp_path, problem):
    known = dl.Problem.from_chunks([(problem.inputs, problem.targets[:, 0])])
    net = dl.initialize.gaussian(jax.random.key(1), (5, 4, 1), 0.3, activation="gelu")
    again_problem, again = load_run(
        save_run(tmp_path / "one.npz", known, Run(net, net, "stopped", 7, learning_rate=0.1))
    )
    assert (again.status, again.steps, again.learning_rate) == ("stopped", 7, 0.1)
    assert again.trajectory is None
    assert again.network.activation == "gelu"
    assert again_problem.inputs is None
    assert again_problem.minimal_risk == known.minimal_risk


def test_a_run_whose_layers_have_equal_rates_can_be_read_again(tmp_path, problem):
    net = dl.initialize.gaussian(jax.random.key(1), (5, 4, 1), 0.3)
    run = dl.gradient_descent(problem, net, (0.01, 0.01), 3)
    assert load_run(save_run(tmp_path / "one.npz", problem, run))[1].learning_rate == 0.01


def test_the_manifest_describes_the_run(tmp_path, problem):
    save_run(tmp_path / "run.npz", problem, _batch_run(), notes={"data": "table.csv"})
    manifest = json.loads((tmp_path / "run.json").read_text())
    assert manifest["widths"] == [5, 5, 5]
    assert manifest["status"] == ["converged", "diverged", "stopped"]
    assert manifest["data"] == "table.csv"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.json", "run.npz"]


def test_files_that_are_no_runs_are_refused(tmp_path, problem):
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    np.savez(tmp_path / "pickle.npz", format=np.array([{"a": 1}], dtype=object))
    (tmp_path / "text.npz").write_text("not a zip file")
    whole = save_run(tmp_path / "run.npz", problem, _batch_run()).read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    for name in ("other", "pickle", "text", "cut", "missing"):
        with pytest.raises(dl.InputError):
            load_run(tmp_path / f"{name}.npz")


def test_a_run_without_its_parts_is_refused(tmp_path, problem):
    path = save_run(tmp_path / "run.npz", problem, _batch_run())
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(tmp_path / "less.npz", "w") as less:
        for name in whole.namelist():
            if "network/weights/1" not in name:
                less.writestr(name, whole.read(name))
    with pytest.raises(dl.InputError, match="incomplete"):
        load_run(tmp_path / "less.npz")


def test_bad_names_and_unwritable_folders_are_refused(tmp_path, problem):
    with pytest.raises(dl.InputError, match=r"run\.npz"):
        save_run(tmp_path / "run.pkl", problem, _batch_run())
    (tmp_path / "file").write_text("")
    with pytest.raises(dl.InputError, match="cannot write"):
        save_run(tmp_path / "file" / "run.npz", problem, _batch_run())


def test_float64_weights_are_never_rounded_silently(tmp_path, problem):
    path = save_run(tmp_path / "run.npz", problem, _batch_run())
    with jax.enable_x64(False), pytest.raises(dl.InputError, match="float64"):
        load_run(path)


def _spoil(path, name, change):
    """The saved run with one array changed (removed: None), its count of entries kept right."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    arrays[name] = change(arrays.get(name))
    arrays = {key: array for key, array in arrays.items() if array is not None}
    arrays["entries"] = np.array(len(arrays) - 2)
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("problem/samples", lambda a: a + 1, "problem/inputs has shape"),
        ("problem/samples", lambda a: np.array("many"), "problem/samples is 'many'"),
        ("problem/inputs", lambda a: a.astype(str), "not an array of real numbers"),
        ("problem/inputs", lambda a: a * np.nan, "NaN or infinite"),
        ("problem/targets", lambda a: a[:-1], "problem/targets has shape"),
        ("problem/single_target", lambda a: np.array(3), "single_target is 3"),
        ("problem/colour", lambda a: np.array(3), "has an entry 'colour'"),
        ("run/status", lambda a: a[:2], "run/status"),
        ("run/status", lambda a: np.array(["lost"] * 3), "converged, diverged, stopped"),
        ("run/steps", lambda a: -a, "run/steps holds a value that is negative"),
        ("run/steps", lambda a: a.astype(str), "run/steps has shape"),
        ("run/learning_rate", lambda a: 0 * a, "run/learning_rate is not above 0"),
        ("run/learning_rate", lambda a: a[:2], "run/learning_rate has shape (2,)"),
        ("run/momentum", lambda a: np.array(1.0), "run/momentum is 1"),
        ("run/network/weights/1", lambda a: None, "have different layers"),
        ("run/network/weights/0", lambda a: None, "not numbered"),
        ("run/network/weights/1", lambda a: a * np.inf, "NaN or infinite"),
        ("run/network/weights/1", lambda a: a[:, :, :3], "do not chain"),
        ("run/network/weights/1", lambda a: a.astype(int), "pass float64 or float32"),
        ("run/network/activation", lambda a: np.array("sine"), "activation is 'sine'"),
        ("run/initial/readout", lambda a: a[:, :2], "readout has shape"),
        ("run/trajectory/weights/0", lambda a: a[:1], "1 states for 2 records"),
        ("run/records/step", lambda a: a[::-1], "does not increase"),
        ("run/records/step", lambda a: None, "needs run/records/step"),
        ("run/records/risk", lambda a: a[:1], "different lengths"),
        ("run/records/risk", lambda a: a[:, :2], "for a batch of 3 runs"),
        ("run/records/risk", lambda a: a.astype(str), "not an array of numbers"),
        ("run/dynamics", lambda a: np.array(["descent", "flow"]), "run/dynamics is"),
        ("run/dynamics", lambda a: np.array("jump"), "not descent or flow"),
        ("run/variant", lambda a: np.array(3), "run/variant is 3, not text"),
        ("run/batch_size", lambda a: np.array(0.5), "run/batch_size is 0.5"),
        ("run/evidence", lambda a: np.array(3), "stands there twice"),
        ("run/evidence/time", lambda a: np.array(-1.0), "run/evidence/time"),
        ("surprise", lambda a: np.array(3), "has an entry 'surprise'"),
    ],
)
def test_tampered_runs_are_refused_with_what_is_wrong(tmp_path, problem, name, change, sentence):
    path = _spoil(save_run(tmp_path / "run.npz", problem, _batch_run()), name, change)
    with pytest.raises(dl.InputError) as caught:
        load_run(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_run_of_another_problem_is_refused(tmp_path, wide_problem):
    path = save_run(tmp_path / "run.npz", wide_problem, _batch_run())
    with pytest.raises(dl.InputError, match="takes 5 inputs and the problem has 10"):
        load_run(path)


def test_moments_that_no_data_have_are_refused(tmp_path, problem):
    known = dl.Problem.from_chunks([(problem.inputs, problem.targets[:, 0])])
    path = save_run(tmp_path / "run.npz", known, _batch_run())
    with pytest.raises(dl.InputError, match="no data set has these moments"):
        load_run(_spoil(path, "problem/second_moments", lambda a: -a))


def test_a_run_of_a_loss_of_ones_own_is_refused_with_a_sentence(tmp_path):
    problem = dl.Problem.from_data(np.eye(2), np.ones(2))
    run = dl.gradient_descent(lambda p: jnp.sum(p["w"] ** 2), {"w": np.ones(2)}, 0.1, 5)
    with pytest.raises(dl.InputError, match="user-defined loss"):
        save_run(tmp_path / "run.npz", problem, run)
    assert not list(tmp_path.iterdir())


def test_a_run_of_version_0_2_is_read_and_predicts_as_then():
    folder = Path(__file__).parents[1] / "data"
    problem, run = dl.load_run(folder / "run-0.2.npz")
    assert (problem.samples, run.status, run.network.depth) == (40, "converged", 3)
    then = pd.read_csv(folder / "run-0.2-predictions.csv")["price"]
    np.testing.assert_allclose(run.predict(folder / "houses.csv"), then, rtol=1e-12)


def test_a_saved_run_knows_its_table(tmp_path, rng):
    frame = pd.DataFrame({"a": rng.normal(size=40), "kind": ["u", "v"] * 20})
    frame["y"] = 3 * frame["a"] + (frame["kind"] == "v") + 5
    reading = dl.read_problem(frame, "y", encode=True, standardize=True, scale_targets=True)
    run = dl.train(reading.problem, depth=2)
    dl.save_run(tmp_path / "r.npz", reading.problem, replace(run, preparation=reading.preparation))
    _, again = dl.load_run(tmp_path / "r.npz")
    np.testing.assert_allclose(again.predict(frame), frame["y"], atol=1e-3)
    frame.loc[3, "a"], frame.loc[5, "kind"] = np.nan, "w"
    with pytest.warns(UserWarning, match="not predicted") as said:
        found = again.predict(frame)
    assert np.flatnonzero(np.isnan(found)).tolist() == [3, 5]
    assert ["row(s) 4." in str(said[0].message), "row(s) 6." in str(said[1].message)] == [True] * 2
    with pytest.raises(dl.InputError, match="does not know the table"):
        run.predict(frame)
