"""`deeplin certify` and `deeplin cite`: check and cite the statements of the papers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from deeplin.cli.app import AsJson, app, prepare_computing, seed_option, text_width
from deeplin.errors import InputError, positive_number, whole_number
from deeplin.sources import bibtex, source_of

STARTS = ("small", "gaussian", "residual")
SMALL_SCALE = 0.05
"""Scale of a small start, whose first layer is zero (FM-A1)."""


@app.command()
def certify(
    run: Annotated[
        Path | None, typer.Argument(help="A run saved by `deeplin train`; default: a new run.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="A statement id, such as FM-L1; may be repeated.")
    ] = None,
    depth: Annotated[int, typer.Option(help="Number of layers of the new run.")] = 3,
    start: Annotated[str, typer.Option(help=f"Its initialization: {', '.join(STARTS)}.")] = "small",
    learning_rate: Annotated[
        float | None, typer.Option(help="Of gradient descent; default: train by gradient flow.")
    ] = None,
    seed: Annotated[int, seed_option("Seed of its data and its initialization.")] = 0,
    tolerance: Annotated[float, typer.Option(help="Relative tolerance for rounding.")] = 1e-9,
    parts: Annotated[bool, typer.Option("--parts", help="Print one row for each claim.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also list statements that do not apply to this run.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the statements of the papers on a run; the exit code is 1 if one is violated."""
    if run is not None and not run.exists():
        raise InputError(f"there is no file {str(run)!r}; pass a run saved by `deeplin train`.")
    prepare_computing()
    from deeplin.certificates.certificate import certify as certify_run
    from deeplin.dynamics.saved import load_run
    from deeplin.report.text import certificate_text

    if run is None:
        problem, outcome = _train_example(depth, start, learning_rate, seed)
    else:
        problem, outcome = load_run(run)
    table = certify_run(problem, outcome, only=only or None, tolerance=tolerance, parts=parts)
    if as_json:
        typer.echo(json.dumps(table.records(), ensure_ascii=False, indent=2))
    else:
        everything = everything or bool(only) or parts
        typer.echo(certificate_text(table, width=text_width(), everything=everything))
    if not table.all_hold:
        raise typer.Exit(1)


def _train_example(depth: int, start: str, learning_rate: float | None, seed: int):
    """Return the data set of FM and a run on it with recorded weights."""
    import jax

    from deeplin.dynamics import gradient_descent, gradient_flow
    from deeplin.networks.initialize import start_by_name
    from deeplin.problems import synthetic

    L = whole_number("depth", depth)
    if start not in STARTS:
        raise InputError(f"start is {start!r}; pass one of {', '.join(STARTS)}.")
    problem = synthetic.flat_minima(seed).problem
    name, scale = ("zero_layer", SMALL_SCALE) if start == "small" else (start, None)
    network = start_by_name(name, problem, jax.random.key(seed), depth=L, scale=scale)
    if learning_rate is None:
        return problem, gradient_flow(problem, network, until=50.0, record_every=1.0)
    rate = positive_number("learning_rate", learning_rate)
    return problem, gradient_descent(problem, network, rate, 5000, record_every=50)


@app.command()
def cite(
    identifiers: Annotated[
        list[str] | None, typer.Argument(help="Ids such as FM-2 or X-2; default: the library.")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(help="Folder with texts of the papers, to check all quotations against."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of BibTeX.")] = False,
) -> None:
    """Print the BibTeX entry of a figure, a statement or the library itself."""
    if check is not None:
        _check_quotes(check)
        return
    wanted = identifiers or ["deeplin"]
    sources = [(identifier, source_of(identifier)) for identifier in wanted]
    if as_json:
        typer.echo(json.dumps([{"id": i, **s} for i, s in sources], ensure_ascii=False, indent=2))
        return
    for identifier, source in sources:
        typer.echo(bibtex(source, "" if identifier == "deeplin" else f"cited for {identifier}"))


def _check_quotes(folder: Path) -> None:
    """Print the quoted sentences that the texts of a folder lack; exit with 1 if there are any."""
    from deeplin.papers.catalogue import LEFT_OUT, QUOTES
    from deeplin.papers.quote import missing

    sentences = [*QUOTES, *LEFT_OUT]
    lost = missing(sentences, folder)
    for quote in lost:
        typer.echo(f"Not found: {quote.paper}, {quote.place}: “{quote.text}”")
    found = len(sentences) - len(lost)
    typer.echo(f"{found} of {len(sentences)} quoted sentences stand in {folder}.")
    if lost:
        raise typer.Exit(1)
