"""`deeplin cite`: how to cite a statement, a figure or the library."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from deeplin.checks import InputError
from deeplin.cli.app import app

SOURCES = {
    "FM": {
        "key": "marion2024flat",
        "type": "inproceedings",
        "author": "Marion, Pierre and Chizat, Lénaïc",
        "title": "Deep linear networks for regression are implicitly regularized "
        "towards flat minima",
        "booktitle": "Advances in Neural Information Processing Systems",
        "year": "2024",
        "doi": "10.52202/079017-2445",
        "url": "https://arxiv.org/abs/2405.13456",
    },
    "BO": {
        "key": "chatterji2023benign",
        "type": "article",
        "author": "Chatterji, Niladri S. and Long, Philip M.",
        "title": "Deep linear networks can benignly overfit when shallow ones do",
        "journal": "Journal of Machine Learning Research",
        "volume": "24",
        "number": "117",
        "pages": "1--39",
        "year": "2023",
        "url": "https://arxiv.org/abs/2209.09315",
    },
    "Talk": {
        "key": "marion2024three",
        "type": "misc",
        "author": "Marion, Pierre",
        "title": "Three stories on deep linear networks",
        "note": "Slides, SIGMA 2024 workshop, CIRM, Marseille",
        "year": "2024",
        "url": "https://pierremarion23.github.io",
    },
    "X": {
        "key": "deeplin",
        "type": "software",
        "author": "{The deeplin authors}",
        "title": "deeplin: deep linear networks as an exact instrument",
        "year": "2026",
    },
}


def source_of(identifier: str) -> dict[str, str]:
    """The source of a statement or figure id such as FM-T2, BO-1, Talk-log or X-2."""
    prefix = identifier.split("-")[0]
    name = {"E": "X", "deeplin": "X"}.get(prefix, prefix)
    if name not in SOURCES:
        raise InputError(
            f"{identifier!r} has no known source; pass an id such as FM-2, BO-1, Talk-log or X-2."
        )
    return SOURCES[name]


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
