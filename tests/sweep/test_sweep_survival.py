"""Sweeps that are killed, crashed and interrupted, with real processes."""

import json
import multiprocessing.spawn
import multiprocessing.util
import os
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest
from toy_experiment import SAFETY_SECONDS, TOY, Toy, computed, troubled, wait_until

from deeplin import sweep
from deeplin.errors import InputError
from deeplin.sweep.store import Store

HERE = Path(__file__).parent


@contextmanager
def started(command, tmp_path):
    """A process in a folder of its own, dead afterwards whatever happens."""
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    variables = os.environ | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with subprocess.Popen(
        [str(Path(sys.executable).parent / command[0]), *command[1:]],
        cwd=tmp_path,
        env=variables,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def write_config(tmp_path, trouble, **fields):
    """The toy as a config file; returns the config."""
    config = troubled(tmp_path, trouble, **fields)
    (tmp_path / "mine.json").write_text(
        json.dumps({"experiment": "toy_experiment:TOY", **asdict(config)})
    )
    return config


def test_a_running_sweep_keeps_others_out_and_ctrl_c_ends_it_with_its_workers(tmp_path):
    config = write_config(tmp_path, "3 block\n6 block\n")
    log, folder = tmp_path / "log", tmp_path / "results" / "mine"
    with started(["deeplin", "sweep", "mine.json", "--workers", "2"], tmp_path) as process:
        wait_until(lambda: log.exists() and {3, 6} <= set(computed(log)))
        with pytest.raises(InputError, match=rf"process {process.pid} on .*wait for it, or pass"):
            sweep.run(TOY, config, folder)
        with pytest.raises(InputError, match="another process is sweeping"):
            sweep.run(TOY, config, folder, shard=sweep.Shard(1, 2))
        assert sweep.status(folder).running == ["1-of-1"]
        workers = {int(line.split()[0]) for line in log.read_text().splitlines()}
        assert len(workers) == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(SAFETY_SECONDS) == 130
        wait_until(lambda: not any(psutil.pid_exists(worker) for worker in workers))
    assert sweep.status(folder).running == []
    (tmp_path / "trouble").unlink()
    kept = {path.name for path in Store(folder).units.iterdir()}
    outcome = sweep.run(TOY, config, folder)
    assert outcome.reused == len(kept)
    assert outcome.computed == 4 - len(kept) >= 2
    assert kept < {path.name for path in outcome.store.units.iterdir()}


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """A sweep in which units raise, return other columns, and kill their worker every time."""
    folder = tmp_path_factory.mktemp("troubled")
    config = troubled(folder, "3 raise\n6 die\n9 columns\n", count=15, per_unit=3)
    return config, sweep.run(TOY, config, folder / "sweep", executor=sweep.Processes(2))


def test_units_that_fail_are_recorded_and_the_rest_completes(failing):
    config, outcome = failing
    assert (outcome.computed, len(outcome.failed), outcome.complete) == (2, 3, False)
    status = sweep.status(outcome.store.folder)
    failures = {failure["coordinates"]["first"]: failure for failure in status.failures}
    assert failures[3]["error"] == "RuntimeError: trouble in 3"
    assert 'raise RuntimeError(f"trouble in {first}")' in failures[3]["trace"]
    assert failures[6]["error"].startswith("its worker process died 2 times")
    assert "differ from those of the other units" in failures[9]["error"]
    assert list(outcome.table()["run"]) == [0, 1, 2, 12, 13, 14]
    assert sorted(computed(config.log)) == [0, 3, 6, 6, 9, 12]


def test_a_second_call_tries_only_what_failed(failing):
    config, first = failing
    Path(config.trouble).write_text("3 raise\n")
    before = len(computed(config.log))
    outcome = sweep.run(TOY, config, first.store.folder)
    assert (outcome.reused, outcome.computed, len(outcome.failed)) == (2, 2, 1)
    assert sorted(computed(config.log)[before:]) == [3, 6, 9]
    assert [f["coordinates"]["first"] for f in outcome.store.failures()] == [3]
    Path(config.trouble).unlink()
    outcome = sweep.run(TOY, config, first.store.folder)
    assert (outcome.reused, outcome.computed) == (4, 1)
    assert sweep.status(first.store.folder).healthy
    assert list(outcome.table()["run"]) == list(range(15))


@pytest.fixture
def worker_program(tmp_path):
    """Sets what worker processes start with: lines of a shell, then Python if they get there."""
    python = multiprocessing.spawn.get_executable()

    def replace(lines):
        program = tmp_path / "python"
        program.write_text(f'#!/bin/sh\n{lines}\nexec "{os.fsdecode(python)}" "$@"\n')
        program.chmod(0o755)
        multiprocessing.set_executable(str(program))

    yield replace
    multiprocessing.set_executable(python)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("exit 1", "exit code 1 while starting.*under `if __name__ == '__main__'"),
        ("kill -9 $$", "10 worker processes in a row died while starting.*killed by signal 9"),
    ],
)
def test_workers_that_never_start_end_the_sweep_with_true_advice(
    tmp_path, worker_program, lines, sentence
):
    worker_program(f'case "$*" in *--multiprocessing-fork*) {lines};; esac')
    with pytest.raises(sweep.ExecutorError, match=sentence):
        sweep.run(TOY, Toy(), tmp_path / "sweep", executor=sweep.Processes(2))
    assert sweep.status(tmp_path / "sweep").healthy


