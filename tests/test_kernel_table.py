"""The table of kernels: what it names exists."""

from importlib import import_module
from pathlib import Path

import pytest

from deeplin.kernels import TABLE

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.kernel)
def test_kernel_oracle_and_measurement_exist(row):
    module, _, function = row.kernel.partition(".")
    found = import_module(f"deeplin.kernels.{module}")
    assert not function or hasattr(found, function)
    path, _, test = row.oracle.partition("::")
    assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8")
    benchmarks = "".join(p.read_text(encoding="utf-8") for p in ROOT.glob("benchmarks/*.py"))
    assert f'"{row.measured}"' in benchmarks


def test_every_module_of_the_room_is_in_the_table():
    modules = {path.stem for path in ROOT.glob("src/deeplin/kernels/*.py")}
    parts = {"__init__", "lanes", "products", "units", "compiling"}  # what the kernels are made of
    assert {row.kernel.partition(".")[0] for row in TABLE} == modules - parts
