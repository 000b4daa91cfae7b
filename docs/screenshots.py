"""Pictures of the explorer's pages for the documentation, taken in a real browser.

Needs Chromium on the machine: `python docs/screenshots.py`.
"""

import shutil
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

from deeplin.explorer.serve import Explorer

IMAGES = Path(__file__).parent / "images"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
LAPTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}
DARK = LAPTOP | {"color_scheme": "dark"}
CATAPULT = "#architecture=residual&scale=1&learning_rate=0.02&steps=400&seed=1"
SHOTS = {
    "training": ("", LAPTOP),
    "phase": ("#tab=phase", LAPTOP),
    "wide": ("#tab=wide&wide_width=1000000&alpha=0.000001", LAPTOP),
    "theorems": ("#tab=theorems", LAPTOP),
    "phone": ("", PHONE),
    "dark": (CATAPULT, DARK),
}


def main() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)  # the server certifies in this process
    with Explorer() as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, (link, options) in SHOTS.items():
            page = browser.new_page(**options)
            page.goto(server.url + link)
            page.wait_for_function("() => window.deeplin?.pictures > 0", timeout=300_000)
            page.screenshot(path=IMAGES / f"explorer-{name}.png")
            page.close()
        browser.close()
        server.shutdown()


if __name__ == "__main__":
    main()
