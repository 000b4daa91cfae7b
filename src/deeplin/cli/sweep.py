"""`deeplin sweep` and `deeplin status`: resumable sweeps on one machine or several."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deeplin.cli.app import app, prepare_computing, seed_option
from deeplin.errors import InputError

if TYPE_CHECKING:
    from deeplin import sweep as engine


@app.command()
def status(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of a sweep; default: the only one in results/.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print how much of a sweep is finished; exit with 1 if a unit failed or a file is damaged."""
    from deeplin import sweep as engine

    found = engine.status(folder or _only_sweep(Path("results")))
    if as_json:
        fields = dataclasses.asdict(found) | {"complete": found.complete}
        typer.echo(json.dumps(fields, ensure_ascii=False))
    else:
        _print_status(found)
    if not found.healthy:
        raise typer.Exit(1)


def _only_sweep(results: Path) -> Path:
    """Return the only sweep in a folder, or raise InputError if there are none or several."""
    sweeps = sorted(path.parent for path in results.glob("*/_manifest.json"))
    if len(sweeps) == 1:
        return sweeps[0]
    names = f": {', '.join(map(str, sweeps))}" if sweeps else ""
    raise InputError(f"there are {len(sweeps)} sweeps in {results}{names}; pass one folder.")


def _print_status(found: engine.Status) -> None:
    at_work = f"at work: {', '.join(found.running)}" if found.running else "nobody at work"
    typer.echo(
        f"{found.folder}: {found.experiment}, {found.finished} of {found.units} units finished, "
        f"{len(found.failures)} failed, {at_work}; {found.sessions} session(s), "
        f"{found.unit_seconds:.1f} s of computation."
    )
    for failure in found.failures:
        typer.echo(f"failed: {failure['unit']} {failure['coordinates']}: {failure['error']}")
    for name in found.damaged:
        typer.echo(f"damaged: {name}; the next call computes its unit again")


@app.command()
def sweep(
    file: Annotated[Path | None, typer.Argument(help="The sweep as JSON or TOML.")] = None,
    config: Annotated[Path | None, typer.Option(help="The sweep file, given as an option.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; default results/NAME-OF-CONFIG.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=0, help="Worker processes; 0 computes in this process.")
    ] = 0,
    cluster: Annotated[
        str | None, typer.Option(help="Address of a dask scheduler, such as tcp://host:8786.")
    ] = None,
    shard: Annotated[
        str | None, typer.Option(help="Compute only part i of N, as i/N: for job arrays.")
    ] = None,
    seed: Annotated[int | None, seed_option("Seed that replaces the one in the file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Compute a sweep, or the rest of it: repeat the same command to resume.

    The exit code is 0 if all units are finished, 1 if one failed (the next call retries it).
    """
    config = _resolve_config(file, config)
    if cluster and workers:
        raise InputError("both --workers and --cluster are given; pass one of them.")
    prepare_computing()
    from deeplin import sweep as engine

    experiment, chosen = engine.read_sweep(config)
    if seed is not None:
        chosen = _reseed(chosen, seed)
    folder = out or Path("results") / config.stem
    again = shlex.join(["deeplin", *sys.argv[1:]])
    resume = f"Finished units are kept in {folder}. To go on: {again}"
    here = engine.Processes(workers) if workers else engine.InProcess()
    options: dict[str, Any] = {
        "executor": engine.Cluster(cluster) if cluster else here,
        "shard": engine.Shard.parse(shard) if shard else None,
        "progress": engine.show_progress(experiment.name),
    }
    try:
        with engine.prompt_interrupt(f"deeplin: interrupted. {resume}"):
            outcome = engine.run(experiment, chosen, folder, **options)
    except (engine.StoreError, engine.ExecutorError, engine.UnitsFailed) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        typer.echo(f"deeplin: {reason}. {resume}", err=True)
        raise typer.Exit(1) from None
    _print_outcome(outcome, as_json)
    if not outcome.complete:
        raise typer.Exit(1)


def _resolve_config(file: Path | None, config: Path | None) -> Path:
    """Return the path of the sweep file: the one given, or the only one in this folder."""
    if file and config:
        raise InputError(f"both {str(file)!r} and --config {str(config)!r} are given; pass one.")
    chosen = file or config
    if chosen is None:
        here = sorted(Path().glob("*.toml"))
        sweeps = [path for path in here if path.name != "pyproject.toml"]
        if len(sweeps) != 1:
            raise InputError(
                f"there are {len(sweeps)} sweeps (.toml) in this folder; pass the one to compute."
            )
        return sweeps[0]
    if not chosen.exists():
        raise InputError(f"there is no file {str(chosen)!r}; pass a sweep as JSON or TOML.")
    return chosen


def _reseed(config: Any, seed: int) -> Any:
    if not any(field.name == "seed" for field in dataclasses.fields(config)):
        raise InputError(
            f"--seed is {seed}, but {type(config).__name__} has no seed; leave it out."
        )
    return dataclasses.replace(config, seed=seed)


def _print_outcome(outcome: engine.Outcome, as_json: bool) -> None:
    summary = {
        "folder": str(outcome.store.folder),
        "reused": outcome.reused,
        "computed": outcome.computed,
        "failed": dict(outcome.failed),
        "damaged": list(outcome.damaged),
        "seconds": round(outcome.seconds, 3),
    }
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False))
        return
    typer.echo(
        f"{outcome.computed} unit(s) computed, {outcome.reused} finished before, "
        f"{len(outcome.failed)} failed, in {outcome.seconds:.1f} s: {outcome.store.folder}"
    )
    for unit, error in outcome.failed.items():
        typer.echo(f"failed: {unit} ({error}); traceback in {outcome.store.failed / unit}.json")
