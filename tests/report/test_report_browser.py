"""The report in a real browser, opened from a file, at laptop and phone widths."""

import pytest

GUARD = 300_000
"""Milliseconds after which something that never comes fails a test; what comes is waited for."""

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_the_report_reads_well_at_every_width(browser, report, width, scheme):
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True
    )
    context.set_default_timeout(GUARD)
    page = context.new_page()
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((report / "index.html").as_uri())
    assert [url for url in requests if not url.startswith("file:")] == []
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    rows = "[...document.querySelectorAll('.gallery, .panels')]"
    assert not page.evaluate(f"{rows}.some(e => e.scrollWidth > e.clientWidth)")
    lines = page.locator("#summary li").all_inner_texts()
    assert lines[1] == "Quotes: 2 reproduced, 1 differs, 0 undecided."
    assert page.locator("#differs .card").is_visible()
    assert page.get_by_text("Wider than it should be").first.is_visible()
    height = page.locator("#differs .card").bounding_box()["y"]
    assert height < 800  # on the first screen
    shown = page.locator("#differs .card svg").bounding_box()
    assert shown["width"] >= 150
    assert shown["height"] >= 100
    assert page.locator("#questions").get_by_text("Two, ± 0.1.").is_visible()
    assert not page.locator("#TOY-2 figure").first.is_visible()  # folded
    page.locator("#TOY-2 > summary").click()
    box = page.locator("#TOY-2 figure svg").first.bounding_box()
    assert box["width"] >= min(width, 400) * 0.7
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert (ink == "rgb(227, 231, 236)") == (scheme == "dark")
    assert page.locator("figure svg path[style*='--ink']").first.count() == 1
    context.close()


def test_a_touch_on_a_panel_opens_its_figure(browser, report):
    page = browser.new_page()
    page.set_default_timeout(GUARD)
    page.goto((report / "index.html").as_uri())
    page.locator("#reproduces .gallery a", has_text="TOY-1a").click()
    page.wait_for_url("**#TOY-1")
    page.locator("#TOY-1 figure svg").first.wait_for(state="visible")
    page.close()
