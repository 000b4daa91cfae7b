"""The typer application of the command line, and `deeplin explore`."""

from __future__ import annotations

import io
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from deeplin.errors import InputError, seed_number

COMMANDS = [
    "diagnose",
    "train",
    "predict",
    "certify",
    "reproduce",
    "sweep",
    "status",
    "explore",
    "bench",
    "cite",
]
"""Commands in the order of the help, the most used first."""


class _OrderedGroup(typer.core.TyperGroup):
    """Group that lists its commands in the order of `COMMANDS`, not of their registration."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # pyright: ignore
        return sorted(super().list_commands(ctx), key=COMMANDS.index)


app = typer.Typer(
    name="deeplin",
    cls=_OrderedGroup,
    help="Deep linear networks as an exact instrument.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from deeplin import __version__

        typer.echo(f"deeplin {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version)
    ] = False,
) -> None:
    pass


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def seed_option(help: str) -> Any:
    """Return the option `--seed` of a command."""
    return typer.Option(
        help=help, callback=lambda value: None if value is None else seed_number(value)
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; the exit code is 0 on success, 1 if a check fails, 2 on bad input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escape characters that the locale lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            app(arguments)
        finally:
            sys.stdout.flush()  # report write errors here, not at interpreter shutdown
    except InputError as error:
        print(f"deeplin: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        where = "the answer" if error.filename is None else repr(str(error.filename))
        with suppress(OSError, ValueError):  # a later flush would raise again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"deeplin: cannot write {where}: {error.strerror or error}.", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("deeplin: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


def prepare_computing() -> None:
    """Enable float64 and a cache folder for compiled programs.

    Every command that computes calls this before its first computation; the others never import
    JAX. The library itself never enables float64 globally; `diagnose`, `train` and the estimators
    also use the cache folder.
    """
    import jax

    from deeplin.execution import share_compiled_code

    share_compiled_code()
    jax.config.update("jax_enable_x64", True)


def text_width() -> int:
    """Return the width of text in columns: that of the terminal, but at most 120."""
    return min(shutil.get_terminal_size((80, 24)).columns, 120)


@app.command()
def explore(
    port: Annotated[int, typer.Option(help="Port on this machine; 0: any free port.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    export: Annotated[
        Path | None, typer.Option(help="Write the page as one file that works from disk.")
    ] = None,
) -> None:
    """Open an interactive page that shows whole training runs (served locally, works offline)."""
    if export is not None:
        return write_page(export)
    from deeplin.explorer.serve import explore as serve

    with suppress(KeyboardInterrupt):
        serve(port, open_browser=browser, prepare=prepare_computing)
    # Threads may be running compiled code, which Python cannot interrupt: a normal exit would wait
    # for them or abort. Nothing has to be saved.
    sys.stdout.flush()
    os._exit(0)


def write_page(path: Path) -> None:
    """Write the page to a file, with the certificates of its presets."""
    from deeplin.explorer.answers import preset_certificates, statements
    from deeplin.explorer.build import page

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
