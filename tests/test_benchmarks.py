"""`make bench` measures what `benchmarks/` defines, and fails if a ratio misses its target."""

import importlib.util
import json
import sys

import pytest


@pytest.fixture
def benchmarks(pytestconfig, monkeypatch):
    """The script, loaded as `python benchmarks` does."""
    folder = pytestconfig.rootpath / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    specification = importlib.util.spec_from_file_location("script", folder / "__main__.py")
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    before = set(sys.modules)
    yield script
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


BENCHMARK = """
def measure():
    return {"fast enough": {"ratio": 3.0, "target": 2.0, "details": {}},
            "small enough": {"ratio": %s, "target": 1.1, "at_most": True, "details": {}}}
"""


@pytest.mark.parametrize(("ratio", "expected"), [("1.0", 0), ("1.5", 1)])
def test_the_script_exits_with_1_when_a_ratio_misses_its_target(
    benchmarks, tmp_path, monkeypatch, capsys, ratio, expected
):
    (tmp_path / "toy.py").write_text(BENCHMARK % ratio)
    monkeypatch.setattr(benchmarks, "HERE", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy", raising=False)
    out = tmp_path / "bench.json"
    for more in ([], ["--compare", str(out)]):
        with pytest.raises(SystemExit) as end:
            benchmarks.main(["--out", str(out), *more])
        assert int(end.value.code) == expected
    assert "earlier" in capsys.readouterr().out
    document = json.loads(out.read_text())
    assert document["environment"]["versions"]["jax"]
    assert benchmarks.reached(document["results"]["small enough"]) == (expected == 0)
    monkeypatch.delitem(sys.modules, "toy")


def test_an_unknown_benchmark_is_refused(benchmarks):
    with pytest.raises(SystemExit, match="no benchmark other; there are descent"):
        benchmarks.load_benchmarks(["other"])


def test_every_benchmark_can_be_loaded(benchmarks):
    names = {module.__name__ for module in benchmarks.load_benchmarks([])}
    paths = benchmarks.HERE.glob("*.py")
    measuring = {path.stem for path in paths if "\ndef measure(" in path.read_text()}
    assert len(measuring) > 5
    assert names == measuring
