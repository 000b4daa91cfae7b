"""`deeplin bench`: measure speed ratios in a checkout and write them as JSON."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from deeplin.cli.app import app, prepare_computing
from deeplin.errors import InputError


def load_benchmarks(folder: Path, names: list[str]) -> list[ModuleType]:
    """Return the modules of the benchmarks folder that have a function `measure()`."""
    if not folder.is_dir():
        raise InputError(
            f"there is no folder {folder}; run this in a checkout or pass --folder with its "
            "benchmarks."
        )
    available = {path.stem: path for path in sorted(folder.glob("*.py"))}
    unknown = sorted(set(names) - set(available))
    if unknown:
        raise InputError(f"no benchmark {', '.join(unknown)}; there are {', '.join(available)}.")
    sys.path.insert(0, str(folder.resolve()))  # benchmarks import shared modules from there
    modules = []
    for name in names or available:
        specification = importlib.util.spec_from_file_location(f"bench_{name}", available[name])
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules[specification.name] = module  # needed by dataclasses and sweeps
        specification.loader.exec_module(module)
        if hasattr(module, "measure"):
            modules.append(module)
    return modules


def reached(entry: dict[str, Any]) -> bool:
    """Return whether a ratio reached its target, an upper bound if `at_most` is set."""
    if entry.get("at_most"):
        return entry["ratio"] <= entry["target"]
    return entry["ratio"] >= entry["target"]


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Benchmarks; default: all.")] = None,
    folder: Annotated[Path, typer.Option(help="Where the benchmarks are.")] = Path("benchmarks"),
    out: Annotated[Path, typer.Option(help="JSON file to write.")] = Path("results/bench.json"),
    compare: Annotated[
        Path | None, typer.Option(help="An earlier JSON file to compare with.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON too.")] = False,
) -> None:
    """Measure speed as ratios within one run; exit with 1 if a ratio misses its target."""
    earlier = _read_earlier(compare)
    prepare_computing()
    from deeplin.files import environment

    console = Console(stderr=True)
    results: dict[str, dict[str, Any]] = {}
    for module in load_benchmarks(folder, names or []):
        started = time.perf_counter()
        with console.status(module.__name__.removeprefix("bench_")):
            results |= module.measure()
        console.print(f"{module.__name__[6:]}: {time.perf_counter() - started:.0f} s")
    date = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"date": date, "environment": environment(), "results": results}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(document, ensure_ascii=False))
    else:
        _print_table(Console(), results, earlier)
        typer.echo(f"written to {out}")
    if not all(reached(entry) for entry in results.values()):
        raise typer.Exit(1)


def _read_earlier(path: Path | None) -> dict[str, dict[str, Any]]:
    if path is None:
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))["results"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is not a file written by `deeplin bench` ({error}); pass one with --compare."
        ) from error


def _print_table(console: Console, results: dict, earlier: dict) -> None:
    table = Table("measured", "ratio", "target", "reached", *(["earlier"] if earlier else []))
    for name, entry in results.items():
        sign = "≤" if entry.get("at_most") else "≥"
        row = [name, f"{entry['ratio']:.3g}", f"{sign} {entry['target']:g}"]
        row.append("yes" if reached(entry) else "NO")
        if earlier:
            row.append(f"{earlier[name]['ratio']:.3g}" if name in earlier else "new")
        table.add_row(*row)
    console.print(table)
