"""The page for eyes, ears and keys: help, animation, hover, dark, phone, zoom, labels."""

import pytest

pytestmark = pytest.mark.browser
QUICK = "#depth=3&steps=60&seeds=2"


def test_every_picture_explains_itself(visit):
    visitor = visit(QUICK).drawn()
    for figure in visitor.page.locator("#view-training figure").all():
        button, words = figure.locator(".ask"), figure.locator(".help")
        assert not words.is_visible()
        button.click()
        assert words.is_visible()
        assert len(words.text_content()) > 80
        assert button.get_attribute("aria-expanded") == "true"
        button.click()
    others = ("phase", "wide_loss", "wide_distance", "wide_spectrum", "wide_parts")
    for name in (*others, "orbits", "orbit_steps", "double_descent"):
        assert len(visitor.page.locator(f"#help-{name}").text_content()) > 80


def test_training_plays_pauses_and_steps(visit):
    visitor = visit(QUICK).drawn()
    visitor.page.locator("#speed").select_option("4")
    visitor.drawn(lambda: visitor.press("▶ Play"))
    visitor.wait("document.getElementById('frame').valueAsNumber > 2")
    visitor.press("❚❚ Pause")
    frame = "document.getElementById('frame').valueAsNumber"
    before = visitor.page.evaluate(frame)
    visitor.drawn(lambda: visitor.press("One record forward"))
    assert visitor.page.evaluate(frame) == before + 1
    visitor.drawn(lambda: visitor.press("One record back"))
    assert visitor.page.evaluate(frame) == before
    steps = visitor.page.evaluate("deeplin.shown().result.steps")
    assert f"step {steps[before]}," in visitor.text("readout")
    assert f"at step {steps[before]}" in visitor.text("figure-network")
    visitor.drawn(lambda: visitor.press("▶ Play"))
    visitor.wait("document.getElementById('play').textContent.includes('Play')")
    assert visitor.page.evaluate(frame) == len(steps) - 1


def test_values_are_shown_on_hover_and_by_keys(visit):
    visitor = visit(QUICK).drawn()
    canvas, tooltip = visitor.page.locator("#figure-gap canvas"), visitor.page.locator("#tooltip")
    canvas.hover()
    assert "first run" in tooltip.text_content()
    visitor.page.mouse.move(2, 2)
    assert not tooltip.is_visible()
    canvas.focus()
    canvas.press("ArrowRight")
    steps, gap = visitor.page.evaluate(
        "[deeplin.shown().result.steps, deeplin.shown().result.runs[0].gap[1]]"
    )
    assert f"steps {steps[1]}" in tooltip.text_content()
    shown = float(tooltip.locator("div", has_text="first run").locator("b").text_content())
    assert shown == pytest.approx(gap, rel=1e-4)
    canvas.press("Escape")
    assert not tooltip.is_visible()


def test_dark_and_light_follow_the_system_and_the_button(visit):
    visitor = visit(QUICK, color_scheme="dark").drawn()
    paper = "getComputedStyle(document.body).backgroundColor"
    assert visitor.page.evaluate(paper) == "rgb(22, 25, 29)"
    visitor.drawn(lambda: visitor.page.locator("#theme").click())
    assert visitor.page.evaluate(paper) == "rgb(255, 255, 255)"


def test_phone_shows_the_sharpness_and_keeps_the_sliders_in_sight(visit):
    visitor = visit(viewport={"width": 390, "height": 844}).drawn()
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 390
    plot = visitor.page.locator("#figure-sharpness canvas").bounding_box()
    rate = visitor.page.locator("input[name=learning_rate]")
    before = rate.bounding_box()
    assert plot["height"] > 180
    assert plot["y"] + plot["height"] < before["y"] < 844 - before["height"]
    assert visitor.page.locator("#figure-alignment").bounding_box()["y"] > 844
    visitor.page.locator("#figure-alignment").scroll_into_view_if_needed()
    assert visitor.page.locator("#figure-alignment").bounding_box()["y"] < before["y"]
    assert rate.bounding_box() == before


@pytest.mark.parametrize(
    ("tab", "figure"),
    [("wide", "wide_loss"), ("orbits", "orbits"), ("double_descent", "double_descent")],
)
def test_phone_shows_the_first_picture_of_every_page_above_its_inputs(visit, tab, figure):
    link = f"#tab={tab}&wide_steps=100&wide_dimension=60&wide_samples=20"
    visitor = visit(link, viewport={"width": 390, "height": 844}).drawn()
    plot = visitor.page.locator(f"#figure-{figure} canvas").bounding_box()
    assert plot["y"] + plot["height"] < visitor.page.locator("#inputs").bounding_box()["y"]


def test_empty_panels_say_why(visit):
    visitor = visit("#architecture=relu&depth=1&steps=30&seeds=1").drawn()
    pictures = visitor.page.evaluate(
        """async () => { const said = []; const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
          said.push(text); return write.call(this, text, ...rest); };
        const before = deeplin.pictures;
        document.getElementById("theme").click();
        while (deeplin.pictures === before) await new Promise(requestAnimationFrame);
        CanvasRenderingContext2D.prototype.fillText = write;
        return said.join(" "); }"""
    )
    assert "no single linear map" in pictures
    assert "no neighbor to be aligned with" in pictures


def test_plots_stay_at_twice_the_zoom(visit):
    visitor = visit(QUICK, viewport={"width": 640, "height": 400}, device_scale_factor=2).drawn()
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 640
    for figure in visitor.page.locator("#view-training figure canvas").all():
        box = figure.bounding_box()
        assert box["height"] >= 100
        assert box["width"] >= 280


def test_every_control_and_picture_has_a_name(visit):
    visitor = visit(QUICK).drawn()
    nameless = visitor.page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, canvas")].filter((element) =>
          !(element.getAttribute("aria-label") || element.labels?.length
            || element.textContent.trim()
            || element.closest("figure.waiting"))).map((element) => element.outerHTML)"""
    )
    assert nameless == []


def test_keyboard_reaches_everything_and_can_skip(visit):
    visitor = visit(QUICK).drawn()
    visitor.page.keyboard.press("Tab")
    assert visitor.page.evaluate("document.activeElement.className") == "skip"
    visitor.page.keyboard.press("Enter")
    visitor.page.keyboard.press("Tab")
    seen = set()
    for _ in range(60):
        seen.add(visitor.page.evaluate("document.activeElement.name || document.activeElement.id"))
        visitor.page.keyboard.press("Tab")
    assert {"learning_rate", "steps", "architecture", "depth", "file", "flow"} <= seen
    visitor.page.locator("#tab-training").focus()
    visitor.drawn(lambda: visitor.page.keyboard.press("ArrowRight"))
    assert visitor.page.locator("#tab-phase").get_attribute("aria-selected") == "true"
