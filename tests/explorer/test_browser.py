"""The explorer in headless Chromium, which may talk to the explorer and to nothing else."""

import gc
import json
import math
import re
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from bokeh.client import pull_session

from deeplin.explorer.page import Page

pytestmark = pytest.mark.browser
PATIENCE = 120_000
"""Milliseconds; the first picture compiles, and the machine may be busy."""
MODEL = "Bokeh.documents[0].get_model_by_name"


class Visitor:
    """A browser page on the explorer, with every request to other places refused and noted."""

    def __init__(self, browser, url, link="", **options):
        self.context = browser.new_context(
            viewport=options.pop("viewport", {"width": 1280, "height": 800}), **options
        )
        self.page = self.context.new_page()
        self.strangers, self.errors = [], []
        self.context.set_default_timeout(PATIENCE)
        elsewhere = re.compile(f"^(?!{re.escape(url)}|data:|blob:)")
        self.page.route(elsewhere, self._refuse)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(url + link)
        self.page.wait_for_function("document.documentElement.dataset.ready == 'yes'")

    def _refuse(self, route):
        self.strangers.append(route.request.url)
        route.abort()

    def text(self, name):
        return self.page.evaluate(f"{MODEL}('{name}').text")

    def verdict(self, words):
        """Wait until the verdict holds these words, and return it."""
        self.wait(f"{MODEL}('verdict').text.includes({json.dumps(words)})")
        return self.text("verdict")

    def wait(self, condition):
        self.page.wait_for_function(condition)

    def curve(self, name="gap"):
        """The median curve of a quantity, as the browser has it."""
        return self.page.evaluate(
            f"Array.from({MODEL}('{name}').renderers.at(-1).data_source.data.middle)"
        )

    def press(self, label):
        self.page.get_by_role("button", name=label, exact=True).click()

    def close(self):
        self.context.close()
        assert self.strangers == []
        assert self.errors == []


@pytest.fixture
def visit(browser, explorer):
    visitors = []

    def open_page(link="", **options):
        visitors.append(Visitor(browser, explorer.url, link, **options))
        return visitors[-1]

    yield open_page
    for visitor in visitors:
        visitor.close()


def test_training_page_shows_curves_and_words(visit):
    visitor = visit()
    assert "Progressive sharpening" in visitor.verdict("converged")
    curve = visitor.curve()
    assert curve[0] > 1e3 * curve[-1] > 0
    assert "critical" in visitor.text("critical")
    assert visitor.page.locator("canvas").count() >= 6


def test_slider_moves_by_keyboard_and_the_link_follows(visit):
    visitor = visit("?steps=100&flow=no&seeds=2")
    visitor.verdict("η")
    before = visitor.curve()
    handle = visitor.page.locator("[data-group=descent] .noUi-handle").first
    handle.focus()
    handle.press("ArrowRight")
    visitor.wait("location.search.includes('learning_rate')")
    visitor.wait(f"{MODEL}('gap').renderers.at(-1).data_source.data.middle[50] != {before[50]}")
    assert visitor.curve()[0] == before[0]
    assert visitor.curve()[50] < before[50]  # a larger step gets farther


def test_layers_are_drawn_as_lines(visit):
    visitor = visit("?depth=3&steps=100&flow=no&seeds=2")
    visitor.verdict("η")
    data = f"{MODEL}('alignment').renderers[0].data_source.data"
    shape = visitor.page.evaluate(f"{data}.layer_norms.map((row) => row.length)")
    assert shape == [len(visitor.curve())] * 3
    first, last = visitor.page.evaluate(f"[{data}.alignment[0].at(-1), {data}.alignment[2].at(-1)]")
    assert 0 < first <= 1
    assert last is None or last != last  # three layers have two pairs of neighbours


