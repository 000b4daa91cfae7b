"""The command line: one typer application, one module for each command."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from deeplin.checks import InputError

app = typer.Typer(
    name="deeplin",
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


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit code 0 success, 1 a claim or run failed, 2 bad input."""
    try:
        app(arguments)
    except InputError as error:
        print(f"deeplin: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("deeplin: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


def prepare_computing() -> None:
    """Switch on float64, one JAX device for each core, and a folder for compiled programs.

    Every command that computes calls this before its first computation; the others never wait for
    JAX. The library itself never changes global settings.
    """
    import jax

    from deeplin.kernels.compiling import share_compiled_code

    share_compiled_code()
    jax.config.update("jax_enable_x64", True)
    if "XLA_FLAGS" not in os.environ:
        with suppress(RuntimeError):  # called from a program in which JAX has already computed
            jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
