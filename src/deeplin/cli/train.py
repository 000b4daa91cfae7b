"""`deeplin train`: train a deep linear network on a table and see whether the theory was right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deeplin.checks import InputError, positive_number, whole_number
from deeplin.cli import table_options as table
from deeplin.cli.app import app, prepare_computing, seed_option
from deeplin.interrupt import prompt_interrupt

if TYPE_CHECKING:
    from deeplin.dynamics import Run
    from deeplin.problems.reading import Reading

TOLERANCE = 1e-10
"""Training ends when R − R_min is at most this part of what there is to explain."""
RECORDS = 400
"""Records along a run, as long as their weights together stay below `KEPT` numbers."""
KEPT = 2**25


@app.command()
def train(
    source: table.Source,
    target: table.Target,
    depth: Annotated[int, typer.Option(help="Number of layers.")] = 10,
    width: Annotated[int | None, typer.Option(help="Hidden width.")] = None,
    initialization: Annotated[
        str, typer.Option(help="gaussian, zero_layer, residual, identity or balanced.")
    ] = "gaussian",
    scale: Annotated[float | None, typer.Option(help="Scale of the initialisation.")] = None,
    learning_rate: Annotated[str, typer.Option(help="A number, or auto.")] = "auto",
    momentum: Annotated[float, typer.Option(help="Heavy-ball coefficient.")] = 0.0,
    steps: Annotated[int, typer.Option(help="Most steps to take.")] = 20_000,
    ignore: table.Ignore = None,
    keep: table.Keep = None,
    encode: table.Encode = False,
    standardize: table.Standardize = False,
    intercept: table.Intercept = False,
    missing: table.Missing = "refuse",
    memory: table.Memory = 128,
    cluster: table.Cluster = None,
    seed: Annotated[int, seed_option("Seed of the initialisation.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the run is kept.")] = Path("run.npz"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older run.")] = False,
    as_json: table.AsJson = False,
) -> None:
    """Train on a table, watch loss and sharpness against 2/η, and keep the run.

    The exit code is 1 when training did not settle or the prediction did not come true.
    """
    table.require_source(source)
    prepare_computing()
    from deeplin.dynamics.saved import check_run_path, save_run

    if check_run_path(out).exists() and not overwrite:
        raise InputError(f"{str(out)!r} holds a run already; pass another --out, or --overwrite.")
    start = {"depth": depth, "width": width, "initialization": initialization, "scale": scale}
    with prompt_interrupt("deeplin: interrupted; no run was kept"):
        reading = table.read(
            source, target, ignore, standardize, intercept, missing, memory, cluster, keep, encode
        )
        run, report = _train(reading, start, _rate(learning_rate), momentum, steps, seed)
    settings = {"learning_rate": learning_rate, "seed": seed, **start}
    settings |= {"standardize": standardize, "intercept": intercept, "missing": missing}
    kept = save_run(out, reading.problem, run, notes={"settings": settings, **report})
    report["run"] = str(kept)
    typer.echo(json.dumps(report, ensure_ascii=False, indent=2) if as_json else _text(report))
    if run.status != "converged" or report["came_true"] is False:
        raise typer.Exit(1)


def _rate(text: str) -> Any:
    return text if text == "auto" else positive_number("learning-rate", text)


def _train(
    reading: Reading, start: dict[str, Any], rate: Any, momentum: float, steps: int, seed: int
) -> tuple[Run, dict[str, Any]]:
    """Train while showing it, compare with the prediction, and say everything in one report."""
    import jax

    from deeplin.cli.live import LiveTraining
    from deeplin.sharpness import sharpness
    from deeplin.training.prediction import judge, predict
    from deeplin.training.recipe import descend, starting_network

    problem = reading.problem
    problem.require_signal("what to train for")
    network = starting_network(problem, jax.random.key(seed), **start)
    size = sum(weight.size for weight in network.weights)
    records = max(2, min(KEPT // size, RECORDS))
    with LiveTraining(whole_number("steps", steps)) as live:
        run = descend(
            problem,
            network,
            rate,
            steps,
            announce=live.restart,
            momentum=momentum,
            watch=live.watch,
            record_every=max(1, steps // records),
            gap=TOLERANCE * problem.zero_gap,
        )
    prediction = predict(problem, network, run.learning_rate, momentum)
    end = sharpness(problem, run.network)
    verdict = judge(prediction, run, end)
    coefficients, intercepts = reading.in_table_units(run.network.product)
    return run, {
        "data": list(reading.notes),
        "inputs": list(reading.inputs),
        "targets": list(reading.targets),
        "status": run.status,
        "steps": run.steps,
        "learning_rate": run.learning_rate,
        "critical_learning_rate": prediction.critical_learning_rate,
        "risk": run.evidence["risk"],
        "minimal_risk": problem.minimal_risk,
        "sharpness": float(end.value),
        "minimal_sharpness": prediction.minimal_sharpness,
        "balanced_sharpness": prediction.balanced_sharpness,
        "prediction": str(prediction),
        "verdict": str(verdict),
        "came_true": verdict.came_true,
        "coefficients": coefficients.T.tolist(),
        "intercepts": intercepts.tolist(),
    }


def _text(report: dict[str, Any]) -> str:
    lines = [
        *(f"- {note}" for note in report["data"]),
        f"- Prediction: {report['prediction']}.",
        f"- After training, {report['verdict']}.",
        f"- Risk {report['risk']:.6g}, at best {report['minimal_risk']:.6g}; small initialisations "
        f"end at sharpness S_bal = {report['balanced_sharpness']:.4g}.",
        f"- Kept in {report['run']}; check every statement on it with: "
        f"deeplin certify {report['run']}",
    ]
    return "\n".join(lines)
