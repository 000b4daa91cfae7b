"""Pictures of the explorer's pages for the documentation, taken in a real browser.

Needs Chromium on the machine: `python docs/screenshots.py`.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
LAPTOP = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}
DARK = LAPTOP | {"color_scheme": "dark"}
RESIDUAL = "?architecture=residual&scale=1.0&learning_rate=0.03&steps=400&seeds=8"
SHOTS = {
    "training": ("", LAPTOP),
    "phase": ("?tab=phase", LAPTOP),
    "wide": ("?tab=wide&wide_width=1000000", LAPTOP),
    "theorems": ("?tab=theorems", LAPTOP),
    "phone": ("", PHONE),
    "dark": (RESIDUAL, DARK),
}
READY = """
document.documentElement.dataset.ready == 'yes'
&& !Bokeh.documents[0].get_model_by_name('verdict').text.includes('Computing')
"""


def main() -> None:
    command = [sys.executable, "-m", "deeplin", "explore", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().split()[3]
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=FLAGS
                )
                for name, (link, options) in SHOTS.items():
                    page = browser.new_page(**options)
                    page.goto(url + link)
                    page.wait_for_function(READY, timeout=100_000)
                    page.wait_for_timeout(7_000)  # the flow comes last, and is compiled at first
                    page.screenshot(path=IMAGES / f"explorer-{name}.png")
                    page.close()
                browser.close()
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
