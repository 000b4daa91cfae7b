"""The documentation as a site: it builds without a warning and its search works from disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return folder


@pytest.mark.browser
@pytest.mark.parametrize("page_name", ["index.html", "concepts/sharpness.html"])
def test_search_finds_a_page_from_disk_and_asks_no_server(site, browser, page_name):
    asked = []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / page_name).as_uri())
    field = page.get_by_placeholder("Search")
    field.click()
    field.press_sequentially("sharpness")
    result = page.locator(".md-search-result__link").first
    result.wait_for(state="attached")
    assert result.get_attribute("href")
    page.close()
    assert asked
    assert all(url.startswith(("file:", "data:", "about:", "blob:")) for url in asked)


@pytest.mark.browser
def test_explorer_can_be_tried_in_the_documentation(site, browser):
    page = browser.new_page()
    page.goto((site / "explorer.html").as_uri())
    page.get_by_title("The explorer").scroll_into_view_if_needed()
    inside = page.frame_locator("iframe[title='The explorer']").locator("#verdict")
    inside.get_by_text("All 5 runs converged").wait_for()
    assert inside.is_visible()
    page.close()


@pytest.mark.browser
def test_stories_of_the_explorer_link_to_pages_of_the_documentation(site, browser):
    page = browser.new_page()
    page.goto((site / "explorer-page.html").as_uri())
    page.wait_for_function("() => window.deeplin?.pictures > 0")
    linked = set()
    for name in page.evaluate("deeplin.presets"):
        page.evaluate("(name) => deeplin.load(name)", name)
        links = page.locator("#story-read a").all()
        linked |= {link.get_attribute("href") for link in links}
    page.close()
    inside = {link for link in linked if not link.startswith("https://arxiv.org/abs/")}
    assert len(inside) >= 6
    assert [link for link in inside if not (site / link).is_file()] == []


@pytest.mark.browser
@pytest.mark.parametrize(
    "page_name",
    ["index.html", "exact-results.html", "how-to/pytorch.html", "notebooks/first_steps.html"],
)
def test_formulas_code_and_pictures_stay_within_a_phone(site, browser, page_name):
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto((site / page_name).as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()
