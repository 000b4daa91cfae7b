"""`deeplin cite`: how to cite a statement, a figure or the library."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from deeplin.cli.app import app
from deeplin.sources import source_of


def bibtex(source: dict[str, str], note: str) -> str:
    """One BibTeX entry."""
    fields = {name: value for name, value in source.items() if name not in ("key", "type")}
    notes = [entry for entry in (fields.pop("note", ""), note) if entry]
    fields |= {"note": "; ".join(notes)} if notes else {}
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{source['type']}{{{source['key']},", *lines, "}"])


@app.command()
def cite(
    identifiers: Annotated[
        list[str] | None, typer.Argument(help="Ids such as FM-2 or X-2; none means the library.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of BibTeX.")] = False,
) -> None:
    """Print the BibTeX entry behind a figure, a statement or the library itself."""
    wanted = identifiers or ["deeplin"]
    sources = [(identifier, source_of(identifier)) for identifier in wanted]
    if as_json:
        typer.echo(json.dumps([{"id": i, **s} for i, s in sources], ensure_ascii=False, indent=2))
        return
    for identifier, source in sources:
        typer.echo(bibtex(source, "" if identifier == "deeplin" else f"cited for {identifier}"))
