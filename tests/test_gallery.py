"""Every script of the gallery is short, runs, and prints what its page shows."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted((ROOT / "examples" / "gallery").glob("*.py"))
PAGES = ROOT / "docs" / "gallery"


@pytest.mark.extended
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_prints_what_its_page_shows(script):
    command = [sys.executable, str(ROOT / "docs" / "gallery.py"), "--check", script.stem]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_asks_a_question_and_uses_public_names_alone(script):
    source = script.read_text("utf-8")
    title = ast.get_docstring(ast.parse(source)).splitlines()[0]
    assert title.endswith("?")
    assert not re.search(r"from deeplin|\._[a-z]", source)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_page_and_notebook_have_the_code_of_the_script(script):
    page = (PAGES / f"{script.stem}.md").read_text("utf-8")
    book = nbformat.read(PAGES / f"{script.stem}.ipynb", as_version=4)
    nbformat.validate(book)
    cells = [cell.source for cell in book.cells if cell.cell_type == "code"]
    assert cells
    for code in cells:
        assert code in page
        assert code in script.read_text("utf-8")
    assert (PAGES / f"{script.stem}.png").exists()
    assert f"({script.stem}.md)" in (PAGES / "index.md").read_text("utf-8")
