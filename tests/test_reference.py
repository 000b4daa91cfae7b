"""The reference covers every public name, and a stranger's first guess leads to the right file."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("problems", "networks", "sharpness", "dynamics", "theory", "training", "sweep")


def shown():
    """The modules whose members the reference shows."""
    pages = (ROOT / "docs" / "reference").glob("*.md")
    return {name for page in pages for name in re.findall(r"^::: (\S+)", page.read_text(), re.M)}


@pytest.mark.parametrize("package", ["deeplin", *(f"deeplin.{room}" for room in ROOMS)])
def test_every_public_name_is_in_the_reference(package):
    pages = shown()
    room = import_module(package)
    missing = []
    for name in room.__all__:
        thing = getattr(room, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            home = thing.__module__
            if home not in pages and home.rpartition(".")[0] not in pages:
                missing.append(f"{home}.{name}")
    assert missing == []


def concepts():
    """The table of CONTRIBUTING.md: what is sought, the file, a name that stands there."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| `([\w/]+\.py)` \| `(\w+)` \|$", text, re.M)
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


def test_ten_concepts_are_listed():
    assert len(concepts()) == 10


@pytest.mark.parametrize(("file", "name"), concepts())
def test_a_concept_is_where_the_first_guess_looks(file, name):
    text = (ROOT / "src" / "deeplin" / file).read_text()
    assert re.search(rf"(def|class) {name}\b|^{name}\b", text, re.M)


def test_the_way_of_a_table_names_files_that_exist_and_call_each_other():
    page = (ROOT / "docs" / "from-table-to-certificate.md").read_text()
    files = re.findall(r"^\| \d+ \| `([\w/]+\.py)`", page, re.M)
    assert 0 < len(files) <= 12
    for file in files:
        assert (ROOT / "src" / "deeplin" / file).is_file(), file