def test_link_restores_the_view(visit):
    visitor = visit("?tab=training&depth=3&learning_rate=0.05&vertical_scale=linear&flow=no")
    visitor.verdict("η = 0.05")
    assert visitor.page.evaluate(f"{MODEL}('depth').value") == 3
    assert visitor.page.evaluate(f"{MODEL}('gap').y_scale.type") == "LinearScale"


def test_broken_link_is_said_and_the_default_shown(visit):
    visitor = visit("?depth=1000000000")
    visitor.verdict("η")  # the complaint outlives the first picture
    assert "Depth L is 1e+09" in visitor.text("message")
    assert visitor.page.evaluate(f"{MODEL}('message').visible")
    assert visitor.page.evaluate(f"{MODEL}('depth').value") == 10


def test_divergent_run_is_called_so(visit):
    visitor = visit("?learning_rate=2&flow=no")
    assert "no minimiser is stable" in visitor.verdict("diverged, the first at step")


def test_preset_button_opens_its_state(visit):
    visitor = visit("?flow=no")
    visitor.press("Edge of stability")
    visitor.verdict("Edge of stability")
    visitor.wait("location.search.includes('scale=0.45')")
    assert visitor.page.evaluate(f"{MODEL}('steps').value") == pytest.approx(math.log10(4000))


def test_forged_depth_gets_an_error(visit):
    visitor = visit("?flow=no&steps=50")
    visitor.verdict("η")
    before = visitor.curve()
    visitor.page.evaluate(f"{MODEL}('depth').value = 1e9")
    visitor.wait(f"{MODEL}('message').visible")
    assert "Depth L is 1e+09; pass a whole number" in visitor.text("message")
    assert visitor.curve() == before


def test_cell_of_the_phase_diagram_opens_its_run(visit):
    visitor = visit("?tab=phase&steps=50&depth=3&flow=no")
    visitor.verdict("critical rate")
    visitor.page.get_by_role("button", name="Open this run").click()
    visitor.wait("document.getElementById('page').dataset.tab == 'training'")
    visitor.verdict("η = ")
    assert "learning_rate" in visitor.page.evaluate("location.search")


def test_wide_page_trains_a_billion_units(visit):
    visitor = visit("?tab=wide&wide_width=1000000000&wide_dimension=100&wide_samples=20")
    assert "1,000,000,000" in visitor.verdict("Interpolates")
    assert "BO-T3.1" in visitor.text("numbers")


def test_theorems_page_shows_formulas_without_scripts(visit):
    visitor = visit("?tab=theorems&depth=2&width=2&steps=30&dimension=2&samples=10")
    visitor.verdict("statements")
    html = visitor.text("certificate")
    assert "<math" in html
    assert "FM-L8" in html
    assert "MathJax" not in visitor.page.content()


def test_kept_run_is_compared_and_survives_in_the_link(visit):
    visitor = visit("?depth=2&steps=50&flow=no")
    visitor.verdict("η")
    visitor.press("Keep as A")
    visitor.wait("location.search.includes('saved_a')")
    visitor.page.evaluate(f"{MODEL}('depth').value = 4")
    visitor.wait(f"{MODEL}('comparison').text.includes('Depth L')")
    assert "<th>Depth L</th><td>4</td><td>2</td>" in visitor.text("comparison")
    assert "depth%3D2" in visitor.page.evaluate("location.search")


def test_downloads_are_data_and_figures(visit, tmp_path):
    visitor = visit("?depth=2&steps=50&flow=no")
    visitor.verdict("η")
    for label, start in (
        ("Data (CSV)", b"step,run,risk"),
        ("Figure (PNG)", b"\x89PNG"),
        ("Figure (SVG)", b"<svg"),
    ):
        with visitor.page.expect_download() as download:
            visitor.press(label)
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        assert path.read_bytes().startswith(start)


