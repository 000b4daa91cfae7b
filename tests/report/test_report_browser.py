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
    assert page.locator("#summary").inner_text() == "2 of 3 claims hold, 1 fails"
    pictures = page.locator("figure svg")
    assert pictures.count() == 4
    for index in range(4):
        box = pictures.nth(index).bounding_box()
        assert box["width"] >= min(width, 400) * 0.7
        assert box["height"] >= 150
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert (ink == "rgb(227, 231, 236)") == (scheme == "dark")
    if width == 390:  # a phone shows the pictures; a touch opens the rest
        claims = page.locator("#TOY-2 details", has_text="claims with what was measured").first
        assert not page.get_by_text("Wider than it should be").is_visible()
        claims.locator("summary").first.click()
    assert page.get_by_text("Wider than it should be").is_visible()
    text = page.locator("figure svg path[style*='--ink']").first
    assert text.count() == 1
    context.close()


def test_the_front_page_leads_to_every_figure(browser, report):
    page = browser.new_page()
    page.set_default_timeout(GUARD)
    page.goto((report / "index.html").as_uri())
    page.get_by_role("link", name="TOY-2").click()
    page.wait_for_url("**#TOY-2")
    assert page.locator("#TOY-2").is_visible()
    assert page.locator("#TOY-2 .badge.part").count() == 1  # the figure
    assert page.locator("#TOY-2 .badge.fails").count() == 1  # its claim
    page.close()
