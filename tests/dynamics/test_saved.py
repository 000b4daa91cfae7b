"""A saved run is the same run, read without executing anything."""

import json
import zipfile
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import deeplin as dl
from deeplin.dynamics.run import Records, Run
from deeplin.dynamics.saved import _checksum, load_run, save_run
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
    known = dl.Problem.from_chunks([(problem.inputs, problem.targets)])
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
    np.save(tmp_path / "array.npy", np.ones(2))
    for name in ("other.npz", "pickle.npz", "text.npz", "cut.npz", "array.npy"):
        with pytest.raises(dl.InputError, match="not a saved run; pass a file that") as caught:
            load_run(tmp_path / name)
        assert "pickle" not in str(caught.value).removeprefix(f"'{tmp_path / name}'")
    with pytest.raises(dl.InputError, match=r"cannot read '.*missing.npz': No such file"):
        load_run(tmp_path / "missing.npz")


def test_a_run_without_its_parts_is_refused(tmp_path, problem):
    path = save_run(tmp_path / "run.npz", problem, _batch_run())
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(tmp_path / "less.npz", "w") as less:
        for name in whole.namelist():
            if "network/weights/1" not in name:
                less.writestr(name, whole.read(name))
    with pytest.raises(dl.InputError, match="damaged or changed"):
        load_run(tmp_path / "less.npz")


def test_bad_names_and_unwritable_folders_are_refused(tmp_path, problem):
    with pytest.raises(dl.InputError, match=r"run\.npz"):
        save_run(tmp_path / "run.pkl", problem, _batch_run())
    (tmp_path / "file").write_text("")
    with pytest.raises(dl.InputError, match="cannot write"):
        save_run(tmp_path / "file" / "run.npz", problem, _batch_run())


def _spoil(path, name, change, *, sealed=False):
    """The saved run with one array changed (removed: None), with a right checksum if sealed."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    arrays[name] = change(arrays.get(name))
    arrays = {key: array for key, array in arrays.items() if array is not None}
    if sealed:
        parts = {key: arrays[key] for key in arrays if key not in ("format", "checksum")}
        arrays["checksum"] = np.array(_checksum(parts))
    np.savez(path, **arrays)
    return path


CHANGES = [
    ("problem/samples", lambda a: np.array("many")),
    ("problem/loss", lambda a: np.array("hinge")),
    ("problem/loss", lambda a: np.array([1.0, 2.0])),
    ("problem/colour", lambda a: np.array(3)),
    ("run/network/weights/0", lambda a: None),
    ("run/network/weights/1", lambda a: a[:, :, :3]),
    ("run/network/activation", lambda a: np.array("sine")),
    ("run/initial/readout", lambda a: a[:, :2]),
    ("run/evidence", lambda a: np.array(3)),
]


@pytest.mark.parametrize(
    ("name", "change"), [*CHANGES, ("run/steps", lambda a: -a), ("new", lambda a: np.ones(2))]
)
def test_a_change_of_the_file_is_noticed(tmp_path, problem, name, change):
    path = _spoil(save_run(tmp_path / "run.npz", problem, _batch_run()), name, change)
    with pytest.raises(dl.InputError, match="was damaged or changed after it was saved"):
        load_run(path)


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_a_changed_file_with_a_checksum_of_its_own_gets_one_sentence(
    tmp_path, problem, name, change
):
    path = save_run(tmp_path / "run.npz", problem, _batch_run())
    with pytest.raises(dl.InputError, match="holds no run that can be used") as caught:
        load_run(_spoil(path, name, change, sealed=True))
    assert len(str(caught.value).splitlines()) == 1


def test_a_run_of_another_problem_is_refused(tmp_path, wide_problem):
    path = save_run(tmp_path / "run.npz", wide_problem, _batch_run())
    with pytest.raises(dl.InputError, match="takes 5 inputs and the problem has 10"):
        load_run(path)


def test_a_run_of_a_loss_of_ones_own_is_refused_with_a_sentence(tmp_path):
    problem = dl.Problem.from_data(np.eye(2), np.ones(2))
    run = dl.gradient_descent(lambda p: jnp.sum(p["w"] ** 2), {"w": np.ones(2)}, 0.1, 5)
    with pytest.raises(dl.InputError, match="user-defined loss"):
        save_run(tmp_path / "run.npz", problem, run)
    assert not list(tmp_path.iterdir())


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
    assert ["row 4." in str(said[0].message), "row 6." in str(said[1].message)] == [True] * 2
    with pytest.raises(dl.InputError, match="does not know the table"):
        run.predict(frame)