def test_a_system_that_starts_no_process_ends_the_sweep_with_a_sentence(tmp_path, monkeypatch):
    def refuse(*_):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", refuse)
    with pytest.raises(sweep.ExecutorError, match=r"Resource temporarily unavailable.*use fewer"):
        sweep.run(TOY, Toy(), tmp_path / "sweep", executor=sweep.Processes(2))


def test_units_that_all_fail_alike_raise_one_error_and_are_tried_again(tmp_path):
    config = troubled(tmp_path, "0 raise\n3 raise\n6 raise\n", count=9)
    with pytest.raises(sweep.UnitsFailed, match="all 3 units failed alike: RuntimeError: trouble"):
        sweep.run(TOY, config, tmp_path / "sweep")
    (tmp_path / "trouble").write_text("0 raise\n6 raise\n")
    outcome = sweep.run(TOY, config, tmp_path / "sweep")  # one came: it is not the experiment
    assert (outcome.computed, len(outcome.failed)) == (1, 2)


def test_units_that_fail_for_different_reasons_are_an_outcome(tmp_path):
    config = troubled(tmp_path, "0 raise\n3 raise-other\n", count=6)
    assert len(sweep.run(TOY, config, tmp_path / "sweep").failed) == 2
    config = troubled(tmp_path, "0 raise\n", count=3)
    assert len(sweep.run(TOY, config, tmp_path / "alone").failed) == 1


@pytest.mark.parametrize("where", ["block", "linger"])
def test_ctrl_c_stops_at_once_wherever_it_comes_and_says_how_to_go_on(tmp_path, where):
    """In compiled code, and with a thread that does not end."""
    config = write_config(tmp_path, f"6 {where}\n", count=9)
    log, folder = tmp_path / "log", tmp_path / "results" / "mine"
    command = ["deeplin", "sweep", "mine.json", "--out", "results/mine"]
    with started(command, tmp_path) as process:
        wait_until(lambda: log.exists() and 6 in computed(log))
        process.send_signal(signal.SIGINT)
        process.wait(SAFETY_SECONDS)
        message = process.stderr.read()
    assert process.returncode == 130, message
    assert "Traceback" not in message
    assert message.splitlines()[-1].endswith(f"To go on: {shlex.join(command)}")
    (tmp_path / "trouble").unlink()
    kept = len(list(folder.glob("units/*")))
    outcome = sweep.run(TOY, config, folder)
    assert (outcome.reused, outcome.computed, outcome.damaged) == (kept, 3 - kept, [])
    assert list(outcome.table()["run"]) == list(range(9))
