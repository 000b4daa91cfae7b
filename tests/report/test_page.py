"""The report's page and files."""

import json
from html.parser import HTMLParser

import pandas as pd
import pytest
from toy_figures import LEFT_OUT

from deeplin.errors import InputError
from deeplin.papers import verdicts
from deeplin.papers.report import (
    duration,
    inline_svg,
    render,
    write_figure,
    write_page,
)
from deeplin.sources import SOURCES

ADDRESSES = {source["url"] for source in SOURCES.values()}
ADDRESSES |= {f"https://doi.org/{source['doi']}" for source in SOURCES.values() if "doi" in source}


class Reader(HTMLParser):
    """Ids, links and anything that would be loaded."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        if tag in ("link", "img", "iframe", "object") or (tag == "script" and "src" in found):
            self.loaded.append(tag)


def read_outcome(report):
    """The outcome of the first figure, without its pictures."""
    outcome = json.loads((report / "TOY-1" / "outcome.json").read_text(encoding="utf-8"))
    for panel in outcome["panels"]:
        panel["picture"] = panel["again"] = ""
    return outcome


def test_a_report_holds_figures_quotes_data_and_command(report):
    text = (report / "index.html").read_text(encoding="utf-8")
    reader = Reader(text)
    assert len(reader.ids) == len(set(reader.ids))
    assert {"TOY-1", "TOY-2", "summary", "differs", "reproduces", "questions"} <= set(reader.ids)
    assert reader.loaded == []
    for link in reader.links:
        if link.startswith("https:"):
            assert link in ADDRESSES
        elif link.startswith("#"):
            assert link[1:] in reader.ids
        else:
            assert (report / link).is_file()
    assert "deeplin reproduce TOY-1 --preset quick --seed 0" in text
    for line in (
        "Panels: 1 of 2 reproduced, 1 differs (TOY-2a).",
        "Quotes: 2 reproduced, 1 differs, 0 undecided.",
        "Theorems: none judged here.",
    ):
        assert line in text
    assert "Wider than it should be (E-9)." in text  # why the third differs
    assert "How large is it?" in text
    assert "It says what is drawn." in text  # why a sentence is left out


def test_a_quick_report_shows_what_is_recorded_of_the_full_protocol(report, monkeypatch):
    known = {"paper": {"quotes": {"first": {"verdict": "reproduced", "value": "1"}}}}
    monkeypatch.setattr(verdicts, "everything", lambda: known)
    text = write_page(report, ["TOY-1", "TOY-2"]).read_text(encoding="utf-8")
    assert "Quotes: 1 reproduced, 0 differ, 0 undecided." in text
    monkeypatch.undo()
    write_page(report, ["TOY-1", "TOY-2"], LEFT_OUT)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (["reproduced", "reproduced"], "full"),
        (["reproduced", "undecided"], "partly"),
        (["undecided"], "open"),
        (["reproduced", "differs", "undecided"], "differs"),
    ],
)
def test_a_panel_is_full_partly_open_or_differs_at_a_glance(report, found, word):
    outcome = read_outcome(report)
    (quote,) = outcome["quotes"]
    outcome["quotes"] = [quote | {"name": str(k), "verdict": v} for k, v in enumerate(found)]
    text = render([outcome])
    assert f'<a href="#TOY-1" class="{word}">' in text
    assert f"{found.count('reproduced')} of {len(found)} quotes" in text


def test_tables_are_kept_as_parquet_and_csv(report):
    parquet = pd.read_parquet(report / "data" / "toy-quick.parquet")
    csv = pd.read_csv(report / "data" / "toy-quick.csv")
    pd.testing.assert_frame_equal(parquet, csv, check_dtype=False)


def test_a_report_grows_figure_by_figure(toy_results, tmp_path):
    first, second = toy_results
    write_figure(second, tmp_path)
    page = write_page(tmp_path, ["TOY-1", "TOY-2"])
    assert 'id="TOY-1"' not in page.read_text(encoding="utf-8")
    write_figure(first, tmp_path)
    text = write_page(tmp_path, ["TOY-1", "TOY-2"]).read_text(encoding="utf-8")
    assert text.index('id="TOY-1"') < text.index('id="TOY-2"')


def test_a_figure_that_could_not_be_computed_is_named(broken_result, tmp_path):
    outcome = write_figure(broken_result, tmp_path)
    assert outcome["panels"] == []
    text = write_page(tmp_path, ["TOY-1"]).read_text(encoding="utf-8")
    assert "could not be computed" in text
    assert "RuntimeError: this unit breaks" in text


def test_text_is_escaped(report):
    outcome = read_outcome(report) | {"title": "<script>alert(1)</script>"}
    assert "<script>alert" not in render([outcome])


def test_pictures_inside_the_page_have_their_own_ids_and_follow_its_colours():
    svg = '<?xml?><svg width="1pt" height="2pt" viewBox="0 0 1 2"><metadata>m</metadata>'
    svg += '<g id="a" style="fill: #1F2328"/><use href="#a" clip-path="url(#b)"/></svg>'
    inline = inline_svg(svg, "FM-1a", 'a "caption"')
    assert 'id="FM-1a.a"' in inline
    assert 'href="#FM-1a.a"' in inline
    assert "url(#FM-1a.b)" in inline
    assert "var(--ink)" in inline
    assert "metadata" not in inline
    assert inline.startswith('<svg role="img" aria-label="a &quot;caption&quot;" viewBox')


def test_a_folder_that_cannot_be_written_is_explained(toy_results, tmp_path):
    (tmp_path / "report").write_text("a file")
    with pytest.raises(InputError, match="pass --out"):
        write_figure(toy_results[0], tmp_path / "report")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.23, "1.2 s"), (59.6, "60 s"), (150, "2 min 30 s"), (17_860, "4 h 57 min")],
)
def test_durations_are_for_people(seconds, text):
    assert duration(seconds) == text
