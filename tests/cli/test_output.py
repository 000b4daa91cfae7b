"""Where the answer goes may be full or gone: a sentence or silence, never a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from deeplin.cli import main

COMMAND = [sys.executable, "-m", "deeplin", "cite"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_device_gets_one_sentence():
    with open("/dev/full", "w") as full:
        answer = subprocess.run(COMMAND, stdout=full, stderr=subprocess.PIPE, text=True)
    assert answer.returncode == 2
    assert answer.stderr == "deeplin: cannot write the answer: No space left on device.\n"


def test_a_closed_pipe_ends_quietly():
    answer = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    answer.stdout.close()  # before anything can be written
    assert answer.stderr.read() == ""
    answer.stderr.close()
    answer.wait()


@pytest.mark.parametrize("seed", ["-1", str(2**70)])
@pytest.mark.parametrize(
    "command",
    [
        ["certify"],
        ["diagnose", "table.csv", "--target", "y"],
        ["train", "table.csv", "--target", "y"],
        ["reproduce"],
        ["sweep", "sweep.toml"],
    ],
)
def test_impossible_seeds_are_refused_by_every_command(command, seed, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--seed", seed])
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith(f"deeplin: seed is {seed}; pass a whole number")
