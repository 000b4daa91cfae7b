"""What a figure leaves on disk: pictures, data, and one JSON file that says everything about it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deeplin.checks import InputError
from deeplin.figures.figure import Figure
from deeplin.figures.running import FigureResult, PanelResult, StudyResult
from deeplin.figures.style import draw, save
from deeplin.files import whole_file
from deeplin.sweep.config import to_plain
from deeplin.sweep.session import environment

OUTCOME = "outcome.json"


def write_figure(result: FigureResult, report: Path) -> dict[str, Any]:
    """Write the pictures and data of a figure into the report's folder; returns its outcome.

    The outcome is what `outcome.json` holds, and all that the page needs: a report can be made
    figure by figure, in any order, in any number of calls.
    """
    started = time.perf_counter()
    home = report / result.figure.name
    try:
        home.mkdir(parents=True, exist_ok=True)
        studies = {panel.data.study.name: panel.data for panel in result.panels}
        data = [_write_data(study, result.preset, report / "data") for study in studies.values()]
        panels = [_write_panel(panel, home) for panel in result.panels]
        outcome = {
            **_about(result.figure),
            "preset": result.preset,
            "seed": result.seed,
            "verdict": result.verdict,
            "failures": list(result.failures),
            "panels": panels,
            "data": data,
            "command": command(result.figure.name, result.preset, result.seed),
            "seconds": sum(study["seconds"] for study in data)
            + result.judging_seconds
            + time.perf_counter()
            - started,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "environment": environment(),
        }
        with whole_file(home / OUTCOME) as file:
            file.write(json.dumps(outcome, indent=1, ensure_ascii=False).encode())
    except OSError as error:
        raise InputError(
            f"cannot write the report into {report}: {error.strerror}; pass --out with a folder "
            "you may write in. What was computed is kept."
        ) from error
    return outcome


def command(name: str, preset: str, seed: int) -> str:
    """The command that reproduces a figure."""
    return f"deeplin reproduce {name} --preset {preset} --seed {seed}"


def read_outcomes(report: Path, order: list[str]) -> list[dict[str, Any]]:
    """The outcomes of all figures in a report's folder, in the given order."""
    paths = [report / name / OUTCOME for name in order]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def _about(figure: Figure) -> dict[str, str]:
    return {
        "name": figure.name,
        "title": figure.title,
        "printed": figure.printed,
        "as_run": figure.as_run,
    }


def _write_panel(result: PanelResult, home: Path) -> dict[str, Any]:
    panel, data = result.panel, result.data
    figure = draw(lambda ax: panel.plot(data.config, data.table, ax), panel.size, panel.name)
    save(figure, home, panel.name)
    return {
        "name": panel.name,
        "caption": panel.caption,
        "study": panel.study.name,
        "files": {kind: f"{home.name}/{panel.name}.{kind}" for kind in ("svg", "png", "pdf")},
        "claims": [claim.to_plain() for claim in result.claims],
    }


def _write_data(study: StudyResult, preset: str, folder: Path) -> dict[str, Any]:
    """The tidy table as Parquet and CSV, and the config it came from."""
    folder.mkdir(exist_ok=True)
    name = f"{study.study.name}-{preset}"
    study.table.to_parquet(folder / f"{name}.parquet")
    study.table.to_csv(folder / f"{name}.csv", index=False, float_format="%.10g")
    return {
        "study": study.study.name,
        "rows": len(study.table),
        "seconds": study.seconds,
        "parquet": f"data/{name}.parquet",
        "csv": f"data/{name}.csv",
        "config": to_plain(study.config),
    }
