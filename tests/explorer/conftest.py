"""A running explorer, and a browser that may talk to nothing else."""

import asyncio
import shutil
import threading

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


class Running:
    """The explorer's server on its own thread and event loop."""

    def __init__(self):
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.ready.wait(120)
        self.url = f"http://127.0.0.1:{self.server.port}/"

    def _run(self):
        asyncio.set_event_loop(asyncio.new_event_loop())
        from deeplin.explorer.server import make_server

        self.server = make_server()
        self.server.start()
        self.server.io_loop.add_callback(self.ready.set)
        self.server.io_loop.start()

    def sessions(self):
        return self.server.get_sessions("/")

    def stop(self):
        def end():
            self.server.stop()
            self.server.io_loop.stop()

        self.server.io_loop.add_callback(end)
        self.thread.join(20)


@pytest.fixture(scope="session")
def explorer():
    running = Running()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine: the browser tests need one")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()
