"""Pictures of the explorer's pages for the documentation, taken in a real browser.

Needs Chromium on the machine: `python docs/screenshots.py [name …]`.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from deeplin.explorer.build import page as explorer_page

IMAGES = Path(__file__).parent / "images"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
LAPTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}
DARK = LAPTOP | {"color_scheme": "dark"}
SHOTS = {  # a preset, or a link
    "training": ("edge", LAPTOP),
    "phase": ("#tab=phase", LAPTOP),
    "orbits": ("orbits", LAPTOP),
    "wide": ("benign", LAPTOP),
    "double-descent": ("double_descent", LAPTOP),
    "phone": ("sharpening", PHONE),
    "dark": ("catapult", DARK),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "explorer.html"
        file.write_text(explorer_page(), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name in sys.argv[1:] or SHOTS:
            shown, options = SHOTS[name]
            page = browser.new_page(**options)
            page.goto(file.as_uri() + (shown if shown.startswith("#") else ""))
            page.wait_for_function("() => window.deeplin?.pictures > 0", timeout=300_000)
            if not shown.startswith("#"):
                page.evaluate("(name) => deeplin.load(name)", shown)
            page.screenshot(path=IMAGES / f"explorer-{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
