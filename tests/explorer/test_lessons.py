"""Every lesson of docs/teaching.md, followed in the browser from its first to its last instruction.

An instruction may choose a preset, open a page, set inputs and press buttons; names are bold. What
it puts in quotation marks must then be on the page.
"""

import re
from pathlib import Path

import pytest

from deeplin.explorer.build import inputs, presets

pytestmark = pytest.mark.browser
TEXT = (Path(__file__).parents[2] / "docs" / "teaching.md").read_text("utf-8")
LESSON = re.compile(r"^## (Lesson \d): ([^\n]+)\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
INSTRUCTION = re.compile(r"^(\d+)\. (.*?)(?=^\d+\. |^\n|\Z)", re.MULTILINE | re.DOTALL)
ACTION = re.compile(r"(Choose|Open|Press) \*\*(.+?)\*\*|[Ss]et \*\*(.+?)\*\* to \*\*(.+?)\*\*")
TITLES = {preset["title"] for preset in presets().values()}
LABELS = {
    (given["label"], given["group"]): name for name, given in inputs().items() if "group" in given
}
GROUPS = {"wide": ("wide", "population"), "double_descent": ("population",), "orbits": ("orbits",)}
LESSONS = {number: (title, text) for number, title, text in LESSON.findall(TEXT)}


def instructions(text):
    found = [(int(n), " ".join(words.split())) for n, words in INSTRUCTION.findall(text)]
    assert [n for n, _ in found] == list(range(1, len(found) + 1))
    return [words for _, words in found]


def do(visitor, verb, name, label, value):
    if label:
        tab = visitor.page.evaluate("deeplin.current().settings.tab")
        groups = GROUPS.get(tab, ("descent", "network", "data", "axes", "phase"))
        name = next(LABELS[label, group] for group in groups if (label, group) in LABELS)
        if inputs()[name]["kind"] == "choice":
            options = inputs()[name]["options"]
            value = next(key for key, shown in options.items() if shown == value)
            place = visitor.page.locator(f"#input-{name}")
            return visitor.drawn(lambda: place.select_option(value))
        return visitor.drawn(lambda: visitor.type(name, value))
    if verb == "Open":
        return visitor.drawn(visitor.page.get_by_role("tab", name=name).click)
    if verb == "Choose":
        assert name in TITLES
    return visitor.drawn(lambda: visitor.press(name))


def test_there_are_four_lessons_of_forty_five_minutes():
    assert list(LESSONS) == [f"Lesson {k}" for k in (1, 2, 3, 4)]
    for _, text in LESSONS.values():
        minutes = [int(part) for part in re.findall(r"\((\d+) minutes\)", text)]
        assert sum(minutes) == 45


@pytest.mark.parametrize("number", LESSONS)
def test_every_instruction_shows_what_it_promises(visit, number):
    visitor = visit().drawn()
    steps = instructions(LESSONS[number][1])
    acted = promised = 0
    for words in steps:
        for action in ACTION.findall(words):
            do(visitor, *action)
            acted += 1
        shown = " ".join(visitor.page.locator("#pictures").inner_text().split())
        for quote in re.findall("“(.+?)”", words):
            assert quote in shown, words
            promised += 1
    assert acted >= 6
    assert promised >= 6
