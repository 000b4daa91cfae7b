"""`deeplin status`: where a sweep stands."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deeplin.checks import InputError
from deeplin.cli.app import app

if TYPE_CHECKING:
    from deeplin import sweep as engine


@app.command()
def status(
    folder: Annotated[
        Path | None, typer.Argument(help="The folder of a sweep; none: the only one in results/.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say how much of a sweep is finished; exit 1 when a unit failed or a file is not trusted."""
    from deeplin import sweep as engine

    found = engine.status(folder or _only_sweep(Path("results")))
    if as_json:
        fields = dataclasses.asdict(found) | {"complete": found.complete}
        typer.echo(json.dumps(fields, ensure_ascii=False))
    else:
        _print(found)
    if not found.healthy:
        raise typer.Exit(1)


def _only_sweep(results: Path) -> Path:
    """The sweep that is meant when none is named."""
    sweeps = sorted(path.parent for path in results.glob("*/_manifest.json"))
    if len(sweeps) == 1:
        return sweeps[0]
    names = f": {', '.join(map(str, sweeps))}" if sweeps else ""
    raise InputError(f"there are {len(sweeps)} sweeps in {results}{names}; pass one folder.")


def _print(found: engine.Status) -> None:
    at_work = f"at work: {', '.join(found.running)}" if found.running else "nobody at work"
    typer.echo(
        f"{found.folder}: {found.experiment}, {found.finished} of {found.units} units finished, "
        f"{len(found.failures)} failed, {at_work}; {found.sessions} session(s), "
        f"{found.unit_seconds:.1f} s of computation."
    )
    for failure in found.failures:
        typer.echo(f"failed: {failure['unit']} {failure['coordinates']}: {failure['error']}")
    for name, reason in found.suspect.items():
        typer.echo(f"not trusted: {name}: {reason}")
    if found.set_aside:
        typer.echo(f"set aside earlier: {found.set_aside} file(s), in {found.folder}/_aside")
