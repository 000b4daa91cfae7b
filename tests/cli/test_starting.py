"""What need not wait for JAX does not import it: help, citations, the answer to a wrong name."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

SLOW = ("jax", "pandas", "scipy", "numba", "equinox", "pyarrow", "sklearn", "matplotlib")


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


def test_every_public_name_is_there_whichever_is_asked_for_first():
    code = (
        "import deeplin as dl\n"
        "dl.gradient_descent\n"
        "import deeplin.sharpness.lanczos\n"
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
        "from deeplin.report.diagnosis import as_text\n"
        "as_text(dl.diagnose(reading.problem, [2]))\n"
        "sys.modules = {k: v for k, v in sys.modules.items() if v is not None}\n"
    )
    assert not modules_after(code) & {"matplotlib", "sklearn"}
