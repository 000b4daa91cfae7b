"""One command answered in this process, and what is wrong with the answer, if anything."""

import contextlib
import functools
import io
import re
import traceback
import warnings
from pathlib import Path

import typer.main

import deeplin
from deeplin.cli import main

# The commands are described once for all cases: building them anew is two thirds of a case's time.
typer.main.get_command = functools.cache(typer.main.get_command)

PACKAGE = Path(deeplin.__file__).parent
NOT_A_NUMBER = re.compile(r"(?<![\w'])(nan|NaN)(?![\w'])")


def complaint(arguments) -> str | None:
    """What is wrong: a traceback, an unknown exit code, several lines, or `nan` in an answer."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("error")
            main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return _judge(stop.code, out.getvalue(), err.getvalue())
    except BaseException as error:
        return raised(error)
    return "the command returned without an exit code"


def raised(error: BaseException) -> str:
    """An exception in one line, with the place in deeplin it passed last."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if PACKAGE in Path(frame.filename).parents]
    last = (ours or frames)[-1]
    place = Path(last.filename).relative_to(PACKAGE).as_posix() if ours else last.filename
    return f"{type(error).__name__} at {place}:{last.lineno}: {str(error)[:200]!r}"


def _judge(code, out: str, err: str) -> str | None:
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if code == 2 and (out or not _one_sentence(err)):
        return f"exit code 2 with {out[:80]!r} and {err[:300]!r}"
    if code == 0 and NOT_A_NUMBER.search(out):
        return f"nan in an answer: {NOT_A_NUMBER.search(out)} in {out[:300]!r}"
    return None


def _one_sentence(err: str) -> bool:
    """One line of ours, or typer's own message about options."""
    lines = err.strip().splitlines()
    return err.startswith("Usage:") or (len(lines) == 1 and lines[0].startswith("deeplin: "))
