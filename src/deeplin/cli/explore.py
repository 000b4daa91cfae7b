"""`deeplin explore`: the explorer in the browser."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from deeplin.checks import InputError
from deeplin.cli.app import app


@app.command()
def explore(
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Move a slider, see the whole training at once (a local page, nothing from the web)."""
    try:
        from deeplin.explorer.server import explore as serve
    except ModuleNotFoundError as error:
        if error.name not in ("panel", "bokeh", "tornado"):
            raise
        raise InputError(
            f"the explorer needs {error.name}, which is not installed; install 'deeplin[explorer]'."
        ) from None
    with suppress(KeyboardInterrupt):
        serve(port, open_browser=browser)
    # Threads may be inside compiled code, from which Python cannot call them back: it would wait
    # for them, or abort. There is nothing to keep.
    sys.stdout.flush()
    os._exit(0)
