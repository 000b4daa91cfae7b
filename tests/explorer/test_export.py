"""The exported page is one small file that works from disk and holds its presets' certificates."""

import json
import re
import subprocess
import sys

import pytest

import deeplin.explorer.answers as answers
from deeplin.cli.app import write_page
from deeplin.explorer.build import PAGE, bundle, inputs, page, presets


def settings_of(html):
    return json.loads(re.search(r'id="settings">(.*?)</script>', html, re.DOTALL)[1])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The page with the certificate of one preset (all of them take a minute to compute)."""
    path = tmp_path_factory.mktemp("export") / "page.html"
    only = {"residual": presets()["residual"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "presets", lambda: only)
        write_page(path)
    return path


def test_page_is_small_and_self_contained(exported):
    html = exported.read_text(encoding="utf-8")
    assert len(html.encode()) < 400_000
    assert "<!-- " not in html
    assert not re.search(r'<(script|link|img|iframe)[^>]*(src|href)="(?!data:,)', html)
    assert not re.search(r'(src|href)="(?!#|data:,|https://arxiv.org/abs/)', html)
    assert "connect-src 'none'" in html
    assert settings_of(html)["server"] is None


def test_every_module_is_in_the_bundle_once():
    text = bundle()
    for entry in PAGE.iterdir():
        if entry.name.endswith(".js"):
            assert text.count(f'define("{entry.name}"') == 1
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
    assert "</script" not in text


def test_settings_cannot_end_their_block():
    html = page(server={"token": "</script><b>"})
    assert settings_of(html)["server"]["token"] == "</script><b>"


def test_no_command_of_latex_is_left_in_a_formula():
    left = {name for name, known in answers.statements().items() if "\\" in known["formula"]}
    assert left == set()


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
                assert value in bound["options"]


@pytest.mark.browser
def test_file_shows_the_certificate_of_its_preset_and_says_so(visit, exported):
    visitor = visit("#flow=no", url=exported.as_uri())
    visitor.verdict("η")
    visitor.press("Residual network")
    visitor.verdict("converged")
    visitor.page.get_by_role("tab", name="Theorems").click()
    words = visitor.verdict("statements on the first run of gradient descent")
    assert "when this file was exported" in words
    assert visitor.page.locator("#certificate math").count() > 20
    visitor.type("depth", 7)
    assert "deeplin explore" in visitor.verdict("No certificate for this state")


@pytest.mark.browser
def test_file_link_restores_the_view_and_workers_run(visit, page_file):
    visitor = visit("?tab=phase&depth=2&steps=50", url=page_file.as_uri())
    assert "700 runs" in visitor.verdict("diverged")


def test_command_refuses_a_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "deeplin", "explore", "--export", str(tmp_path)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no file in an existing folder" in done.stderr