def test_broken_and_good_files(visit):
    visitor = visit("?depth=2&steps=50&flow=no")
    visitor.verdict("η")
    upload = visitor.page.locator("#file")
    upload.set_input_files({"name": "bad.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,x\n"})
    visitor.wait(f"{MODEL}('message').visible && {MODEL}('message').text.includes('bad')")
    rows = b"".join(b"%d,%d,%d\n" % (k, k * k % 7, 3 * k + k * k % 5) for k in range(20))
    good = {"name": "good.csv", "mimeType": "text/csv", "buffer": b"a,b,y\n" + rows}
    upload.set_input_files(good)
    visitor.wait(f"{MODEL}('message').text.includes('20 rows, 2 inputs')")
    visitor.page.locator("#file").set_input_files(
        {"name": "big.csv", "mimeType": "text/csv", "buffer": b"1," * 1_500_000}
    )
    note = visitor.page.locator("#file-note")
    note.get_by_text("larger").wait_for()
    assert note.text_content() == "This file is larger than 2 MB."
    assert "20 rows, 2 inputs" in visitor.text("message")


def test_phone_shows_pictures_and_inputs_together(visit):
    visitor = visit("?flow=no", viewport={"width": 390, "height": 844})
    visitor.verdict("η")
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 390
    for part in ("#pictures", "aside"):
        box = visitor.page.locator(part).bounding_box()
        assert box["y"] < 844
        assert box["height"] > 200


def test_dark_and_light_follow_the_system_and_the_button(visit):
    visitor = visit("?flow=no", color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert visitor.page.evaluate(paper) == "rgb(22, 25, 29)"
    visitor.page.locator("#theme").click()
    assert visitor.page.evaluate(paper) == "rgb(255, 255, 255)"


def test_every_control_can_be_reached_by_keyboard(visit):
    visitor = visit("?flow=no")
    visitor.verdict("η")
    seen = set()
    for _ in range(40):
        visitor.page.keyboard.press("Tab")
        seen.add(
            visitor.page.evaluate(
                """(() => { let e = document.activeElement;
                while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement;
                return e.getAttribute('role') || e.tagName; })()"""
            )
        )
    assert {"BUTTON", "slider", "SELECT", "SUMMARY"} <= seen


def ask(explorer, seed, everyone):
    """A visitor without a browser: open a session, move a slider, wait for the verdict."""
    arguments = {"width": "2", "steps": "20", "seeds": "1", "flow": "no", "data_seed": str(seed)}
    client = pull_session(url=explorer.url.rstrip("/"), arguments=arguments)
    try:
        (session,) = (s for s in explorer.sessions() if s.id == client.id)
        verdict = session.document.get_model_by_name("verdict")
        everyone.wait(PATIENCE / 1000)
        client.document.get_model_by_name("depth").value = 2
        end = time.monotonic() + PATIENCE / 1000
        while "η" not in verdict.text and time.monotonic() < end:
            client.force_roundtrip()
            time.sleep(0.05)
        everyone.wait(PATIENCE / 1000)  # nobody leaves before all have been served
        return verdict.text
    finally:
        client.close()


def test_twenty_visitors_are_served_and_leave_nothing_behind(browser, explorer):
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    pages = [context.new_page() for _ in range(3)]
    for page in pages:
        page.goto(explorer.url + "?depth=2&steps=20&seeds=1&flow=no", wait_until="commit")
    everyone = threading.Barrier(17)
    with ThreadPoolExecutor(17) as pool:
        asked = [pool.submit(ask, explorer, seed, everyone) for seed in range(17)]
        assert all("η = 0.02" in answer.result() for answer in asked)
    for page in pages:
        page.wait_for_function(
            f"window.Bokeh?.documents?.length && {MODEL}('verdict').text.includes('η')"
        )
    gc.collect()
    alive = [weakref.ref(item) for item in gc.get_objects() if isinstance(item, Page)]
    assert len(alive) >= 20
    context.close()
    end = time.monotonic() + 60
    while time.monotonic() < end and (explorer.sessions() or sum(r() is not None for r in alive)):
        time.sleep(0.5)
        gc.collect()
    assert explorer.sessions() == []
    assert sum(reference() is not None for reference in alive) == 0
