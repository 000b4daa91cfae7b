"""Files, functions and lists of parameters stay short enough to be read at once."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "deeplin"
FILES = sorted(SOURCE.rglob("*.py"))
LINES = 300
FUNCTION, TYPICAL = 75, 40
PARAMETERS = 8


def name(path):
    return path.relative_to(SOURCE).as_posix()


@pytest.fixture(scope="module")
def functions():
    """Every function: where it is, and its tree."""
    found = []
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append((f"{name(path)}:{node.name}", node))
    return found


def length(node):
    """Lines without the docstring."""
    first = node.body[0]
    documented = ast.get_docstring(node) is not None
    words = first.end_lineno - first.lineno + 1 if documented else 0
    return node.end_lineno - node.lineno + 1 - words


def test_files_are_short():
    counts = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {n: c for n, c in counts.items() if c > LINES} == {}


def test_functions_are_short(functions):
    code = ((where, node) for where, node in functions if not where.endswith("claims"))
    lengths = {where: length(node) for where, node in code}  # lists of claims are data
    assert {where: count for where, count in lengths.items() if count > FUNCTION} == {}
    longer = sum(count > TYPICAL for count in lengths.values())
    assert longer <= 0.02 * len(lengths)  # long lists of options, mostly


def test_functions_have_few_parameters(functions):
    """Except those called with names: public ones with keywords, commands, instructions."""
    many = []
    for where, node in functions:
        positional = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        positional = [a for a in positional if a not in ("self", "cls", "typing_context")]
        decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
        named = node.args.kwonlyargs or decorators & {"app.command()", "intrinsic"}
        if len(positional) > PARAMETERS and not named:
            many.append(where)
    assert many == []
