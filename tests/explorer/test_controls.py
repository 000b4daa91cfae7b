"""Every control, preset, link, download and upload of the page, in headless Chromium."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest

import deeplin as dl
from deeplin.explorer.build import inputs

pytestmark = pytest.mark.browser
QUICK = "#depth=2&steps=60&seeds=2"
INPUTS = inputs()
DEFAULT = {name: given["default"] for name, given in INPUTS.items()}
LIGHT_WIDE = "#tab=wide&wide_steps=100&wide_dimension=60&wide_samples=20"


def slider(visitor, name):
    return visitor.page.locator(f"input[type=range][name={name}]")


def link_after(visitor, name, value):
    """What the link says of an input, once it says `value`."""
    said = f"new URLSearchParams(location.hash.slice(1)).get('{name}')"
    visitor.wait(f"{said} === {json.dumps(value)}")
    return visitor.page.evaluate(said)


PAGES = {  # a light state of each page, and the groups of inputs it has
    "training": (QUICK + "&momentum=0.5", ("descent", "network", "data")),
    "wide": (LIGHT_WIDE + "&spectrum=power", ("wide", "population")),
    "orbits": ("#tab=orbits", ("orbits",)),
}


@pytest.mark.parametrize("page", PAGES)
def test_every_slider_draws_and_changes_the_link(visit, page):
    link, groups = PAGES[page]
    visitor = visit(link).drawn()
    for name, given in INPUTS.items():
        if given["kind"] not in ("whole", "real") or given["group"] not in groups:
            continue
        if name in ("spikes", "epsilon"):  # belong to the other spectrum, tried below
            continue
        visitor.drawn(lambda name=name: slider(visitor, name).press("ArrowRight"))
        shown = visitor.page.locator(f"#exact-{name}").input_value()
        assert float(shown) != DEFAULT[name] or name in ("seeds",)
        assert slider(visitor, name).get_attribute("aria-valuetext") == shown
        expected = None if float(shown) == DEFAULT[name] else shown
        assert link_after(visitor, name, expected) == expected


def test_every_menu_and_box_draws_and_changes_the_link(visit):
    visitor = visit(QUICK + "&momentum=0.5").drawn()
    for name, given in INPUTS.items():
        place = visitor.page.locator(f"#input-{name}")
        if given["kind"] == "choice" and given.get("group") in ("network", "axes"):
            for option in [*given["options"]][::-1]:
                if place.input_value() != option and place.is_visible():
                    visitor.drawn(lambda place=place, option=option: place.select_option(option))
                    expected = None if option == given["default"] else option
                    assert link_after(visitor, name, expected) == expected
                    assert place.input_value() == option
        if given["kind"] == "flag":
            visitor.drawn(lambda place=place: place.click())
            expected = "no" if given["default"] else "yes"
            assert link_after(visitor, name, expected) == expected
            assert place.is_checked() != given["default"]


def test_drawing_follows_a_dragged_slider(visit):
    visitor = visit().drawn()
    box = slider(visitor, "learning_rate").bounding_box()
    middle = box["y"] + box["height"] / 2
    visitor.page.mouse.move(box["x"] + box["width"] / 2, middle)
    visitor.page.mouse.down()
    for share in (0.4, 0.3, 0.2):
        visitor.drawn(
            lambda share=share: visitor.page.mouse.move(box["x"] + box["width"] * share, middle)
        )
    dragged = visitor.page.evaluate("deeplin.shown().state.learning_rate")
    assert dragged < 0.002
    assert visitor.page.evaluate("deeplin.shown().result.threshold") == pytest.approx(2 / dragged)
    visitor.page.mouse.up()


def test_tracked_sharpness_of_a_picture_is_the_sharpness(visit, data_of):
    visitor = visit("#depth=4&scale=0.6&learning_rate=0.15&steps=300&seeds=1").drawn()
    found = visitor.page.evaluate(
        """() => { const { result } = deeplin.shown();
        return { widths: result.widths, sharpness: result.runs[0].sharpness,
                 weights: result.layers.weights.map((flat) => Array.from(flat)) }; }"""
    )
    X, Y = data_of(DEFAULT)
    problem, widths = dl.Problem.from_data(X, Y[:, 0]), found["widths"]
    sizes = np.cumsum([0, *(m * n for n, m in pairwise(widths))])
    path = np.array(found["weights"])
    network = dl.Network([
        path[:, a:b].reshape(-1, m, n)
        for a, b, n, m in zip(sizes, sizes[1:], widths, widths[1:], strict=False)
    ])  # fmt: skip
    exact = np.asarray(dl.sharpness(problem, network).value)
    # a residual of 5e-4 of the value: the value itself is good to about its square
    np.testing.assert_allclose(found["sharpness"], exact, rtol=1e-5)


@pytest.mark.parametrize("mark", ["?", "#"])
def test_link_restores_the_view(visit, mark):
    link = "depth=3&learning_rate=0.05&vertical_scale=linear&flow=no&momentum=0.5&outputs=2"
    visitor = visit(mark + link)
    visitor.verdict("η = 0.05")
    state = visitor.page.evaluate("deeplin.shown().state")
    assert (state["depth"], state["flow"], state["outputs"]) == (3, False, 2)
    assert visitor.page.locator("#input-vertical_scale").input_value() == "linear"
    assert slider(visitor, "depth").input_value() == "3"


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("depth=1000000000", "Depth L is 1000000000; pass a whole number from 1 to 40."),
        ("depth=2.5", "Depth L is 2.5"),
        ("learning_rate=NaN", "Learning rate η is NaN"),
        ("learning_rate=1e999", "Learning rate η is 1e999"),
        ("steps=0x10", "Steps is 0x10"),
        ("architecture=<img src=x onerror=alert(1)>", "Network is “<img src=x"),
        ("__proto__=1", "There is no input"),
        ("constructor=1", "There is no input"),
        ("depth=2&depth=3", "twice"),
        ("scale=0", "every gradient of this network vanishes"),
        ("depth=" + "9" * 5000, "characters"),
        ("data=file", "No file has been read yet"),
    ],
)
def test_hostile_link_is_said_and_does_nothing(visit, link, words):
    visitor = visit("#" + link)
    visitor.said(words)
    if link != "data=file":
        visitor.verdict("All 5 runs converged")  # the opening state
    assert visitor.page.locator("#message").is_visible()
    assert visitor.page.locator("#message img").count() == 0


def test_typed_values_are_checked(visit):
    visitor = visit(QUICK).drawn()
    visitor.type("depth", 99)
    visitor.said("Depth L is 99")
    visitor.drawn(lambda: visitor.type("learning_rate", "0,0123"))
    assert visitor.page.evaluate("deeplin.shown().state.learning_rate") == 0.0123
    assert not visitor.page.locator("#message").is_visible()


def test_divergent_run_is_called_so(visit):
    visitor = visit("#learning_rate=2")
    assert "no minimizer is stable" in visitor.verdict("diverged, the first at step")


def test_momentum_has_its_line_and_texts(visit):
    visitor = visit("#depth=3&momentum=0.9&learning_rate=0.05")
    assert "(2+2β)/η" in visitor.verdict("(2+2β)/S_min")
    critical = visitor.page.evaluate("deeplin.shown().result.theory")
    assert critical["critical"] == pytest.approx(3.8 / critical["exact"])
    visitor.drawn(visitor.page.get_by_role("tab", name="Phase diagram").click)
    assert "critical rate (2+2β)/S_min" in visitor.verdict("runs above it settled")
    assert "critical rate (2+2β)/S_min" in visitor.text("figure-phase")


def test_new_page_does_not_show_the_text_of_the_old(visit):
    visitor = visit(QUICK)
    visitor.verdict("η")
    words = visitor.page.evaluate(
        """() => { document.getElementById("tab-wide").click();
        return document.getElementById("verdict").textContent; }"""
    )
    assert words == "Computing …"
    visitor.verdict("minimum-norm interpolant")


def test_cell_of_the_phase_diagram_opens_its_run(visit):
    visitor = visit("#tab=phase&depth=3&steps=40&seeds=1")
    visitor.verdict("critical rate")
    canvas = visitor.page.locator("#figure-phase canvas")
    canvas.focus()
    canvas.press("ArrowUp")
    note = visitor.text("cell-note")
    visitor.press("Open this run")
    visitor.verdict("η = ")
    state = visitor.page.evaluate("deeplin.shown().state")
    assert state["tab"] == "training"
    shown = float(note.split("η ")[1].split(",")[0])
    assert state["learning_rate"] == pytest.approx(shown, rel=5e-3)  # three digits
    visitor.drawn(lambda: visitor.page.get_by_role("tab", name="Phase diagram").click())
    box = canvas.bounding_box()
    visitor.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] - 60)
    visitor.wait("document.getElementById('page').dataset.tab === 'training'")


def test_cell_of_the_phase_diagram_is_the_run_it_opens(visit):
    visitor = visit("#tab=phase&depth=3&steps=40&seeds=1&phase_over=depth")
    visitor.verdict("critical rate")
    with visitor.page.expect_download() as download:
        visitor.press("Data (CSV)")
    lines = download.value.path().read_text().splitlines()
    depth, rate, distance, sharpness, _ = map(str, lines[2 * 28 + 6].split(","))
    visitor.page.goto("about:blank")
    visitor = visit(f"#depth={depth}&steps=40&seeds=1&learning_rate={rate}").drawn()
    run = visitor.page.evaluate("deeplin.shown().result.runs[0]")
    assert run["distance"][-1] == pytest.approx(float(distance), rel=1e-9)
    assert run["sharpness"][-1] == pytest.approx(float(sharpness), rel=1e-5)


def test_wide_page_trains_a_billion_units(visit):
    visitor = visit("#tab=wide&wide_width=1000000000&wide_dimension=100&wide_samples=20")
    assert "1,000,000,000" in visitor.verdict("Interpolates")
    visitor.type("alpha", 0)
    assert "ends at the minimum-norm interpolant" in visitor.verdict("ends at")
    visitor.type("beta", 0)
    visitor.said("vanishes")


def test_phase_diagram_tells_what_is_not_trained_from_what_swings(visit):
    visitor = visit("#tab=phase&steps=300&seeds=1")
    verdict = visitor.verdict("not trained yet")
    with visitor.page.expect_download() as download:
        visitor.press("Data (CSV)")
    lines = download.value.path().read_text().splitlines()[1:]
    cells = [(float(s), float(r), status) for s, r, _, _, status in (x.split(",") for x in lines)]
    critical = visitor.page.evaluate("deeplin.current().critical")
    assert {status for *_, status in cells} == {"settled", "unfinished", "unsettled", "diverged"}
    assert "settled" not in {status for _, rate, status in cells if rate > critical}
    slow = [status for scale, rate, status in cells if scale < 0.2 and rate < critical / 2]
    assert {*slow} == {"unfinished"}  # on the plateau of a small start
    swings = [rate for _, rate, status in cells if status == "unsettled"]
    assert min(swings) > critical / 8
    shares = [int(part) for part in re.findall(r"(\d+) %", verdict)]
    assert sum(shares) == pytest.approx(100, abs=2)  # each is rounded


@pytest.mark.parametrize("page", ["training", "phase", "wide"])
def test_download_is_the_data_of_the_page(visit, page):
    light = "&depth=2&steps=50&wide_steps=100&wide_dimension=60&wide_samples=20"
    visitor = visit(f"#tab={page}{light}").drawn()
    with visitor.page.expect_download() as download:
        visitor.press("Data (CSV)")
    assert download.value.suggested_filename == f"deeplin-{page}.csv"
    header = {"training": "step,run,risk", "phase": "scale,learning_rate", "wide": "step,loss"}
    assert download.value.path().read_text().startswith(header[page])
