"""The table does not depend on who computed it, nor on how many of them were killed."""

import os
import signal
import subprocess
import sys
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import cloudpickle
import jax.numpy as jnp
import pandas as pd
import psutil
import pytest
from distributed import Client, LocalCluster
from toy_experiment import SAFETY_SECONDS, computed, expected, troubled, wait_until
from toy_training import train

from deeplin import sweep
from deeplin.errors import InputError
from deeplin.sweep.executors import THREAD_VARIABLES, VERSION, compute_in_worker

HERE = Path(__file__).parent
SMALL = {"learning_rate": [0.02, 0.1, 2.0], "scale": [0.3]}
"""Rates that settle, and one at which every run diverges."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The sweep computed in this process."""
    table = sweep.grid(train, SMALL, tmp_path_factory.mktemp("here"), workers=1).table()
    assert set(table["status"]) > {"diverged"}
    return table


@pytest.fixture
def call(tmp_path):
    """Sweep over numbers with some trouble."""

    def run(numbers, trouble="", folder="sweep", **options):
        if trouble:
            (tmp_path / "trouble").write_text(trouble)
        values = {"number": numbers, "home": [str(tmp_path)]}
        return sweep.grid(troubled, values, tmp_path / folder, **options)

    return run


@pytest.mark.extended
def test_worker_processes_give_the_same_table_to_the_last_bit(tmp_path, reference):
    outcome = sweep.grid(train, SMALL, tmp_path, workers=2)
    assert outcome.complete, outcome.traces
    pd.testing.assert_frame_equal(outcome.table(), reference, check_exact=True)


def test_any_other_executor_gives_the_same_table_to_the_last_bit(tmp_path, reference):
    with ThreadPoolExecutor(2) as threads:
        outcome = sweep.grid(train, SMALL, tmp_path, executor=threads)
    pd.testing.assert_frame_equal(outcome.table(), reference, check_exact=True)


@pytest.mark.extended
def test_a_cluster_gives_the_same_table_and_survives_a_killed_worker(tmp_path, call, reference):
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as client, client.get_executor() as executor:
        outcome = sweep.grid(train, SMALL, tmp_path / "train", executor=executor)
        assert outcome.complete, outcome.traces
        pd.testing.assert_frame_equal(outcome.table(), reference, check_exact=True)
        outcome = call(range(8), "5 die-once\n6 raise\n", executor=executor)
        assert list(outcome.failed.values()) == ["RuntimeError: trouble in 6"]
        assert "toy_experiment.py" in next(iter(outcome.traces.values()))
        assert computed(tmp_path).count(5) == 2
        (tmp_path / "trouble").unlink()
        outcome = call(range(8), executor=executor)
    assert (outcome.reused, outcome.computed) == (7, 1)
    pd.testing.assert_frame_equal(outcome.table(), expected(range(8), tmp_path), check_exact=True)


def test_a_unit_that_kills_its_worker_does_not_stop_the_others(call, tmp_path):
    """It is computed once beside others and twice alone; one that dies once is forgiven."""
    outcome = call(range(6), "1 raise\n3 die\n4 die-once\n", workers=2)
    assert sorted(outcome.failed.values()) == [
        "RuntimeError: trouble in 1",
        "its worker process died 2 times while it was computed alone (killed, or out of memory)",
    ]
    calls = computed(tmp_path)
    assert {number: calls.count(number) for number in (1, 3, 4)} == {1: 1, 3: 3, 4: 2}
    rows = expected([0, 2, 4, 5], tmp_path)
    pd.testing.assert_frame_equal(outcome.table(), rows, check_exact=True)


@pytest.mark.extended
def test_an_executor_of_the_user_that_breaks_is_not_replaced(call, tmp_path):
    executor = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    with executor, pytest.raises(BrokenExecutor):
        call(range(3), "1 die\n", executor=executor)
    (tmp_path / "trouble").unlink()
    assert call(range(3), workers=1).complete


SCRIPT = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from toy_experiment import troubled
from deeplin import sweep
try:
    values = {{"number": range(4), "home": [sys.argv[1]]}}
    sweep.grid(troubled, values, sys.argv[1] + "/sweep", workers=int(sys.argv[2]))
