"""A user's sweep as a file: JSON or TOML with the fields of a config."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from deeplin.checks import InputError
from deeplin.sweep.config import build
from deeplin.sweep.experiment import BUILT_IN, Experiment, find_experiment


def read_sweep(path: Path) -> tuple[Experiment, Any]:
    """The experiment and the config of a file; `experiment` is one of its fields.

    Without it the built-in `descent` is meant; `module:attribute` names one of your own, which is
    looked for beside the file too.
    """
    fields = _parse(path)
    reference = fields.pop("experiment", "descent")
    if not isinstance(reference, str):
        raise InputError(f"experiment is {reference!r}; pass a name or module:attribute.")
    beside = str(path.resolve().parent)
    if reference not in BUILT_IN and beside not in sys.path:
        sys.path.append(beside)
    experiment = find_experiment(reference)
    return experiment, build(experiment.config, fields, path.name)


def _parse(path: Path) -> dict[str, Any]:
    parsers = {".json": json.loads, ".toml": tomllib.loads}
    if path.suffix not in parsers:
        raise InputError(f"{path} is neither .json nor .toml; pass a config in one of these forms.")
    try:
        fields = parsers[path.suffix](path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    except ValueError as error:  # of either parser, or of the encoding
        raise InputError(f"{path} is not valid {path.suffix[1:].upper()}: {error}") from error
    if not isinstance(fields, dict):
        raise InputError(f"{path} holds a {type(fields).__name__}; pass the fields of a config.")
    return fields
