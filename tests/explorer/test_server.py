"""The server answers this machine's own address only, and forged messages change nothing."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from bokeh.client import pull_session

from deeplin.checks import InputError
from deeplin.explorer.server import make_server


def answer(url, **headers):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.request("GET", parts.path or "/", headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def test_own_address_is_answered_and_asks_the_web_for_nothing(explorer):
    status, body = answer(explorer.url)
    assert status == 200
    page = body.decode()
    sources = [part.split('"')[0] for part in page.split('src="')[1:]]
    assert sources
    assert not [source for source in sources if source.startswith(("http:", "https:", "//"))]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_foreign_hosts_are_refused(explorer, host):
    assert answer(explorer.url, Host=host)[0] in (400, 403)


@pytest.mark.parametrize("path", ["", "ws", "autoload.js", "static/js/bokeh.min.js"])
def test_foreign_origins_are_refused_everywhere(explorer, path):
    assert answer(explorer.url + path, Origin="http://evil.example")[0] == 403


def test_foreign_origin_cannot_open_the_websocket(explorer):
    status, _ = answer(
        explorer.url + "ws",
        Origin="http://evil.example",
        Connection="Upgrade",
        Upgrade="websocket",
        **{"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13"},
    )
    assert status == 403


def test_only_this_machine_is_listened_to(explorer):
    addresses = {s.getsockname()[0] for s in explorer.server._http._sockets.values()}
    assert addresses == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("depth", 10**9, "Depth L is 1e+09"),
        ("steps", 300.0, "Steps is inf"),
        ("learning_rate", -250.0, "Learning rate η is"),
        ("samples", -5, "Samples n is -5"),
    ],
)
def test_hand_made_message_gets_an_error_and_not_the_machine(explorer, name, value, words):
    def send() -> tuple[str, bool]:
        client = pull_session(url=explorer.url.rstrip("/"))
        try:
            (session,) = (s for s in explorer.sessions() if s.id == client.id)
            message = session.document.get_model_by_name("message")
            client.document.get_model_by_name(name).value = value
            client.force_roundtrip()  # the server has taken the message when it answers
            return message.text, message.visible
        finally:
            client.close()

    # Bokeh's client runs an event loop of its own; this thread may already carry Playwright's.
    with ThreadPoolExecutor(1) as pool:
        text, visible = pool.submit(send).result()
    assert words in text
    assert visible


def test_used_port_is_an_input_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="--port"):
            make_server(taken.getsockname()[1])
    with pytest.raises(InputError, match="65535"):
        make_server(10**6)


def test_command_serves_and_says_where(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-m", "deeplin", "explore", "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
    ) as process:  # fmt: skip
        try:
            line = process.stdout.readline()
            assert "http://127.0.0.1:" in line
            url = line.split()[3]
            assert answer(url)[0] == 200
        finally:
            process.terminate()


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_ctrl_c_ends_it_at_once_and_quietly_also_while_it_computes(tmp_path, seconds):
    def move(url) -> None:
        client = pull_session(url=url.rstrip("/"))
        client.document.get_model_by_name("depth").value = 7
        client.force_roundtrip()  # the server is at work on it when it answers

    with subprocess.Popen(
        [sys.executable, "-m", "deeplin", "explore", "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},  # so that it has to compile
    ) as process:  # fmt: skip
        with ThreadPoolExecutor(1) as pool:
            pool.submit(move, process.stdout.readline().split()[3]).result()
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 0


def test_help_names_the_options():
    result = subprocess.run(
        [sys.executable, "-m", "deeplin", "explore", "--help"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "--port" in result.stdout
    assert "--no-browser" in result.stdout
    assert json.dumps(result.stderr) == '""'
