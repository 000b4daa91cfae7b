"""The exported page is one small file that works from disk."""

import json
import re
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from deeplin.explorer import build
from deeplin.explorer.build import inputs, page, presets


def settings_of(html):
    return json.loads(re.search(r'id="settings">(.*?)</script>', html, re.DOTALL)[1])


def test_page_is_small_and_self_contained():
    html = page()
    assert len(html.encode()) < 400_000
    assert "<!-- " not in html
    assert not re.search(r'<(script|link|img|iframe)[^>]*(src|href)="(?!data:,)', html)
    assert not re.search(r'(src|href)="(?!#|data:,|https://arxiv.org/abs/)', html)
    assert "connect-src 'none'" in html
    assert set(settings_of(html)) == {"inputs", "presets"}


def test_settings_cannot_end_their_block(monkeypatch):
    monkeypatch.setattr(build, "presets", lambda: {"name": "</script><b>"})
    assert settings_of(page())["presets"]["name"] == "</script><b>"


def test_presets_use_inputs_that_exist_and_fit():
    known = inputs()
    for preset in presets().values():
        assert len(preset["steps"]) in (3, 5)
        moves = [step for step in preset["steps"] if "move" in step]
        for step in moves:
            assert all(low <= step["to"][n] <= high for n, (low, high) in step["when"].items())
        states = [preset["state"], *(step["to"] for step in moves)]
        for name, value in [item for state in states for item in state.items()]:
            bound = known[name]
            if "low" in bound:
                assert bound["low"] <= value <= bound["high"] or (bound.get("zero") and value == 0)
            else:
                assert value in bound.get("options", (True, False))


@pytest.mark.browser
def test_file_link_restores_the_view_and_workers_run(visit):
    visitor = visit("?tab=phase&depth=2&steps=50")
    assert "700 runs" in visitor.verdict("diverged")


def test_command_writes_the_page_and_opens_it(command, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert command("explore")[0] == 0
    file = Path(url2pathname(urlsplit(opened[0]).path))
    assert file.read_text(encoding="utf-8") == page()
    assert command("explore", "--no-browser")[0] == 0
    assert len(opened) == 1


def test_command_exports_the_page_and_does_not_open_it(command, tmp_path, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda _: pytest.fail("opened"))
    assert command("explore", "--export", tmp_path / "page.html")[0] == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page()


def test_command_refuses_a_folder(command, tmp_path):
    code, _, message = command("explore", "--export", tmp_path)
    assert code == 2
    assert "no file in an existing folder" in message
