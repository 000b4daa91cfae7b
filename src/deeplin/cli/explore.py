"""`deeplin explore`: the explorer in the browser."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from deeplin.checks import InputError
from deeplin.cli.app import app, prepare_computing


@app.command()
def explore(
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    export: Annotated[
        Path | None, typer.Option(help="Write the page as one file that works from disk.")
    ] = None,
) -> None:
    """Move a slider, see the whole training at once (a local page, nothing from the web)."""
    if export is not None:
        return write_page(export)
    from deeplin.explorer.serve import explore as serve

    with suppress(KeyboardInterrupt):
        serve(port, open_browser=browser, prepare=prepare_computing)
    # Threads may be inside compiled code, from which Python cannot call them back: it would wait
    # for them, or abort. There is nothing to keep.
    sys.stdout.flush()
    os._exit(0)


def write_page(path: Path) -> None:
    """Write the page with the certificates of its presets."""
    from deeplin.explorer.build import page
    from deeplin.explorer.certificates import preset_certificates, statements

    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"{path} is no file in an existing folder; pass another --export.")

    prepare_computing()

    def report(title: str) -> None:
        typer.echo(f"certifying {title} …", err=True)

    html = page(certificates=preset_certificates(report), statements=statements())
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error}); pass another --export.") from None
    typer.echo(f"{path}: {len(html.encode()) / 1000:.0f} kB, opens in any browser")
