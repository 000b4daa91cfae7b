"""kill -9 at every stage, the short version of `make torture`: nothing here depends on time."""

from itertools import count, repeat

import pytest
from torture import STAGES, launcher, run_until_finished
from toy_experiment import Toy


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """The folder of the tokens: each kills a process at its stage."""
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="module")
def start(tokens):
    """Starts a sweep in a process of its own and tells how it ended."""
    with launcher(tokens) as starter:
        yield starter


def test_killed_before_each_of_its_file_operations_a_sweep_goes_on(start, tmp_path):
    for operations in count(1):
        home = tmp_path / str(operations)
        home.mkdir()
        config = Toy(count=2, per_unit=1, log=str(home / "log"))
        killed = run_until_finished(
            start, home / "sweep", config, iter([{"operations": operations}, {}])
        )
        if not killed:
            break
    assert operations > 20


def test_killed_at_every_stage_of_a_worker_a_sweep_goes_on(start, tokens, tmp_path):
    """Every stage kills a worker once, and two kill the main process."""
    for stage in (*STAGES, "main-starting", "main-writing"):
        (tokens / f"{stage}.0").touch()
    config = Toy(count=12, per_unit=1, log=str(tmp_path / "log"))
    killed = run_until_finished(start, tmp_path / "sweep", config, repeat({"workers": 2}))
    assert killed == 2
    assert list(tokens.iterdir()) == []
