"""`deeplin certify`: check the statements of the papers on a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from deeplin.cli.app import AsJson, app, prepare_computing, seed_option, text_width
from deeplin.errors import InputError, positive_number, whole_number

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
    details: Annotated[
        bool, typer.Option("--details", help="Print ids, both sides and measured constants.")
    ] = False,
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
    from deeplin.certificates.text import certificate_text
    from deeplin.dynamics.saved import load_run

    if run is None:
        problem, outcome = _train_example(depth, start, learning_rate, seed)
    else:
        problem, outcome = load_run(run)
    table = certify_run(problem, outcome, only=only or None)
    if as_json:
        typer.echo(json.dumps(table.records(), ensure_ascii=False, indent=2))
    else:
        shown = {"details": details, "everything": everything or bool(only)}
        typer.echo(certificate_text(table, width=text_width(), **shown))
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
