"""The server shows one page and answers two questions, to its own page on this machine only."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import numpy as np
import pytest

import deeplin as dl
from deeplin.errors import InputError
from deeplin.explorer import serve
from deeplin.explorer.serve import Explorer


def request(server, method, path, body=None, **headers):
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    answer = response.status, response.read(), dict(response.headers)
    connection.close()
    return answer


def post(server, path, body, **headers):
    own = {"Origin": server.url.rstrip("/"), "X-Deeplin-Token": server.token}
    given = {name: value for name, value in (own | headers).items() if value is not None}
    status, answer, _ = request(server, "POST", path, body, **given)
    return status, json.loads(answer)


def question(**changes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 3))
    given = {
        "X": X.tolist(), "y": (X @ [1.0, 0.5, 0.0])[:, None].tolist(), "readout": None,
        "weights": [rng.normal(size=(3, 3)).tolist(), rng.normal(size=(1, 3)).tolist()],
        "activation": "linear", "dynamics": "descent", "learning_rate": 0.01, "steps": 40,
        "momentum": 0,
    }  # fmt: skip
    return json.dumps(given | changes)


def test_page_is_one_file_that_loads_nothing_else(explorer):
    status, body, headers = request(explorer, "GET", "/?depth=3")
    assert status == 200
    text = body.decode()
    assert len(body) < 400_000
    assert "src=" not in text.replace('"img-src', "").split("<script")[0]
    assert "connect-src 'self'" in text
    assert explorer.token in text
    assert headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(
    "path", ["/page/main.js", "/components/os", "/../pyproject.toml", "/favicon.ico", "/certify"]
)
def test_nothing_else_is_served(explorer, path):
    assert request(explorer, "GET", path)[0] == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_verbs_are_not_understood(explorer, method):
    assert request(explorer, method, "/")[0] == 501


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1.evil.example", ""])
def test_foreign_hosts_are_refused(explorer, host):
    assert request(explorer, "GET", "/", Host=host)[0] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", ""])
def test_foreign_origins_are_refused(explorer, origin):
    assert request(explorer, "GET", "/", Origin=origin)[0] == 403
    assert post(explorer, "/certify", question(), Origin=origin)[0] == 403


@pytest.mark.parametrize("token", [None, "", "guess", "ü"])
def test_questions_need_the_token_of_the_page(explorer, token):
    encoded = token.encode() if token else token
    assert post(explorer, "/certify", question(), **{"X-Deeplin-Token": encoded})[0] == 403


def test_questions_need_the_origin_of_the_page(explorer):
    assert post(explorer, "/certify", question(), Origin=None)[0] == 403


def test_only_this_machine_is_listened_to(explorer):
    assert explorer.socket.getsockname()[0] == "127.0.0.1"


def test_certificate_is_the_librarys(explorer):
    status, answer = post(explorer, "/certify", question())
    assert status == 200
    given = json.loads(question())
    problem = dl.Problem.from_data(np.array(given["X"]), np.array(given["y"])[:, 0])
    network = dl.Network([np.array(layer) for layer in given["weights"]])
    run = dl.gradient_descent(problem, network, 0.01, 40, record_every=1)
    theirs = {row["id"]: row for row in dl.certify(problem, run).records()}
    assert {row["id"] for row in answer["rows"]} == set(theirs)
    for row in answer["rows"]:
        assert row["verdict"] == theirs[row["id"]]["verdict"]
        assert "<math" in answer["statements"][row["id"]]["formula"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", "JSON"),
        ("[" * 100_000, "JSON"),
        ("[]", "object"),
        (question(steps=10**9), "steps"),
        (question(steps="many"), "steps"),
        (question(weights=[]), "1 to 40 layers"),
        (question(weights=[[[1.0]]] * 41), "1 to 40 layers"),
        (question(X="no"), "X"),
        (question(y=[[1.0]]), "y"),
        (question(learning_rate=-1), "learning_rate"),
        (question(activation="eval"), "activation"),
        (question(steps=100_000, weights=[[[0.0] * 3] * 9000, [[0.0] * 9000]]), "weight updates"),
    ],
)
def test_hostile_questions_get_a_sentence(explorer, body, words):
    status, answer = post(explorer, "/certify", body)
    assert status == 400
    assert words in answer["error"]


def test_sizes_are_bounded(explorer):
    length = {"Content-Length": str(serve.MOST_BYTES["/table"] + 1)}
    status, answer = post(explorer, "/table?name=a.csv", b"", **length)
    assert status == 413
    assert "bytes" in answer["error"]
    assert post(explorer, "/certify", b"", **{"Content-Length": "-5"})[0] == 411


def test_table_gives_the_moments_of_its_file(explorer):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3)) * [1, 10, 0.1] + 5
    y = X @ [1.0, 0.2, 3.0] + rng.normal(size=200)
    rows = "\n".join(",".join(map(repr, map(float, row))) for row in np.column_stack([X, y]))
    status, answer = post(explorer, "/table?name=../../big.csv", f"a,b,c,target\n{rows}\n")
    assert status == 200
    Z = (X - X.mean(0)) / X.std(0)
    np.testing.assert_allclose(answer["covariance"], Z.T @ Z / 200, atol=1e-12)
    np.testing.assert_allclose(answer["cross"], Z.T @ (y - y.mean()) / 200, rtol=1e-9)
    assert answer["target"] == "target"
    assert (answer["samples"], answer["inputs"]) == (200, 3)
    spaced = post(explorer, "/table?name=big.csv", f"a, b, c, target\n{rows}\n")
    assert spaced == (200, answer)
    status, answer = post(explorer, "/table?name=bad.csv", "a,b\n1,x\n2,y\n")
    assert status == 400
    assert "'b' does not hold numbers" in answer["error"]


def test_used_port_is_an_input_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="--port"):
            Explorer(taken.getsockname()[1])
    with pytest.raises(InputError, match="65535"):
        Explorer(10**6)


def test_command_serves_says_where_and_ends_quietly_on_ctrl_c(tmp_path):
    # Started from the background a process ignores SIGINT: this one listens in any case.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{listen}; import deeplin.cli; deeplin.cli.main(['explore', '--no-browser'])"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    ) as process:  # fmt: skip
        url = process.stdout.readline().split()[3]
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        connection.request("GET", "/")
        response = connection.getresponse()
        assert response.status == 200
        token = re.search(r'"token":"([^"]+)"', response.read().decode())[1]
        headers = {"Origin": url.rstrip("/"), "X-Deeplin-Token": token}
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=600)
        connection.request("POST", "/certify", question(steps=3), headers)
        answer = json.loads(connection.getresponse().read())
        assert {"FM-L8"} <= {row["id"] for row in answer["rows"]}  # in float64, as it must be
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 0
