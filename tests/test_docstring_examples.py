"""Every example of a docstring runs by itself, as a reader who copies it would run it."""

import ast
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from deeplin.theory import registry

SOURCE = Path(__file__).parent.parent / "src"
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples(path):
    """(name, code) of each example in the docstrings of one file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            name = getattr(node, "name", "module")
            for match in EXAMPLE.finditer(ast.get_docstring(node) or ""):
                yield name, match[1]


FILES = [path for path in sorted(SOURCE.rglob("*.py")) if any(examples(path))]


def test_examples_are_found():
    assert sum(len(list(examples(path))) for path in FILES) > 40


@pytest.fixture
def _only_true_statements():
    """Take back the statement that an example registers."""
    yield
    registry._STATEMENTS.pop("MINE", None)


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
