"""kill -9 at random moments, the short version of `make torture`."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.extended
def test_killed_again_and_again_a_sweep_still_gives_its_table():
    """In a process of its own, which forks before it computes anything."""
    script = Path(__file__).parent / "torture.py"
    command = [sys.executable, script, "--kills", "20", "--seed", "1"]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert "every table is identical" in answer.stdout