except KeyboardInterrupt:
    raise SystemExit(7)
"""


WITH_WORKERS = pytest.param(2, signal.SIGINT, marks=pytest.mark.extended)


@pytest.mark.parametrize(
    ("workers", "stop"), [(1, signal.SIGINT), (2, signal.SIGKILL), WITH_WORKERS]
)
def test_a_sweep_that_is_stopped_keeps_what_is_finished(call, tmp_path, workers, stop):
    """Ctrl-C reaches the whole group, as on a terminal; kill -9 the main process alone."""
    (tmp_path / "trouble").write_text("2 wait\n")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(workers)]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE) as process:
        finished = 2 if workers == 1 else 3
        units = wait_until(
            lambda: (
                2 in computed(tmp_path)
                and (found := list((tmp_path / "sweep").glob("*.parquet")))
                and len(found) == finished
            )
        )
        if stop == signal.SIGINT:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.kill()
        process.wait(SAFETY_SECONDS)
        assert process.returncode == (7 if stop == signal.SIGINT else -stop)
    assert units
    pids = {int(line.split()[0]) for line in (tmp_path / "log").read_text().splitlines()}
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))  # workers end with it
    (tmp_path / "trouble").unlink()
    outcome = call(range(4), workers=1)
    assert (outcome.reused, outcome.computed) == (finished, 4 - finished)
    pd.testing.assert_frame_equal(outcome.table(), expected(range(4), tmp_path), check_exact=True)


def test_units_that_fail_alike_are_an_error_and_others_an_outcome(call, tmp_path):
    with pytest.raises(sweep.UnitsFailed, match="all 3 units failed alike: RuntimeError: trouble"):
        call(range(3), "0 raise\n1 raise\n2 raise\n", workers=1)
    outcome = call(range(3), "0 raise\n2 raise\n", workers=1)  # one came: it is not the function
    assert (outcome.computed, len(outcome.failed)) == (1, 2)
    outcome = call(range(2), "0 raise\n1 raise-other\n", folder="other", workers=1)
    assert len(outcome.failed) == 2
    assert len(call([0], "0 raise\n", folder="alone", workers=1).failed) == 1


def surroundings(index):
    return {name: os.environ.get(name, "") for name in THREAD_VARIABLES} | {
        "dtype": str(jnp.ones(1).dtype)
    }


@pytest.mark.extended
def test_each_worker_has_its_share_of_the_threads(tmp_path, monkeypatch):
    monkeypatch.setattr("deeplin.sweep.executors.thread_count", lambda: 6)
    table = sweep.grid(surroundings, {"index": [0]}, tmp_path, workers=3).table()
    assert set(table[list(THREAD_VARIABLES)].to_numpy().ravel()) == {"2"}


def dtype_of(unit):
    return {"dtype": [str(jnp.ones(1).dtype)]}


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_worker_computes_in_the_precision_of_the_sweep(precision):
    packed = cloudpickle.dumps(dtype_of)
    result = compute_in_worker(packed, precision, VERSION, "unit", sweep.Unit({}))
    assert precision.encode() in result.payload


def test_a_worker_that_cannot_compute_says_why():
    packed = cloudpickle.dumps(dtype_of)
    lost = packed.replace(b"test_sweep_executors", b"test_sweep_executorS")
    result = compute_in_worker(lost, "float64", VERSION, "unit", sweep.Unit({}))
    assert "cannot import" in result.error
    result = compute_in_worker(packed, "float64", "0.1", "unit", sweep.Unit({}))
    assert "has deeplin" in result.error


def holding_a_lock(index):
    return index


def test_what_cannot_be_sent_to_workers_is_an_input_error(tmp_path, monkeypatch):
    monkeypatch.setattr("deeplin.sweep.executors.cloudpickle.dumps", lambda it: it.missing)
    with pytest.raises(InputError, match=r"workers cannot receive the function.*workers=1"):
        sweep.grid(holding_a_lock, {"index": [1]}, tmp_path, workers=2)
