"""Measure speed as ratios within one run: `python benchmarks [NAMES] [--compare FILE]`.

Every module of this folder with a function `measure()` is a benchmark. It returns, by name, a
ratio and its target, an upper bound if `at_most` is set. All are written as JSON; the exit code is
1 if a ratio misses its target.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent


def load_benchmarks(names: list[str]) -> list[ModuleType]:
    """Return the modules with a function `measure()`, all or those with these names."""
    available = [path.stem for path in sorted(HERE.glob("[!_]*.py"))]
    unknown = sorted(set(names) - set(available))
    if unknown:
        raise SystemExit(f"no benchmark {', '.join(unknown)}; there are {', '.join(available)}.")
    modules = map(importlib.import_module, names or available)
    return [module for module in modules if hasattr(module, "measure")]


def reached(entry: dict[str, Any]) -> bool:
    """Return whether a ratio reached its target, an upper bound if `at_most` is set."""
    if entry.get("at_most"):
        return entry["ratio"] <= entry["target"]
    return entry["ratio"] >= entry["target"]


def comparison(results: dict, earlier: dict) -> Table:
    """Return a table of the ratios, their targets and earlier ones."""
    table = Table("measured", "ratio", "target", "reached", *(["earlier"] if earlier else []))
    for name, entry in results.items():
        sign = "≤" if entry.get("at_most") else "≥"
        row = [name, f"{entry['ratio']:.3g}", f"{sign} {entry['target']:g}"]
        row.append("yes" if reached(entry) else "NO")
        if earlier:
            row.append(f"{earlier[name]['ratio']:.3g}" if name in earlier else "new")
        table.add_row(*row)
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="benchmarks; default: all")
    parser.add_argument("--out", type=Path, default=Path("results/bench.json"), help="JSON file")
    parser.add_argument("--compare", type=Path, help="an earlier JSON file to compare with")
    options = parser.parse_args(arguments)
    earlier = json.loads(options.compare.read_text())["results"] if options.compare else {}

    from deeplin.execution import share_compiled_code
    from deeplin.files import environment

    share_compiled_code()
    console = Console(stderr=True)
    results: dict[str, dict[str, Any]] = {}
    for module in load_benchmarks(options.names):
        started = time.perf_counter()
        with console.status(module.__name__):
            results |= module.measure()
        console.print(f"{module.__name__}: {time.perf_counter() - started:.0f} s")
    date = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"date": date, "environment": environment(), "results": results}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    Console().print(comparison(results, earlier))
    print(f"written to {options.out}")
    raise SystemExit(not all(map(reached, results.values())))


if __name__ == "__main__":
    main()
