"""The table does not depend on who computed it: here, processes, a dask cluster, shards."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from distributed import LocalCluster
from toy_experiment import TOY, Toy, computed, troubled

from deeplin import sweep
from deeplin.errors import InputError
from deeplin.sweep.descent import DESCENT, DescentSweep, SyntheticData
from deeplin.sweep.executors import Task, compute_in_worker

SMALL = DescentSweep(
    scales=(0.3, 0.6),
    learning_rates=(0.02, 2.0),
    depths=(2,),
    repetitions=4,
    steps=300,
    data=SyntheticData(samples=20, dimension=5),
    runs_per_unit=4,
)
"""Four units: a rate below the critical one, where runs are not chaotic, and one that diverges."""


@pytest.fixture(scope="module")
def cluster():
    """Two real worker processes with one thread each, as a cluster would have."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as local:
        yield local


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The sweep computed in this process."""
    return sweep.run(DESCENT, SMALL, tmp_path_factory.mktemp("here")).table()


def assert_same(table, reference):
    """Statuses, draws and coordinates exactly, numbers of non-chaotic runs to 1e-9."""
    exact = ["depth", "learning_rate", "scale", "repetition", "status", "steps"]
    pd.testing.assert_frame_equal(table[exact], reference[exact], check_exact=True)
    # The sharpness of the untrained networks shows that the same weights were drawn.
    np.testing.assert_allclose(
        table["initial_sharpness"], reference["initial_sharpness"], rtol=1e-12
    )
    calm = (reference["status"] != "diverged").to_numpy()
    assert calm.any()
    assert (~calm).any()
    for name in ("risk", "distance", "sharpness"):
        np.testing.assert_allclose(
            table[name][calm], reference[name][calm], rtol=1e-9, atol=1e-12, err_msg=name
        )


def test_worker_processes_give_the_same_table(tmp_path, monkeypatch, reference):
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    outcome = sweep.run(DESCENT, SMALL, tmp_path / "sweep", executor=sweep.Processes(2))
    assert outcome.complete, outcome.failed
    assert_same(outcome.table(), reference)
    compiled = list(cache.rglob("*-cache"))
    assert compiled, "what the workers compiled is kept for the others"


def test_a_cluster_gives_the_same_table(tmp_path, reference, cluster):
    executor = sweep.Cluster(cluster.scheduler_address)
    outcome = sweep.run(DESCENT, SMALL, tmp_path, executor=executor)
    assert outcome.complete, outcome.failed
    assert_same(outcome.table(), reference)


def test_two_shards_in_one_folder_give_the_same_table(tmp_path, reference):
    for k in (1, 2):
        outcome = sweep.run(DESCENT, SMALL, tmp_path, shard=sweep.Shard(k, 2))
        assert outcome.computed == 2
    assert sweep.status(tmp_path).complete
    assert_same(sweep.read_table(tmp_path), reference)


def test_shards_work_at_the_same_time(tmp_path):
    """Each waits in its first unit until the other has begun one."""
    config = troubled(tmp_path, "0 meet\n1 meet\n", count=4, per_unit=1)

    def work(k):
        return sweep.run(TOY, config, tmp_path / "sweep", shard=sweep.Shard(k, 2))

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(work, (1, 2)))
    assert [(outcome.computed, outcome.failed) for outcome in outcomes] == [(2, {}), (2, {})]
    assert sorted(computed(config.log)) == [0, 1, 2, 3]
    assert sweep.status(tmp_path / "sweep").complete


def test_runs_do_not_depend_on_how_they_are_grouped(tmp_path, reference):
    together = replace(SMALL, runs_per_unit=100)
    outcome = sweep.run(DESCENT, together, tmp_path)
    assert outcome.computed == 2
    assert_same(outcome.table(), reference)


def test_a_killed_cluster_worker_does_not_stop_the_sweep(tmp_path, cluster):
    config = troubled(tmp_path, "5 die-once\n", count=12, per_unit=1)
    executor = sweep.Cluster(cluster.scheduler_address)
    outcome = sweep.run(TOY, config, tmp_path / "cluster", executor=executor)
    assert outcome.complete, outcome.failed
    assert computed(config.log).count(5) == 2
    undisturbed = sweep.run(TOY, Toy(count=12, per_unit=1), tmp_path / "here")
    pd.testing.assert_frame_equal(outcome.table(), undisturbed.table(), check_exact=True)


class Forgetful:
    """A cluster that loses what it has computed, as many times as told."""

    def __init__(self, losses):
        self.losses = losses

    def submit(self, function, *arguments, key, pure):
        self.losses -= 1
        status = "finished" if self.losses < 0 else ("lost", "pending")[self.losses % 2]
        return Kept(status, function(*arguments))

    def cancel(self, futures):
        assert not futures


@dataclass(frozen=True, eq=False)
class Kept:
    """A result of it."""

    status: str
    value: object

    def add_done_callback(self, callback):
        callback(self)

    def result(self):
        return self.value


def test_a_result_that_is_lost_with_its_worker_is_computed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sweep.Cluster, "execute", lambda self, tasks: self._collect(Forgetful(losses=3), tasks)
    )
    outcome = sweep.run(TOY, Toy(), tmp_path, executor=sweep.Cluster("tcp://nowhere"))
    assert (outcome.computed, outcome.failed) == (4, {})
    assert len(outcome.table()) == 12


def test_a_unit_that_raises_on_the_cluster_is_recorded_with_its_traceback(tmp_path, cluster):
    config, executor = troubled(tmp_path, "3 raise\n"), sweep.Cluster(cluster.scheduler_address)
    outcome = sweep.run(TOY, config, tmp_path / "sweep", executor=executor)
    assert list(outcome.failed.values()) == ["RuntimeError: trouble in 3"]
    assert "toy_experiment.py" in outcome.store.failures()[0]["trace"]
    assert outcome.computed == 3


def test_without_any_worker_the_cluster_says_so_and_goes_on_when_one_comes(tmp_path, monkeypatch):
    with LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty:
        said = []

        def answer(text, *_, **__):
            said.append(text)
            empty.scale(1)

        monkeypatch.setattr("deeplin.sweep.executors.warnings.warn", answer)
        executor = sweep.Cluster(empty.scheduler_address)
        outcome = sweep.run(TOY, Toy(), tmp_path, executor=executor)
    assert outcome.computed == 4
    assert said == [
        f"no worker is connected to the scheduler at {executor.address}: 4 unit(s) wait for one. "
        f"Start it with: dask worker {executor.address} --nthreads 1"
    ]


def test_a_scheduler_that_does_not_answer_is_an_input_error(tmp_path, monkeypatch):
    monkeypatch.setattr("deeplin.tables.table.CONNECT_SECONDS", 0.2)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(InputError, match="no dask scheduler answers at"):
            sweep.run(TOY, Toy(), tmp_path, executor=sweep.Cluster(address))
    assert sweep.status(tmp_path).finished == 0


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_a_wrong_shard_is_an_input_error(text):
    with pytest.raises(InputError, match="shard is"):
        sweep.Shard.parse(text)


def test_shards_are_disjoint_and_complete():
    units = {str(k): sweep.Unit({"k": k}) for k in range(11)}
    parts = [sweep.Shard(k, 3).select(units) for k in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(units)
    assert {len(part) for part in parts} == {3, 4}


def test_a_worker_stays_in_the_bucket_it_has_compiled(tmp_path):
    config = Toy(count=6, per_unit=1, log=str(tmp_path / "log"))  # buckets 0, 1, 0, 1, 0, 1
    sweep.run(TOY, config, tmp_path / "sweep", executor=sweep.Processes(1))
    assert computed(config.log) == [0, 2, 4, 1, 3, 5]


class LocalConfigs:
    """A place where workers cannot find a class."""

    @staticmethod
    def make():
        @dataclass(frozen=True)
        class Local(Toy):
            pass

        return Local()


def test_what_workers_cannot_import_is_refused_before_the_first_unit(tmp_path):
    config = LocalConfigs.make()
    with pytest.raises(InputError, match=r"workers cannot import .*at the top level of a module"):
        sweep.run(TOY, config, tmp_path / "sweep", executor=sweep.Processes(1))
    assert sweep.run(TOY, config, tmp_path / "sweep").complete  # this process can


def test_a_worker_that_cannot_import_the_unit_says_so():
    task = Task("unit", TOY, Toy(), sweep.Unit({"first": 0, "last": 1}), "float64")
    identifier, version, packed = task.pack()
    result = compute_in_worker(
        identifier, version, packed.replace(b"toy_experiment", b"toy_experimenT")
    )
    assert "cannot import" in result.error
    assert "has deeplin" in compute_in_worker(identifier, "0.1", packed).error
