"""What every dynamics returns: the trained networks with their evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from deeplin.networks import Network

CONVERGED, DIVERGED, STOPPED = "converged", "diverged", "stopped"


class Records(Mapping[str, np.ndarray]):
    """Quantities along a run: `records["risk"]` has shape (records,) or (records, batch).

    Quantities with one value for each layer have one more axis at the end. `step` (descent) or
    `time` (flow) says when each record was taken.
    """

    def __init__(self, columns: Mapping[str, np.ndarray] | None = None):
        self._columns = {name: np.asarray(values) for name, values in (columns or {}).items()}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._columns:
            known = ", ".join(self._columns) or "nothing (pass record_every)"
            raise KeyError(f"{name!r} was not recorded; recorded: {known}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {values.shape}" for name, values in self._columns.items())
        return f"Records({shapes})"

    def table(self) -> pd.DataFrame:
        """One tidy row for each record and run; layer quantities become `name_1`, `name_2`, …"""
        index_name = "time" if "time" in self._columns else "step"
        moments = self._columns[index_name]
        batch = max((v.shape[1] for v in self._columns.values() if v.ndim > 1), default=1)
        single = all(v.ndim == 1 for name, v in self._columns.items() if name in ("risk", "loss"))
        rows: dict[str, np.ndarray] = {
            index_name: np.repeat(moments, 1 if single else batch),
            "run": np.tile(np.arange(1 if single else batch), len(moments)),
        }
        for name, values in self._columns.items():
            if name == index_name:
                continue
            flat = values.reshape(len(rows["run"]), -1)
            if flat.shape[1] == 1:
                rows[name] = flat[:, 0]
            else:
                rows |= {f"{name}_{k + 1}": flat[:, k] for k in range(flat.shape[1])}
        return pd.DataFrame(rows)


@dataclass(frozen=True)
class Run:
    """The outcome of training one network, or a batch of them.

    For a batch, `status`, `steps` and the entries of `evidence` are arrays with one entry for each
    run; for a single network they are plain values.
    """

    network: Network
    """The trained weights. A diverged run keeps its last finite ones."""
    initial: Network
    """The weights it started from."""
    status: Any
    """`converged` (a goal was reached), `diverged`, or `stopped` (ran out of steps or time)."""
    steps: Any
    """Steps taken; for a diverged run the step at which it diverged."""
    records: Records = field(default_factory=Records)
    """What was recorded along the way."""
    trajectory: Network | None = None
    """The weights at each record, with a leading record axis before the batch axis."""
    learning_rate: Any = None
    """The learning rate of descent (one for each run); None for gradient flow."""
    momentum: float = 0.0
    """Heavy-ball coefficient of descent."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Measured at the end: `gap`, `risk`; for flow also `time`, `evaluations`, `drift` (FM-L1)."""

    def __repr__(self) -> str:
        kinds, counts = np.unique(np.atleast_1d(self.status), return_counts=True)
        outcome = ", ".join(f"{count} {kind}" for kind, count in zip(kinds, counts, strict=True))
        return f"Run({outcome}; depth {self.network.depth}, widths {self.network.widths})"
