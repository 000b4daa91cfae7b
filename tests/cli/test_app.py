"""The command line as a whole: quick to start, one sentence for bad input, an answer or silence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from deeplin.cli.bench import load_benchmarks, reached
from deeplin.execution import share_compiled_code

EXAMPLES = Path(__file__).parents[2] / "examples"
CITE = [sys.executable, "-m", "deeplin", "cite"]


def test_a_real_process_answers_with_its_version():
    answer = subprocess.run([*CITE[:-1], "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("deeplin 0.")


def test_cite_names_the_paper_behind_an_id(command):
    code, out, _ = command("cite", "FM-2", "BO-1")
    assert code == 0
    assert "Marion, Pierre and Chizat" in out
    assert "Chatterji" in out
    code, out, _ = command("cite", "X-2", "--json")
    assert code == 0
    assert json.loads(out)[0]["key"] == "deeplin"


def test_bad_input_exits_with_2_and_one_sentence(command):
    code, out, err = command("cite", "Nobody-1")
    assert (code, out) == (2, "")
    assert err.startswith("deeplin: 'Nobody-1' has no known source")
    assert command("no-such-command")[0] == 2


@pytest.mark.parametrize("seed", ["-1", str(2**70)])
@pytest.mark.parametrize(
    "arguments",
    [
        ["certify"],
        ["diagnose", "table.csv", "--target", "y"],
        ["train", "table.csv", "--target", "y"],
        ["reproduce"],
        ["sweep", "sweep.toml"],
    ],
)
def test_impossible_seeds_are_refused_by_every_command(command, arguments, seed):
    code, _, err = command(*arguments, "--seed", seed)
    assert code == 2
    assert err.startswith(f"deeplin: seed is {seed}; pass a whole number")


# --- whatever the user's locale and home are ------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_a_locale_lacks_are_escaped(encoding):
    variables = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    answer = subprocess.run([*CITE[:-1], "train", "--help"], capture_output=True, env=variables)
    assert answer.returncode == 0, answer.stderr
    assert "η".encode(encoding, "backslashreplace") in answer.stdout


def test_without_a_home_to_write_in_compiled_programs_are_not_kept(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        share_compiled_code()
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


# --- where the answer goes may be full or gone ---------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_device_gets_one_sentence():
    with open("/dev/full", "w") as full:
        answer = subprocess.run(CITE, stdout=full, stderr=subprocess.PIPE, text=True)
    assert answer.returncode == 2
    assert answer.stderr == "deeplin: cannot write the answer: No space left on device.\n"


def test_a_closed_pipe_ends_quietly():
    answer = subprocess.Popen(CITE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    answer.stdout.close()  # before anything can be written
    assert answer.stderr.read() == ""
    answer.stderr.close()
    answer.wait()


# --- the benchmarks ------------------------------------------------------------------------------

BENCHMARK = """
def measure():
    return {"fast enough": {"ratio": 3.0, "target": 2.0, "details": {}},
            "small enough": {"ratio": %s, "target": 1.1, "at_most": True, "details": {}}}
"""


@pytest.mark.parametrize(("ratio", "expected"), [("1.0", 0), ("1.5", 1)])
def test_bench_exits_with_1_when_a_ratio_misses_its_target(command, tmp_path, ratio, expected):
    (tmp_path / "toy.py").write_text(BENCHMARK % ratio)
    out = tmp_path / "bench.json"
    bench = ["bench", "--folder", tmp_path, "--out", out]
    code, printed, _ = command(*bench, "--json")
    assert code == expected
    document = json.loads(out.read_text())
    assert document == json.loads(printed)
    assert document["environment"]["versions"]["jax"]
    assert reached(document["results"]["small enough"]) == (expected == 0)
    code, table, _ = command(*bench, "--compare", out)
    assert code == expected
    assert "earlier" in table


def test_bench_refuses_a_missing_folder_an_unknown_name_and_a_foreign_file(command, tmp_path):
    assert command("bench", "--folder", tmp_path / "none")[0] == 2
    (tmp_path / "toy.py").write_text(BENCHMARK % "1.0")
    assert command("bench", "other", "--folder", tmp_path)[0] == 2
    (tmp_path / "foreign.json").write_text("[]")
    code, _, err = command("bench", "--folder", tmp_path, "--compare", tmp_path / "foreign.json")
    assert code == 2
    assert "not a file written by" in err


def test_every_benchmark_of_the_checkout_can_be_loaded(pytestconfig):
    folder = pytestconfig.rootpath / "benchmarks"
    names = {module.__name__ for module in load_benchmarks(folder, [])}
    measuring = [path for path in folder.glob("*.py") if "\ndef measure(" in path.read_text()]
    assert len(measuring) > 5
    assert names == {f"bench_{path.stem}" for path in measuring}


# --- what need not wait for JAX does not import it -----------------------------------------------

SLOW = ("jax", "pandas", "scipy", "equinox", "pyarrow", "sklearn", "matplotlib")


def modules_after(code: str) -> set[str]:
    """The slow packages that are imported in a new process after running `code`."""
    report = f"{code}\nimport sys\nprint(*(name for name in {SLOW!r} if name in sys.modules))"
    answer = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return set(answer.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["cite"],
        ["train", "--help"],
        ["diagnose", "no-such.csv", "--target", "y"],
        ["certify", "no-such.npz"],
        ["sweep", "--config", "no-such.toml"],
    ],
)
def test_nothing_slow_is_imported_for(arguments):
    code = f"from deeplin.cli import main\ntry:\n    main({arguments!r})\nexcept SystemExit: pass"
    assert modules_after(code) == set()


def test_the_package_itself_imports_nothing_slow():
    assert modules_after("import deeplin") == set()


def test_every_public_name_is_there_whichever_is_imported_first():
    code = (
        "import deeplin as dl\n"
        "dl.gradient_descent\n"
        "import deeplin.hessian.lanczos\n"
        "assert callable(dl.sharpness), dl.sharpness\n"
        "for name in dl.__all__: getattr(dl, name)\n"
    )
    assert "jax" in modules_after(code)


def test_figures_and_the_estimator_alone_need_matplotlib_and_scikit_learn():
    code = (
        "import sys\n"
        "sys.modules |= {'matplotlib': None, 'sklearn': None}  # as if they were not installed\n"
        "import deeplin as dl, jax\n"
        "jax.config.update('jax_enable_x64', True)\n"
        f"reading = dl.read_problem({str(EXAMPLES / 'data.csv')!r}, 'y')\n"
        "run = dl.train(reading.problem, depth=2)\n"
        "dl.certify(reading.problem, run)\n"
        "dl.sharpness(reading.problem, run.network)\n"
        "from deeplin.report.text import diagnosis_text\n"
        "diagnosis_text(dl.diagnose(reading.problem, [2]))\n"
        "sys.modules = {k: v for k, v in sys.modules.items() if v is not None}\n"
    )
    assert not modules_after(code) & {"matplotlib", "sklearn"}
