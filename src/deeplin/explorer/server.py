"""The local server of the explorer: on this machine only, nothing from the web, bounded."""

from __future__ import annotations

import socket
import threading
import webbrowser
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import panel as pn
from bokeh.document import Document
from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule
from tornado.web import RequestHandler

from deeplin.checks import InputError
from deeplin.explorer.compute import flow, train
from deeplin.explorer.page import TABS, Page
from deeplin.explorer.presets import PRESETS
from deeplin.explorer.state import State
from deeplin.explorer.tab import ASSETS
from deeplin.explorer.upload import MOST_BYTES

ADDRESS = "127.0.0.1"
THREADS = (2, 1)
"""Threads for first stages of all visitors (the picture), and for second ones (the flow)."""
GROUPS = {
    "phase": "Phase diagram",
    "theorems": "Certificate",
    "network": "Network",
    "descent": "Descent",
    "data": "Data",
    "axes": "Axes",
    "wide": "Wide network",
}


def make_server(port: int = 0) -> Any:
    """A Bokeh server with the explorer at its root, listening but not yet started.

    `port` 0 takes a free one.
    """
    if not 0 <= port < 65536:
        raise InputError(f"port is {port}; pass a number from 0 to 65535.")
    port = port or _free_port()
    hosts = [f"{ADDRESS}:{port}", f"localhost:{port}"]
    pools = [ThreadPoolExecutor(count, thread_name_prefix="explorer") for count in THREADS]
    try:
        server = pn.io.server.get_server(
            lambda: _page(pools),
            port=port,
            address=ADDRESS,
            websocket_origin=hosts,
            title="deeplin explorer",
            location=False,
            start=False,
            show=False,
            websocket_max_message_size=4 * MOST_BYTES,
            unused_session_lifetime_milliseconds=10_000,
            check_unused_sessions_milliseconds=2_000,
        )
    except OSError as error:
        raise InputError(f"port {port} cannot be used ({error}); pass another --port.") from None
    router = server._tornado.default_router
    router.rules.insert(0, Rule(Foreign(hosts), Refuse))
    return server


def explore(port: int = 0, *, open_browser: bool = True) -> None:
    """Serve the explorer until interrupted."""
    server = make_server(port)
    address = f"http://{ADDRESS}:{server.port}/"
    print(f"deeplin explorer at {address} (Ctrl-C ends it)", flush=True)
    threading.Thread(target=warm_up, daemon=True).start()
    if open_browser:
        server.io_loop.call_later(0.2, webbrowser.open, address)
    server.start()
    try:
        server.io_loop.start()
    finally:
        server.stop()


def warm_up() -> None:
    """Compile what the first picture needs, before a visitor asks for it."""
    train(State())
    flow(State())


class Foreign(Matcher):
    """Matches requests that name another host, or come from a page of another origin.

    A page on the web could otherwise reach the explorer through a name it points at this machine.
    """

    def __init__(self, hosts: list[str]):
        self.hosts = set(hosts)

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """An empty match (refuse) or None (not foreign)."""
        origin = request.headers.get("Origin")
        known = origin is None or origin.removeprefix("http://") in self.hosts
        return None if request.host in self.hosts and known else {}


class Refuse(RequestHandler):
    """Answers 403 to everything."""

    def prepare(self) -> None:
        """Refuse before anything else happens."""
        self.set_status(403)
        self.finish("The explorer answers only at its own address on this machine.")


class Template(pn.Template):
    """A template that goes through the models of a page once, not once for each of its parts."""

    def _init_doc(self, doc: Document | None = None, *arguments: Any, **options: Any) -> Document:
        with (doc or pn.state.curdoc).models.freeze():  # pyright: ignore[reportOptionalMemberAccess]
            return super()._init_doc(doc, *arguments, **options)


def _page(pools: list[ThreadPoolExecutor]) -> Template:
    """One visitor's page, from the link it was opened with."""
    document = pn.state.curdoc
    assert isinstance(document, Document)
    state, complaint = State(), ""
    try:
        state = State.from_link(_query())
    except InputError as error:
        complaint = f"This link could not be read: {error}"
    page = Page(document, state, pools)
    if complaint:
        page.complain(complaint)
    pn.state.on_session_destroyed(lambda _context: page.close())
    pn.state.onload(page.start)
    template = Template(_asset("template.html"))
    for name, model in page.roots.items():
        template.add_panel(f"at_{name}", pn.pane.Bokeh(model, sizing_mode="stretch_width"))
    variables = {
        "tab": state.tab,
        "tabs": list(TABS),
        "presets": PRESETS,
        "groups": GROUPS,
        "limit": MOST_BYTES,
        "style": _asset("page.css"),
        "script": _asset("page.js"),
    }
    for name, value in variables.items():
        template.add_variable(name, value)
    return template


def _query() -> str:
    """The query of the request that opened the page."""
    arguments = pn.state.session_args or {}
    pairs = [(name, values[-1].decode("utf-8", "replace")) for name, values in arguments.items()]
    return urlencode(pairs)


def _asset(name: str) -> str:
    return ASSETS.joinpath(name).read_text("utf-8")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return probe.getsockname()[1]
