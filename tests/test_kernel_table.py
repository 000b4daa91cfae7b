"""The table of kernels: what it names exists."""

import importlib
import sys
from importlib import import_module
from pathlib import Path

import numba
import pytest

from deeplin.kernels import TABLE, compiling
from deeplin.kernels.compiling import call

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
    parts = {"__init__", "lanes", "products", "units", "pursuit", "ritz", "compiling"}
    assert {row.kernel.partition(".")[0] for row in TABLE} == modules - parts


def test_compiled_code_is_kept_by_the_digest_of_all_kernels(tmp_path, monkeypatch):
    """In a folder chosen by the user as well: a kernel holds code of other files than its own."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    folders = []
    for digest in ("before", "after"):
        monkeypatch.setattr(compiling, "_digest", lambda digest=digest: digest)
        folders.append(Path(compiling.compiled(_nothing).stats.cache_path).relative_to(tmp_path))
    assert [folder.parts[0] for folder in folders] == ["kernels-before", "kernels-after"]
    assert str(tmp_path) == numba.config.CACHE_DIR


def _nothing():
    """A function to compile."""


def test_code_saved_with_types_that_have_gone_is_compiled_anew(tmp_path, monkeypatch):
    """numba names the types of arguments in its index, and cannot read it without them."""
    monkeypatch.syspath_prepend(tmp_path)
    source = """
from typing import NamedTuple
from numba import njit

class {name}(NamedTuple):
    value: float

@njit(cache=True)
def double(given):
    return {factor} * given.value
"""
    for name, factor in (("Before", 2), ("After", 2.0)):
        (tmp_path / "saved_kernel.py").write_text(source.format(name=name, factor=factor))
        sys.modules.pop("saved_kernel", None)
        importlib.invalidate_caches()
        module = import_module("saved_kernel")
        assert call(module.double, getattr(module, name)(1.5)) == 3.0
    sys.modules.pop("saved_kernel")
