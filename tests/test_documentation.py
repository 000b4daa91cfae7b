"""Every code block of the README and the documentation runs; every public name is documented."""

import inspect
import re
import shlex
import shutil
from pathlib import Path

import pytest

import deeplin as dl
from deeplin.cli import main
from deeplin.problems.reading import read_problem
from deeplin.training import diagnose

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Commands that set up the machine, need a terminal or never end are tested elsewhere.
ELSEWHERE = ("make ", "git ", "deeplin explore", "pip ", "python ", "dask ")


def blocks(language):
    """(page, block) pairs of one language, each with a readable id."""
    found = []
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text())):
            if match[1] == language:
                name = f"{page.relative_to(ROOT)}-{number}"
                found.append(pytest.param(match[2], id=name))
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, tmp_path, monkeypatch):
    if "import torch" in code:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "documentation", "exec"), {"__name__": "documentation"})
    assert code.strip()


@pytest.mark.parametrize("script", blocks("sh"))
def test_commands_run(script, tmp_path, monkeypatch, capsys):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copy(ROOT / "examples" / "data.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    for line in script.replace("\\\n", " ").splitlines():
        command = line.split("#")[0].strip()
        if not command or command.startswith(ELSEWHERE):
            continue
        name, *arguments = shlex.split(command)
        assert name == "deeplin"
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0, f"{command}\n{capsys.readouterr()}"


def test_every_public_name_has_a_docstring_that_says_more_than_its_name():
    for name in dl.__all__:
        thing = getattr(dl, name)
        if isinstance(thing, str):
            continue
        text = inspect.getdoc(thing)
        assert text, name
        assert len(text.split()) >= 5, name


def test_every_link_between_pages_leads_somewhere():
    link = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
    for page in PAGES:
        for target in link.findall(page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_the_answer_quoted_in_the_readme_is_the_one_given():
    reading = read_problem(ROOT / "examples" / "data.csv", "y")
    answer = diagnose(reading.problem, [10]).answer
    assert answer in " ".join((ROOT / "README.md").read_text().split())
