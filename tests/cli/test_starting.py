"""What need not wait for JAX does not import it: help, citations, the answer to a wrong name."""

import subprocess
import sys

import pytest

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
