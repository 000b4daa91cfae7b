"""Every claim of every figure is seen holding and seen broken by the tests beside this one."""

import ast
import inspect
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from deeplin.papers import catalogue as figures
from deeplin.papers.claims import Claim

MAKERS = ("Claim", "on_data_sets")
SOURCES = Path(inspect.getfile(figures)).parent


class AboutClaims:
    """Keeps the tests that judge made-up tables, which take milliseconds."""

    def pytest_collection_modifyitems(self, items):
        items[:] = [i for i in items if "check_broken" in i.fixturenames or "claim" in i.name]


def sites():
    """Every call `Claim(…)` or `on_data_sets(…)` of the figures: its file, first and last line."""
    for path in sorted({*SOURCES.glob("*.py")} - {SOURCES / "claims.py"}):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in MAKERS:
                yield str(path), node.lineno, node.end_lineno


def one_sided(seen):
    """The claims that were never judged, or only ever one way."""
    for file, first, last in sites():
        here = [key for key in seen if key[0] == file and first <= key[1] <= last]
        names = [name for _, _, name in here if len(seen[file, first, name]) < 2]
        if names or not here:
            yield f"{Path(file).name}, line {first}: {', '.join(names) or 'never judged'}"


def test_every_claim_is_seen_holding_and_broken(monkeypatch):
    """A claim needs a table that keeps it and one that breaks it: see `check_broken`.

    The tests are run once more, in here, so that the answer does not depend on which others run.
    """
    seen = defaultdict(set)
    judge = Claim.__post_init__

    def noting(claim):
        judge(claim)
        call = sys._getframe(2)  # of __init__, which called __post_init__, which called this
        if call.f_code.co_name == "on_data_sets":
            call = call.f_back
        seen[call.f_code.co_filename, call.f_lineno, claim.name].add(claim.holds)

    monkeypatch.setattr(Claim, "__post_init__", noting)
    options = ["-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist"]
    chosen = [f"--ignore={__file__}", str(Path(__file__).parent)]
    assert pytest.main([*options, *chosen], plugins=[AboutClaims()]) == 0
    assert len(seen) > 100
    assert list(one_sided(seen)) == []
