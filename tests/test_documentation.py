"""Every example runs, every public name is documented, and every link leads somewhere."""

import ast
import inspect
import re
import shlex
import shutil
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import deeplin as dl
from deeplin.certificates import registry
from deeplin.cli import main
from deeplin.sources import SOURCES

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGES = ("problems", "networks", "hessian", "dynamics", "theory", "training", "sweep")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GALLERY = ROOT / "docs" / "gallery"  # its pages are made from scripts, which test_gallery runs
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
"""Language, block, and what it prints where a block of text follows at once."""
NUMBER = re.compile(r"\d+(?:\.\d+)?")
# Commands that set up the machine, need a terminal or never end are tested elsewhere.
ELSEWHERE = ("make ", "git ", "deeplin explore", "pip ", "python ", "dask ")


def blocks(language):
    """(block, what it prints) of one language, each with a readable id."""
    found = []
    for page in (page for page in PAGES if page.parent != GALLERY):
        for number, match in enumerate(BLOCK.finditer(page.read_text())):
            if match[1] == language:
                name = f"{page.relative_to(ROOT)}-{number}"
                marks = () if page.name == "README.md" else pytest.mark.extended
                found.append(pytest.param(match[2], match[3], id=name, marks=marks))
    return found


def assert_printed(found, shown):
    """Compare word by word; numbers to two percent: descent at the edge is chaotic."""
    if shown is None:
        return
    found, shown = " ".join(found.split()), " ".join(shown.split())
    assert NUMBER.sub("#", found) == NUMBER.sub("#", shown)
    assert [float(n) for n in NUMBER.findall(found)] == pytest.approx(
        [float(n) for n in NUMBER.findall(shown)], rel=0.02
    )


@pytest.mark.parametrize(("code", "shown"), blocks("python"))
def test_python_blocks_run_and_print_what_is_shown(code, shown, tmp_path, monkeypatch, capsys):
    if "import torch" in code:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "documentation", "exec"), {"__name__": "documentation"})
    assert_printed(capsys.readouterr().out, shown)


@pytest.mark.parametrize(("script", "shown"), blocks("sh"))
def test_commands_run_and_print_what_is_shown(script, shown, tmp_path, monkeypatch, capsys):
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
        printed = capsys.readouterr()
        assert ended.value.code == 0, f"{command}\n{printed}"
        assert_printed(printed.out, shown)


# --- docstrings: each example by itself, as a reader who copies it would run it ------------------


def examples(path):
    """(name, code) of each example in the docstrings of one file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            name = getattr(node, "name", "module")
            for match in BLOCK.finditer(ast.get_docstring(node) or ""):
                if match[1] == "python":
                    yield name, match[2]


FILES = [path for path in sorted(SOURCE.rglob("*.py")) if any(examples(path))]


def test_examples_are_found():
    assert sum(len(list(examples(path))) for path in FILES) > 40


@pytest.fixture
def _only_true_statements():
    """Take back the statement that an example registers."""
    yield
    registry.STATEMENTS.pop("MINE", None)


@pytest.mark.extended
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
@pytest.mark.usefixtures("_only_true_statements")
def test_examples_run(path, tmp_path, monkeypatch):
    for number, (name, code) in enumerate(examples(path)):
        if "torch" in code and find_spec("torch") is None:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        names = {"__name__": "example"}
        exec(compile(code, f"the example of {name} in {path}", "exec"), names)
        assert set(names) - {"__name__", "__builtins__"}, f"the example of {name} does nothing"


# --- pages ---------------------------------------------------------------------------------------


def test_every_public_name_has_a_docstring():
    for name in dl.__all__:
        thing = getattr(dl, name)
        if isinstance(thing, str):
            continue
        text = inspect.getdoc(thing)
        assert text, name


def test_every_link_between_pages_leads_somewhere():
    link = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
    notebooks = ROOT / "docs" / "notebooks"  # pages that the site makes from examples/*.ipynb
    made = {notebooks / f"{path.stem}.md" for path in (ROOT / "examples").glob("*.ipynb")}
    for page in PAGES:
        for target in link.findall(page.read_text()):
            there = (page.parent / target).resolve()
            assert there.exists() or there in made, f"{page.relative_to(ROOT)} links to {target}"


def test_the_readme_shows_what_is_recorded():
    text = (ROOT / "README.md").read_text()
    for paper in ("Marion & Chizat 2024", "2405.13456", "Chatterji & Long 2023", "2209.09315"):
        assert paper in text
    source = (ROOT / "docs" / "record.py").read_text()
    record = {"__name__": "record", "__file__": str(ROOT / "docs" / "record.py")}
    exec(compile(source, "record.py", "exec"), record)
    shown = text.split(record["START"])[1].split(record["END"])[0]
    assert shown == record["block"]()


BIBTEX = re.compile(r"(\w+) ?= ?\{((?:[^{}]|\{[^}]*\})*)\}")


def test_the_page_on_citing_has_the_papers_that_certificates_cite():
    text = re.search(r"```bibtex\n(.*?)```", (ROOT / "docs/citing.md").read_text(), re.DOTALL)[1]
    for source in (SOURCES["FM"], SOURCES["BO"]):
        entry = text.split(f"{{{source['key']},")[1].split("\n@")[0]
        shown = dict(BIBTEX.findall(" ".join(entry.split())))
        shown["author"] = shown["author"].split(",")[0]
        assert all(value in source["reference"] for value in shown.values())
        assert {"title", "year"} <= shown.keys()


def test_every_page_gives_the_papers_one_year():
    explorer = SOURCE / "deeplin" / "explorer" / "page"
    pages = [*PAGES, *explorer.glob("*.js"), *explorer.glob("*.html"), ROOT / "CITATION.cff"]
    pages += (ROOT / "examples").glob("*.ipynb")
    for page in pages:
        text = " ".join(page.read_text(encoding="utf-8").split())
        for names, year in (("Chizat", "2024"), ("Long", "2023")):
            for found in re.findall(rf"\b{names},? \(?(\d{{4}})", text):
                assert found == year, f"{page.name}: {names} {found}"


def test_one_version_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] == version


def documented():
    """The modules whose members the reference shows."""
    pages = (ROOT / "docs" / "reference").glob("*.md")
    return {name for page in pages for name in re.findall(r"^::: (\S+)", page.read_text(), re.M)}


@pytest.mark.parametrize("package", ["deeplin", *(f"deeplin.{name}" for name in PACKAGES)])
def test_every_public_name_is_in_the_reference(package):
    modules = documented()
    public = import_module(package)
    missing = []
    for name in public.__all__:
        thing = getattr(public, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            home = thing.__module__
            if home not in modules and home.rpartition(".")[0] not in modules:
                missing.append(f"{home}.{name}")
    assert missing == []


def test_the_reference_shows_modules_that_exist():
    assert [name for name in sorted(documented()) if find_spec(name) is None] == []


def test_contributing_names_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    source = ROOT / "src" / "deeplin"
    paths = re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:py|md|txt|toml)|(?:[\w-]+/)+)`", text)
    assert len(paths) > 20
    for path in paths:
        assert any((base / path).exists() for base in (ROOT, source)), path
