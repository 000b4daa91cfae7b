"""The command line as a whole: quick to start, one sentence for bad input, an answer or silence."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from deeplin.execution import share_compiled_code

EXAMPLES = Path(__file__).parents[2] / "examples"
DEEPLIN = [sys.executable, "-m", "deeplin"]
VERSION = [*DEEPLIN, "--version"]


def test_a_real_process_answers_with_its_version():
    answer = subprocess.run(VERSION, capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("deeplin 0.")


def test_bad_input_exits_with_2_and_one_sentence(command):
    code, out, err = command("reproduce", "Nobody-1", "--list")
    assert (code, out) == (2, "")
    assert err.startswith("deeplin: there is no figure Nobody-1")
    assert command("no-such-command")[0] == 2


@pytest.mark.parametrize("seed", ["-1", str(2**70)])
@pytest.mark.parametrize(
    "arguments",
    [
        ["certify"],
        ["diagnose", "table.csv", "--target", "y"],
        ["train", "table.csv", "--target", "y"],
        ["reproduce"],
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
    answer = subprocess.run([*DEEPLIN, "train", "--help"], capture_output=True, env=variables)
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
        answer = subprocess.run(VERSION, stdout=full, stderr=subprocess.PIPE, text=True)
    assert answer.returncode == 2
    assert answer.stderr == "deeplin: cannot write the answer: No space left on device.\n"


def test_a_closed_pipe_ends_quietly():
    answer = subprocess.Popen(VERSION, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    answer.stdout.close()  # before anything can be written
    assert answer.stderr.read() == ""
    answer.stderr.close()
    answer.wait()


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
        ["--version"],
        ["train", "--help"],
        ["diagnose", "no-such.csv", "--target", "y"],
        ["certify", "no-such.npz"],
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
        "from deeplin.training.text import diagnosis_text\n"
        "diagnosis_text(dl.diagnose(reading.problem, [2]))\n"
        "sys.modules = {k: v for k, v in sys.modules.items() if v is not None}\n"
    )
    assert not modules_after(code) & {"matplotlib", "sklearn"}
