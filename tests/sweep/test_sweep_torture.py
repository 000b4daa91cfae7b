"""kill -9 at every stage, the short version of `make torture`: nothing here depends on time."""

from itertools import count, repeat

import pytest
from torture import STAGES, nursery, survive
from toy_experiment import Toy


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """Where a stage is given over to death."""
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="module")
def live(tokens):
    """Starts a sweep in a process of its own and tells how it ended."""
    with nursery(tokens) as start:
        yield start


def test_killed_before_each_of_its_file_operations_a_sweep_goes_on(live, tmp_path):
    for operations in count(1):
        home = tmp_path / str(operations)
        home.mkdir()
        config = Toy(count=2, per_unit=1, log=str(home / "log"))
        killed = survive(live, home / "sweep", config, iter([{"operations": operations}, {}]))
        if not killed:
            break
    assert operations > 20


def test_killed_at_every_stage_of_a_workers_life_a_sweep_goes_on(live, tokens, tmp_path):
    """Every stage kills a worker once, and two kill the process that asks."""
    for victim in (*STAGES, "main-starting", "main-writing"):
        (tokens / f"{victim}.0").touch()
    config = Toy(count=12, per_unit=1, log=str(tmp_path / "log"))
    killed = survive(live, tmp_path / "sweep", config, repeat({"workers": 2}))
    assert killed == 2
    assert list(tokens.iterdir()) == []
