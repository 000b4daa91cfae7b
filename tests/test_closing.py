"""A run ends with its slowest tests, and with its skipped ones or failures for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = {"PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_browser(number):
    pytest.skip("there is no Chromium on this machine")

def test_torch():
    pytest.importorskip("torch", reason="could not import 'torch'", minversion="999")

def test_other():
    pass
"""


@pytest.mark.parametrize(
    ("variables", "closing"),
    [
        ({}, "1 passed, 4 skipped"),
        ({"DEEPLIN_NO_SKIPS": "1"}, "4 failed, 1 passed"),
        ({"DEEPLIN_NO_SKIPS": "1", "DEEPLIN_WITHOUT_TORCH": "1"}, "3 failed, 1 passed, 1 skipped"),
    ],
)
def test_a_skip_is_one_line_or_a_failure(tmp_path, variables, closing):
    (tmp_path / "test_some.py").write_text(TESTS)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DEEPLIN_", "PYTEST_"))}
    answer = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "closing",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
        ],
        cwd=tmp_path,
        env=kept | PLUGINS | variables,
        capture_output=True,
        text=True,
    )
    lines = answer.stdout.splitlines()
    assert closing in lines[-1]
    assert answer.returncode == int("failed" in closing)
    assert sum(line.startswith("slowest: ") and "test_other" in line for line in lines) == 1
    assert sum("3 × there is no Chromium on this machine" in line for line in lines) == (
        not variables
    )
