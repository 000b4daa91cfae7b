"""A visitor's file is limited, read safely, and scaled so that the sliders fit it."""

import json

import numpy as np
import pytest

from deeplin.checks import InputError
from deeplin.explorer.upload import MOST_BYTES, read_upload


def message(text, name="data.csv"):
    return json.dumps({"name": name, "text": text})


def rows(n=30, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * [1, 10, 100][:d] + 5
    y = X @ np.arange(1.0, d + 1) + rng.normal(size=n)
    return X, y


def csv(X, y):
    head = ",".join([*(f"x{k}" for k in range(X.shape[1])), "price"])
    body = "\n".join(",".join(map(repr, map(float, (*x, t)))) for x, t in zip(X, y, strict=True))
    return f"{head}\n{body}\n"


def test_last_column_is_the_target_and_the_data_are_standardised():
    X, y = rows()
    upload = read_upload(message(csv(X, y)))
    Z = (X - X.mean(0)) / X.std(0)
    w = np.linalg.lstsq(Z, y - y.mean(), rcond=None)[0]
    assert np.allclose(upload.problem.inputs, Z)
    assert np.allclose(upload.problem.optimum, w / np.linalg.norm(w))
    assert "price" in upload.note


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "column"),
        ("only\n1\n2\n", "column"),
        ("a,b\n1,two\n3,four\n", "b"),
        ("a,b\n1,2\n3\n", None),
        ("\x00\x01\x02,\xff\n\x00", None),
        ("a,b\n", None),
        ("a,b\n1,0\n2,0\n3,0\n", "constant"),
        ("<script>alert(1)</script>,y\nx,y\n", None),
    ],
)
def test_broken_files_are_refused_with_a_sentence(text, words):
    with pytest.raises(InputError, match=words) as caught:
        read_upload(message(text))
    assert "/tmp" not in str(caught.value)


@pytest.mark.parametrize("raw", ["", "no json", "[1]", "{}", '{"name": 1, "text": 2}', "[" * 5000])
def test_forged_messages_are_refused(raw):
    with pytest.raises(InputError):
        read_upload(raw)


def test_large_files_are_refused_before_they_are_read():
    with pytest.raises(InputError, match="at most"):
        read_upload(message("1," * (MOST_BYTES // 2 + 1000)))


def test_wide_tables_are_refused():
    X = np.random.default_rng(0).normal(size=(80, 60))
    text = ",".join(f"x{k}" for k in range(60)) + "\n"
    text += "\n".join(",".join(map(str, row)) for row in X)
    with pytest.raises(InputError, match="59 inputs"):
        read_upload(message(text))


def test_name_of_the_file_cannot_leave_its_folder():
    X, y = rows()
    assert "passwd" in read_upload(message(csv(X, y), name="../../etc/passwd")).note
    assert ".." not in read_upload(message(csv(X, y), name="../../etc/passwd")).note
