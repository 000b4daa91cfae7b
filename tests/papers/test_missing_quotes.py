"""Whether a quote stands in the text of a paper, by the letters that every extraction keeps."""

from dataclasses import replace

import pytest

from deeplin.errors import InputError
from deeplin.papers.sentences import letters, missing
from deeplin.papers.verdicts import Quote, exactly


def one_quote(part):
    return Quote("one", "FM", "here", "Words.", "Ours.", "P", (), lambda config: [part], "Why.")


TEXT = """
An effi-
cient net-\nwork (Fig. 1) fits the data, \ufffdrst with \ufffd = 0. 17
Figure 3: nothing of this belongs to the sentence.
It ends where the theory says, and the risk is small.
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "paper.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "An efficient network (Fig. 1) fits the data",
        "first with α = 0",
        "An efficient network […] ends where the theory says",
        "An efficient network fits the data, first with α = 0. It ends where the theory says, and",
    ],
)
def test_a_quote_that_stands_in_a_text_is_found(folder, text):
    text = text.replace("network fits", "network (Fig. 1) fits")
    assert missing([replace(one_quote(exactly("", 0)), text=text)], folder) == []


@pytest.mark.parametrize(
    "text",
    [
        "An efficient network fits no data",
        "It ends where the theory says […] An efficient network",
        "the risk is smaller",
    ],
)
def test_a_quote_that_does_not_stand_in_a_text_is_missing(folder, text):
    quote = replace(one_quote(exactly("", 0)), text=text)
    assert missing([quote], folder) == [quote]


def test_a_folder_without_texts_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no"):
        missing([], tmp_path)
    with pytest.raises(InputError, match="not a folder"):
        missing([], tmp_path / "none")


def test_letters_keep_what_every_extraction_keeps():
    assert letters("Effect of α², ℓ2-norm") == letters("e\ufffdect of \ufffd2, \ufffd2-norm")
    assert letters("find") == letters("\ufffdnd") == letters("ﬁnd")
