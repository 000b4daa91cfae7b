"""How fast the explorer answers: from a key on a slider to the new picture, in a real browser."""

import shutil
import statistics
import subprocess
import sys

MOVES = 20
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
VERDICT = "Bokeh.documents[0].get_model_by_name('verdict')"
# The verdict is written after all figures; two frames later everything has been painted.
CLOCK = f"""
window.addEventListener("keydown", () => {{ window.pressed = performance.now(); }}, true);
{VERDICT}.properties.text.change.connect(() => {{
  requestAnimationFrame(() => requestAnimationFrame(() => {{
    window.answered = performance.now() - window.pressed;
  }}));
}});
"""


def measure():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("no Chromium on this machine: the explorer is not measured", file=sys.stderr)
        return {}
    command = [sys.executable, "-m", "deeplin", "explore", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().split()[3]
            return _measure(chromium, url)
        finally:
            server.terminate()


def _measure(chromium, url):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        _open(page, url)  # compiles what was never compiled on this machine
        first_paint = _open(page, url)
        page.evaluate(CLOCK)
        times = [_move(page, "ArrowRight" if k % 4 < 2 else "ArrowLeft") for k in range(MOVES + 4)]
        browser.close()
    slider = statistics.median(times[4:])
    return {
        "explorer: slider to picture over 300 ms": {
            "ratio": slider / 300,
            "target": 1,
            "at_most": True,
            "details": {"median_ms": slider, "worst_ms": max(times[4:]), "moves": MOVES},
        },
        "explorer: first paint over 5 s": {
            "ratio": first_paint / 5000,
            "target": 1,
            "at_most": True,
            "details": {"first_paint_ms": first_paint},
        },
    }


def _open(page, url):
    """Open the page, wait for its first picture, and return its first contentful paint in ms."""
    page.goto(url)
    page.wait_for_function(
        f"document.documentElement.dataset.ready == 'yes' && {VERDICT}.text.includes('η')",
        timeout=300_000,
    )
    page.wait_for_timeout(2000)
    return page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")


def _move(page, key):
    """Press a key on the slider of the learning rate; milliseconds until the picture is there."""
    page.evaluate("window.answered = null")
    page.locator("[data-group=descent] .noUi-handle").first.press(key)
    page.wait_for_function("window.answered !== null", timeout=60_000)
    page.wait_for_timeout(100)
    return page.evaluate("window.answered")
