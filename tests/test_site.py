"""The documentation as a site: it builds without a warning and its search works from disk."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return folder


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
@pytest.mark.parametrize("page_name", ["index.html", "concepts/sharpness.html"])
def test_search_finds_a_page_from_disk_and_asks_no_server(site, page_name):
    from playwright.sync_api import sync_playwright

    asked = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / page_name).as_uri())
        field = page.get_by_placeholder("Search")
        field.click()
        field.press_sequentially("sharpness")
        result = page.locator(".md-search-result__link").first
        result.wait_for(state="attached")
        assert result.get_attribute("href")
        browser.close()
    assert asked
    assert all(url.startswith(("file:", "data:", "about:", "blob:")) for url in asked)
