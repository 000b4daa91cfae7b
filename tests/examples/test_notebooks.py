"""The notebooks run, and show what they print."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NUMBER = re.compile(r"-?\d[\d.,]*(?:e[+-]\d+)?")


def texts(notebook):
    """What each code cell shows, without numbers (they may change in their last digits)."""
    return [
        [
            "".join(NUMBER.sub("#", output.get("text") or output["data"]["text/plain"]).split())
            for output in cell["outputs"]
        ]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def test_there_are_three():
    assert len(NOTEBOOKS) == 3


@pytest.mark.extended
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# The kernel's transport warns about itself; nothing of that is ours.
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_runs_and_shows_what_it_prints(path):
    shown, fresh = nbformat.read(path, 4), nbformat.read(path, 4)
    NotebookClient(
        fresh, timeout=300, kernel_name="python3", resources={"metadata": {"path": FOLDER}}
    ).execute()
    assert texts(fresh) == texts(shown)
    for cell in fresh["cells"]:
        if cell["cell_type"] == "code" and ("dl.plot" in cell["source"]):
            assert any("image/png" in output.get("data", {}) for output in cell["outputs"])
    for cell in shown["cells"]:
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr"
