import json
import subprocess
import sys

import pytest

from deeplin.cli import main
from deeplin.cli.bench import load_benchmarks, reached


def run(capsys, *arguments):
    """Exit code, standard output and standard error of `deeplin ARGUMENTS`."""
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def test_a_real_process_answers_with_its_version():
    answer = subprocess.run(
        [sys.executable, "-m", "deeplin", "--version"], capture_output=True, text=True, check=True
    )
    assert answer.stdout.startswith("deeplin 0.")


def test_cite_names_the_paper_behind_an_id(capsys):
    code, out, _ = run(capsys, "cite", "FM-2", "BO-1")
    assert code == 0
    assert "Marion, Pierre and Chizat" in out
    assert "Chatterji" in out
    code, out, _ = run(capsys, "cite", "X-2", "--json")
    assert code == 0
    assert json.loads(out)[0]["key"] == "deeplin"


def test_bad_input_exits_with_2_one_sentence_and_no_traceback(capsys):
    code, out, err = run(capsys, "cite", "Nobody-1")
    assert code == 2
    assert out == ""
    assert err.startswith("deeplin: 'Nobody-1' has no known source")
    assert "Traceback" not in err
    assert run(capsys, "no-such-command")[0] == 2


BENCHMARK = """
def measure():
    return {"fast enough": {"ratio": 3.0, "target": 2.0, "details": {}},
            "small enough": {"ratio": %s, "target": 1.1, "at_most": True, "details": {}}}
"""


@pytest.mark.parametrize(("ratio", "expected"), [("1.0", 0), ("1.5", 1)])
def test_bench_exits_with_1_when_a_ratio_misses_its_target(capsys, tmp_path, ratio, expected):
    (tmp_path / "toy.py").write_text(BENCHMARK % ratio)
    out = tmp_path / "bench.json"
    code, printed, _ = run(capsys, "bench", "--folder", str(tmp_path), "--out", str(out), "--json")
    assert code == expected
    document = json.loads(out.read_text())
    assert document == json.loads(printed)
    assert document["environment"]["versions"]["jax"]
    assert reached(document["results"]["small enough"]) == (expected == 0)
    code, table, _ = run(
        capsys, "bench", "--folder", str(tmp_path), "--out", str(out), "--compare", str(out)
    )
    assert code == expected
    assert "earlier" in table


def test_bench_refuses_a_missing_folder_an_unknown_name_and_a_foreign_file(capsys, tmp_path):
    assert run(capsys, "bench", "--folder", str(tmp_path / "none"))[0] == 2
    (tmp_path / "toy.py").write_text(BENCHMARK % "1.0")
    assert run(capsys, "bench", "other", "--folder", str(tmp_path))[0] == 2
    foreign = tmp_path / "foreign.json"
    foreign.write_text("[]")
    code, _, err = run(capsys, "bench", "--folder", str(tmp_path), "--compare", str(foreign))
    assert code == 2
    assert "not a file written by" in err


def test_every_benchmark_of_the_checkout_can_be_loaded(pytestconfig):
    folder = pytestconfig.rootpath / "benchmarks"
    modules = load_benchmarks(folder, [])
    assert {module.__name__ for module in modules} == {
        f"bench_{path.stem}" for path in folder.glob("*.py")
    }
