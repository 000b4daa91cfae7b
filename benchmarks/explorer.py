"""How fast the explorer draws, in a real browser."""

import shutil
import sys
import tempfile
from pathlib import Path

SECONDS = 4
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
# A drag through the middle half of the slider and back, one notch a frame.
DRAG = """(seconds) => new Promise((resolve) => {
  const slider = document.querySelector("input[name=learning_rate]");
  const [low, high] = [Number(slider.min), Number(slider.max)];
  const started = performance.now();
  const before = window.deeplin.pictures;
  let moves = 0;
  const move = () => {
    const passed = (performance.now() - started) / 1000;
    if (passed >= seconds) {
      return resolve({ rate: (window.deeplin.pictures - before) / passed, moves });
    }
    const place = 0.25 + 0.5 * Math.abs((((++moves) / 100) % 2) - 1);
    slider.value = low + (high - low) * place;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    requestAnimationFrame(move);
  };
  requestAnimationFrame(move);
})"""
FIRST = """() => new Promise((resolve) => {
  const look = () => (window.deeplin?.pictures > 0
    ? resolve(performance.now()) : requestAnimationFrame(look));
  look();
})"""
PHASE = """() => new Promise((resolve) => {
  const before = window.deeplin.pictures;
  const started = performance.now();
  document.getElementById("tab-phase").click();
  const look = () => (window.deeplin.pictures > before
    ? resolve(performance.now() - started) : requestAnimationFrame(look));
  look();
})"""


def measure():
    from deeplin.explorer.build import page

    html = page()
    results = {"explorer: page over 400 kB": _below(len(html.encode()) / 400_000)}
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("no Chromium on this machine: drawing is not measured", file=sys.stderr)
        return results
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "explorer.html"
        file.write_text(html, encoding="utf-8")
        return results | _drawing(chromium, file.as_uri())


def _below(ratio, **details):
    return {"ratio": ratio, "target": 1, "at_most": True, "details": details}


def _drawing(chromium, url):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        firsts = []
        for _ in range(3):
            page.goto(url)
            firsts.append(page.evaluate(FIRST))
        page.evaluate(DRAG, 1)  # the browser compiles what it runs often
        drag = page.evaluate(DRAG, SECONDS)
        page.goto(url)
        page.evaluate(FIRST)
        phase = page.evaluate(PHASE)
        browser.close()
    first = sorted(firsts)[1]
    return {
        "explorer: pictures a second while dragging": {
            "ratio": drag["rate"],
            "target": 30,
            "details": {"moves": drag["moves"], "seconds": SECONDS},
        },
        "explorer: first picture over 0.5 s": _below(first / 500, milliseconds=firsts),
        "explorer: phase diagram of 28 by 25 over 1.5 s": _below(phase / 1500, milliseconds=phase),
    }
