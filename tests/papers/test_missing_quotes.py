"""Whether a quote stands in the text of a paper, by the letters that every extraction keeps."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "check_quotes.py"))
letters, stands = SCRIPT["letters"], SCRIPT["stands"]

TEXT = """
An effi-
cient net-\nwork (Fig. 1) fits the data, \ufffdrst with \ufffd = 0. 17
Figure 3: nothing of this belongs to the sentence.
It ends where the theory says, and the risk is small.
"""


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("An efficient network (Fig. 1) fits the data", True),
        ("first with α = 0", True),
        ("An efficient network […] ends where the theory says", True),
        ("network (Fig. 1) fits the data, first with α = 0. It ends where the theory", True),
        ("An efficient network fits no data", False),
        ("It ends where the theory says […] An efficient network", False),
        ("the risk is smaller", False),
    ],
)
def test_a_quote_stands_in_a_text_or_does_not(quote, found):
    assert stands(quote, letters(TEXT)) == found


def test_letters_keep_what_every_extraction_keeps():
    assert letters("Effect of α², ℓ2-norm") == letters("e\ufffdect of \ufffd2, \ufffd2-norm")
    assert letters("find") == letters("\ufffdnd") == letters("ﬁnd")
