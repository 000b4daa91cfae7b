"""Every statement of the registry can be written on the page, formula included."""

import re
from xml.etree import ElementTree

import pandas as pd
import pytest

from deeplin.explorer.state import State
from deeplin.explorer.theorems import MARKS, TheoremsTab, mathml
from deeplin.theory import STATEMENTS


@pytest.mark.parametrize("id", STATEMENTS)
def test_formula_becomes_well_formed_mathml_without_leftover_commands(id):
    markup = mathml(STATEMENTS[id].formula)
    root = ElementTree.fromstring(markup.replace("&nbsp;", " "))
    assert root.tag.endswith("math")
    assert not re.findall(r"\\[a-zA-Z]+", markup)


def test_violated_statements_come_first_and_are_counted():
    ids = list(STATEMENTS)[:4]
    table = pd.DataFrame(
        {
            "id": ids,
            "title": ["<b>bold</b>", "two", "three", "four"],
            "verdict": list(reversed(MARKS)),
            "hypotheses": ["", "L > 1", "", ""],
            "part": ["", "", "(a)", ""],
            "left": [1.0, float("nan"), 2.0, 0.5],
            "right": [2.0, 1.0, 1.0, 1.0],
            "margin": [1.0, float("nan"), -1.0, 0.5],
        }
    )
    tab = TheoremsTab(lambda **_: None)
    words = tab.show(State(), table)
    assert "1 violated" in words
    assert 'class="bad"' in words
    html = tab.rows.text
    places = [html.index(f"<b>{id}</b>") for id in ids]
    assert places[2] == min(places)
    assert "<b>bold</b>" not in html
    assert "nan" not in html
