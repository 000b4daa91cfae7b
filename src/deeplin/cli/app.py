"""The typer application of the command line."""

from __future__ import annotations

import io
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    "explore",
]
"""Commands in the order of the help, the most used first."""


INTERRUPTED = 130
"""Exit code of a process ended by Ctrl-C, by convention."""


@contextmanager
def ending_on_interrupt(last_line: str) -> Iterator[None]:
    """End the process on Ctrl-C, with a last line that says what was kept.

    It does not wait for threads that are computing, which may have minutes of work left; files
    are written atomically, so none is left half written. Python can lose a Ctrl-C that arrives
    during a garbage collection, in which JAX takes part; the next one then ends the process.
    """
    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError):  # whoever read the answer may be gone
            sys.stdout.flush()
        print(last_line, file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)


class _Group(typer.core.TyperGroup):
    """Group that lists its commands in the order of `COMMANDS` and ends on Ctrl-C."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # pyright: ignore
        return sorted(super().list_commands(ctx), key=COMMANDS.index)

    def invoke(self, ctx: typer.Context) -> Any:  # pyright: ignore
        with ending_on_interrupt("deeplin: interrupted"):
            return super().invoke(ctx)


app = typer.Typer(
    name="deeplin",
    cls=_Group,
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
    if not sys.warnoptions:  # commands say what concerns their user themselves
        warnings.simplefilter("ignore", UserWarning)
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


def prepare_computing() -> None:
    """Keep compiled programs in a cache folder.

    Every command that computes calls this before its first computation; the others never import
    JAX. `diagnose`, `train` and the estimators use the cache folder, too.
    """
    from deeplin.execution import share_compiled_code

    share_compiled_code()


def text_width() -> int:
    """Return the width of text in columns: that of the terminal, but at most 120."""
    return min(shutil.get_terminal_size((80, 24)).columns, 120)
