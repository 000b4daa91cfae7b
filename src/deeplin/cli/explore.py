"""`deeplin explore`: the interactive page, written to a file and opened in the browser."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from deeplin.cli.app import app
from deeplin.errors import InputError


@app.command()
def explore(
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    export: Annotated[
        Path | None, typer.Option(help="Write the page to this file, and do not open it.")
    ] = None,
) -> None:
    """Open an interactive page that shows whole training runs (one file, works offline)."""
    from deeplin.explorer.build import page

    if export is not None and (export.is_dir() or not export.parent.is_dir()):
        raise InputError(f"{export} is no file in an existing folder; pass another --export.")
    path = export or Path(tempfile.mkdtemp(prefix="deeplin-")) / "explorer.html"
    html = page()
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error}); pass another --export.") from None
    typer.echo(f"{path}: {len(html.encode()) / 1000:.0f} kB, opens in any browser")
    if browser and export is None:
        webbrowser.open(path.as_uri())
