"""The local server: one page and two kinds of requests, on this machine only.

`http.server` of the standard library suffices, without further dependencies: the page is one file
that is sent once and then computes in the browser. All routes are listed here; none looks up a file
or a module by name.

- `GET /`: the page, with a token that was drawn when the server started;
- `POST /certify`: the certificate of a run; `POST /table?name=…`: the moments of a CSV file.

A request must name this server exactly (Host), come from its own page (Origin) and carry the token;
sizes, times and the number of requests at once are bounded.
"""

from __future__ import annotations

import hmac
import json
import secrets
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import parse_qs, urlsplit

from deeplin.errors import InputError
from deeplin.explorer.build import page

ADDRESS = "127.0.0.1"
MOST_BYTES = {"/certify": 20_000_000, "/table": 200_000_000}
CHUNK_BYTES = 1 << 20
IDLE_SECONDS = 30
"""An idle connection is closed after this time."""
CONNECTIONS = 64
QUEUE_SECONDS = 60
"""Seconds that a request waits for the previous one."""


class Refused(Exception):
    """A request that is answered by an error: its status and a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str):
        super().__init__(sentence)
        self.status = status


class Explorer(ThreadingHTTPServer):
    """The server of one explorer, at `url`."""

    daemon_threads = True

    def __init__(self, port: int = 0, prepare: Callable[[], None] = lambda: None):
        if not 0 <= port < 65536:
            raise InputError(f"port is {port}; pass a number from 0 to 65535.")
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            raise InputError(
                f"port {port} cannot be used ({error}); pass another --port."
            ) from None
        self.token = secrets.token_urlsafe(24)
        self.hosts = {f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}"}
        self.page = page(server={"token": self.token}).encode()
        self.computing = threading.Lock()
        self.prepare: Callable[[], None] | None = prepare
        self.connections = threading.BoundedSemaphore(CONNECTIONS)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own, unless too many are open already."""
        if self.connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Release the connection's slot in any case."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect before the answer is sent."""


class Handler(BaseHTTPRequestHandler):
    """Handler of one request."""

    server: Explorer
    server_version, sys_version = "deeplin", ""
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        """Serve the page, at its only address."""
        try:
            self._check_origin()
            if urlsplit(self.path).path != "/":
                raise Refused(HTTPStatus.NOT_FOUND, "There is only the page, at /.")
        except Refused as refusal:
            return self._refuse(refusal)
        return self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page)

    def do_POST(self) -> None:
        """Answer a request that needs the library."""
        try:
            self._check_origin()
            path = urlsplit(self.path).path
            answer = {"/certify": self._certify, "/table": self._table}.get(path)
            if answer is None:
                raise Refused(HTTPStatus.NOT_FOUND, "There is no such question.")
            if not hmac.compare_digest(
                self.headers.get("X-Deeplin-Token", "").encode(), self.server.token.encode()
            ):
                raise Refused(HTTPStatus.FORBIDDEN, "Ask from the page that this server shows.")
            body = json.dumps(answer(self._length(path))).encode()
        except Refused as refusal:
            return self._refuse(refusal)
        except InputError as error:
            return self._refuse(Refused(HTTPStatus.BAD_REQUEST, str(error)))
        except Exception as error:
            sentence = f"The question could not be answered ({type(error).__name__})."
            return self._refuse(Refused(HTTPStatus.INTERNAL_SERVER_ERROR, sentence))
        return self._send(HTTPStatus.OK, "application/json", body)

    def _certify(self, length: int) -> dict[str, Any]:
        raw = self._body(length)
        from deeplin.explorer.answers import certified

        try:
            request = json.loads(raw)
        except (ValueError, RecursionError):
            raise InputError("the request is not JSON; ask from the page.") from None
        return self._alone(certified, request)

    def _table(self, length: int) -> dict[str, Any]:
        from deeplin.explorer.answers import moments_of

        asked = parse_qs(urlsplit(self.path).query).get("name", ["the file"])[0]
        name = PurePath(asked).name[:60] or "the file"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.csv"
            with path.open("wb") as file:
                while length > 0:
                    piece = self._body(min(CHUNK_BYTES, length))
                    length -= len(piece)
                    file.write(piece)
            return self._alone(moments_of, path, name)

    def _alone(self, compute: Any, *arguments: Any) -> dict[str, Any]:
        """Answer one question at a time, after `prepare` has run once."""
        if not self.server.computing.acquire(timeout=QUEUE_SECONDS):
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "Another question is being answered.")
        try:
            if self.server.prepare is not None:
                self.server.prepare()
                self.server.prepare = None
            return compute(*arguments)
        finally:
            self.server.computing.release()

    def _check_origin(self) -> None:
        """Reject other pages: a website can resolve its own name to this machine, or post to it."""
        origin = self.headers.get("Origin")
        own = origin is None and self.command == "GET"
        known = own or (origin or "").removeprefix("http://") in self.server.hosts
        if self.headers.get_all("Host", [""]) != [self.headers.get("Host")] or (
            self.headers.get("Host") not in self.server.hosts or not known
        ):
            raise Refused(HTTPStatus.FORBIDDEN, "The explorer answers only at its own address.")

    def _length(self, path: str) -> int:
        given = self.headers.get("Content-Length", "")
        if not given.isascii() or not given.isdigit():
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "The length of the question is not given.")
        length, most = int(given), MOST_BYTES[path]
        if length > most:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"This has {length:,} bytes; at most {most:,} are read. Use `deeplin diagnose`.",
            )
        return length

    def _body(self, length: int) -> bytes:
        body = self.rfile.read(length)
        if len(body) < length:
            raise Refused(HTTPStatus.BAD_REQUEST, "The question ended early.")
        return body

    def _refuse(self, refusal: Refused) -> None:
        self.close_connection = True
        body = json.dumps({"error": str(refusal)}).encode()
        self._send(refusal.status, "application/json", body)

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


def explore(
    port: int = 0, *, open_browser: bool = True, prepare: Callable[[], None] = lambda: None
) -> None:
    """Serve the explorer until interrupted; `prepare` runs before the first request."""
    with Explorer(port, prepare) as server:
        print(f"deeplin explorer at {server.url} (Ctrl-C ends it)", flush=True)
        if open_browser:
            threading.Timer(0.2, webbrowser.open, [server.url]).start()
        server.serve_forever()
