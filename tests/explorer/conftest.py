"""The page as a file, and a browser that may talk to nothing else."""

import json
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from deeplin.explorer.build import PAGE, inputs, page

PATIENCE = 120_000
"""Milliseconds before an event that never comes fails a test; the machine may be busy."""


@pytest.fixture(scope="session")
def page_file(tmp_path_factory):
    """The page on disk."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page(), encoding="utf-8")
    return path


class Visitor:
    """A browser page on the explorer; every request to other places is refused and noted."""

    def __init__(self, browser, url, link="", **options):
        self.context = browser.new_context(
            viewport=options.pop("viewport", {"width": 1280, "height": 800}), **options
        )
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.strangers, self.errors = [], []
        self.page.route(re.compile(f"^(?!{re.escape(url)}|data:|blob:)"), self._refuse)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(url + link)
        self.wait("window.deeplin !== undefined")

    def _refuse(self, route):
        self.strangers.append(route.request.url)
        route.abort()

    def wait(self, condition):
        self.page.wait_for_function(f"() => {condition}")

    def drawn(self, action=None):
        """Do something (or nothing) and wait until a new complete picture is there."""
        before = 0
        if action is not None:
            before = self.page.evaluate("window.deeplin.pictures")
            action()
        self.wait(f"window.deeplin.pictures > {before}")
        return self

    def verdict(self, words, place="verdict"):
        """Wait until the verdict holds these words, and return it."""
        self.wait(f"document.getElementById('{place}').textContent.includes({json.dumps(words)})")
        return self.text(place)

    def said(self, words):
        """The same for the message to the visitor."""
        return self.verdict(words, "message")

    def text(self, name):
        return self.page.locator(f"#{name}").text_content()

    def type(self, name, value):
        """Type an exact value, as a visitor would."""
        field = self.page.locator(f"#exact-{name}")
        field.fill(str(value))
        field.press("Enter")

    def press(self, label):
        self.page.get_by_role("button", name=label, exact=True).click()

    def close(self):
        self.context.close()
        assert self.strangers == []
        assert self.errors == []


@pytest.fixture(scope="session")
def visitor_of():
    """The class of visitors, for fixtures that keep one."""
    return Visitor


@pytest.fixture
def visit(browser, page_file):
    visitors = []

    def open_page(link="", **options):
        visitors.append(Visitor(browser, page_file.as_uri(), link, **options))
        return visitors[-1]

    yield open_page
    for visitor in visitors:
        visitor.close()


@pytest.fixture(scope="session")
def calculator(browser, page_file):
    """A page of which only the numerics are used."""
    visitor = Visitor(browser, page_file.as_uri())
    yield visitor.page
    visitor.close()


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def evaluate(browser):
    """Evaluate JavaScript beside the page's modules, which `import("/random.js")` loads."""
    handler = partial(_Files, directory=str(PAGE))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/inputs.json")
        yield page.evaluate
        page.close()
        server.shutdown()


@pytest.fixture(scope="session")
def state_of():
    """The settings of a page: the defaults, and what is given."""
    defaults = {name: given["default"] for name, given in inputs().items()}
    return lambda **values: defaults | values


DATA = """async (state) => {
  const { synthetic } = await import("/problem.js");
  const { X, Y } = synthetic(state);
  return [Array.from(X), Array.from(Y)];
}"""


@pytest.fixture(scope="session")
def data_of(evaluate):
    """The synthetic data (X, Y) that the page draws for its settings."""

    def draw(settings):
        X, Y = evaluate(DATA, settings)
        return (
            np.reshape(X, (settings["samples"], settings["dimension"])),
            np.reshape(Y, (settings["samples"], settings["outputs"])),
        )

    return draw


@pytest.fixture
def ask(calculator):
    """Call a function of window.deeplin in Chromium."""
    return lambda name, input: calculator.evaluate(
        "([name, input]) => window.deeplin[name](input)", [name, input]
    )
