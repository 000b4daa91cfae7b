"""Sweeps that are killed, crashed and interrupted, with real processes."""

import json
import multiprocessing
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from toy_experiment import TOY, Toy, computed

from deeplin import sweep
from deeplin.checks import InputError
from deeplin.sweep.store import Store

HERE = Path(__file__).parent
PATIENCE = 120
"""Seconds after which something that should happen is taken not to happen."""


def wait_until(condition):
    """Wait for a condition; its value is returned."""
    started = time.monotonic()
    while not (value := condition()):
        assert time.monotonic() - started < PATIENCE, "this never happened"
        time.sleep(0.002)
    return value


def table_bytes(folder):
    """The table, sorted, as the bytes of an Arrow stream."""
    rows = sweep.read_table(folder).sort_values("run", ignore_index=True)
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pandas(rows)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def lines_in(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_killed_at_twenty_random_moments_the_table_is_that_of_an_undisturbed_run(tmp_path):
    kills, chance = 20, random.Random(20241)
    log, folder = tmp_path / "log", tmp_path / "killed"
    # Far more units than twenty short lives can finish, however fast the machine.
    config = Toy(count=1400, per_unit=2, log=str(log))
    units = TOY.identify(config, TOY.units(config), "float32")
    starts = {unit.coordinates["first"]: identifier for identifier, unit in units.items()}
    command = [sys.executable, "killed_at_random.py", str(folder), sweep.to_json(config)]
    with subprocess.Popen(
        command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as nursery:
        for life in range(kills + 1):
            finished = {path.name.partition(".")[0] for path in folder.glob("units/*")}
            before = lines_in(log)
            print(file=nursery.stdin, flush=True)
            child = int(nursery.stdout.readline())
            if life < kills:
                if life % 2:  # die while the folder is being opened, or soon after
                    time.sleep(chance.uniform(0, 0.04))
                else:  # die at some moment of some unit
                    seen = before + chance.randint(1, 12)
                    wait_until(lambda seen=seen: lines_in(log) >= seen)
                    time.sleep(chance.uniform(0, 0.005))
                os.kill(child, signal.SIGKILL)
            ended = int(nursery.stdout.readline())
            assert ended == (signal.SIGKILL if life < kills else 0)
            repeated = {starts[first] for first in computed(log)[before:]} & finished
            assert not repeated, f"life {life} computed finished units again"
        nursery.stdin.close()
    assert finished, "the sweep got nowhere before its last life"
    assert len(finished) < len(units), "the sweep was finished before its last death"
    sweep.run(TOY, config, tmp_path / "undisturbed")
    assert table_bytes(folder) == table_bytes(tmp_path / "undisturbed")
    assert sweep.status(folder).complete
    assert list(Store(folder).aside.iterdir()) == []
    assert list(Store(folder).temporary.iterdir()) == []


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
    (tmp_path / "trouble").write_text(trouble)
    paths = {"log": str(tmp_path / "log"), "trouble": str(tmp_path / "trouble")}
    text = json.dumps({"experiment": "toy_experiment:TOY", **paths, **fields})
    (tmp_path / "mine.json").write_text(text)
    return Toy(**paths, **fields)


def test_a_running_sweep_keeps_others_out_and_its_workers_die_with_it(tmp_path):
    config = write_config(tmp_path, "3 block\n6 block\n")
    log, folder = tmp_path / "log", tmp_path / "results" / "mine"
    command = ["deeplin", "sweep", "mine.json", "--workers", "2"]
    with started(command, tmp_path) as process:
        wait_until(lambda: log.exists() and {3, 6} <= set(computed(log)))
        with pytest.raises(InputError, match=rf"process {process.pid} on .*wait for it, or pass"):
            sweep.run(TOY, config, folder)
        with pytest.raises(InputError, match="another process is sweeping"):
            sweep.run(TOY, config, folder, shard=sweep.Shard(1, 2))
        assert sweep.status(folder).running == ["1-of-1"]
        workers = {int(line.split()[0]) for line in log.read_text().splitlines()}
        assert len(workers) == 2
        process.kill()
        process.wait()
        wait_until(lambda: not any(psutil.pid_exists(worker) for worker in workers))
    assert sweep.status(folder).running == []
    (tmp_path / "trouble").unlink()
    kept = {path.name for path in Store(folder).units.iterdir()}
    outcome = sweep.run(TOY, config, folder)
    assert outcome.reused == len(kept)
    assert outcome.computed == 4 - len(kept) >= 2
    assert kept < {path.name for path in outcome.store.units.iterdir()}


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    """A sweep in which units raise, return other columns, and kill their worker once or always."""
    folder = tmp_path_factory.mktemp("troubled")
    config = write_config(folder, "3 raise\n6 die\n9 columns\n12 die-once\n", count=18, per_unit=3)
    return config, sweep.run(TOY, config, folder / "sweep", executor=sweep.Processes(2))


def test_units_that_fail_are_recorded_and_the_rest_completes(troubled):
    config, outcome = troubled
    assert (outcome.computed, len(outcome.failed), outcome.complete) == (3, 3, False)
    status = sweep.status(outcome.store.folder)
    failures = {failure["coordinates"]["first"]: failure for failure in status.failures}
    assert failures[3]["error"] == "RuntimeError: trouble in 3"
    assert 'raise RuntimeError(f"trouble in {first}")' in failures[3]["trace"]
    assert failures[6]["error"].startswith("its worker process died 2 times")
    assert "differ from those of the other units" in failures[9]["error"]
    assert list(outcome.table()["run"]) == [0, 1, 2, 12, 13, 14, 15, 16, 17]
    assert sorted(computed(config.log)) == [0, 3, 6, 6, 9, 12, 12, 15]


def test_a_second_call_tries_only_what_failed(troubled):
    config, first = troubled
    Path(config.trouble).write_text("3 raise\n")
    before = len(computed(config.log))
    outcome = sweep.run(TOY, config, first.store.folder)
    assert (outcome.reused, outcome.computed, len(outcome.failed)) == (3, 2, 1)
    assert sorted(computed(config.log)[before:]) == [3, 6, 9]
    assert [f["coordinates"]["first"] for f in outcome.store.failures()] == [3]
    Path(config.trouble).unlink()
    outcome = sweep.run(TOY, config, first.store.folder)
    assert (outcome.reused, outcome.computed) == (5, 1)
    assert sweep.status(first.store.folder).healthy
    assert list(outcome.table()["run"]) == list(range(18))


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
def test_workers_that_never_come_end_the_sweep_with_true_advice(
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
    config = write_config(tmp_path, "0 raise\n3 raise\n6 raise\n", count=9)
    with pytest.raises(sweep.UnitsFailed, match="all 3 units failed alike: RuntimeError: trouble"):
        sweep.run(TOY, config, tmp_path / "sweep")
    (tmp_path / "trouble").write_text("0 raise\n6 raise\n")
    outcome = sweep.run(TOY, config, tmp_path / "sweep")  # one came: it is not the experiment
    assert (outcome.computed, len(outcome.failed)) == (1, 2)


def test_units_that_fail_for_different_reasons_are_an_outcome(tmp_path):
    config = write_config(tmp_path, "0 raise\n3 raise-other\n", count=6)
    assert len(sweep.run(TOY, config, tmp_path / "sweep").failed) == 2
    config = write_config(tmp_path, "0 raise\n", count=3)
    assert len(sweep.run(TOY, config, tmp_path / "alone").failed) == 1


@pytest.mark.parametrize(("where", "workers"), [("block", "0"), ("linger", "0"), ("block", "2")])
def test_ctrl_c_stops_at_once_wherever_it_comes_and_says_how_to_go_on(tmp_path, where, workers):
    """In compiled code, with a thread that does not end, and with worker processes."""
    config = write_config(tmp_path, f"6 {where}\n", count=9)
    log, folder = tmp_path / "log", tmp_path / "results" / "mine"
    command = ["deeplin", "sweep", "mine.json", "--out", "results/mine"]
    command += ["--workers", workers] if workers != "0" else []
    with started(command, tmp_path) as process:
        wait_until(lambda: log.exists() and 6 in computed(log))
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
        farewell = process.stderr.read()
    assert process.returncode == 130, farewell
    assert "Traceback" not in farewell
    assert farewell.splitlines()[-1].endswith(f"To go on: {shlex.join(command)}")
    (tmp_path / "trouble").unlink()
    kept = len(list(folder.glob("units/*")))
    outcome = sweep.run(TOY, config, folder)
    assert (outcome.reused, outcome.computed, outcome.set_aside) == (kept, 3 - kept, {})
    assert list(outcome.table()["run"]) == list(range(9))
