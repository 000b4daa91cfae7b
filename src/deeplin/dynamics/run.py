"""Results of a dynamics: the trained networks with their evidence and records."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float, Integer, PyTree, Shaped

from deeplin.dynamics.engine import State, Status, Stepper
from deeplin.dynamics.objective import Ensemble, Objective
from deeplin.errors import InputError, whole_number
from deeplin.markup import html_table
from deeplin.networks import Network, Trajectory
from deeplin.tables.files import Source
from deeplin.tables.predictions import TablePredictions
from deeplin.tables.preparation import Preparation

if TYPE_CHECKING:
    import pandas as pd

CONVERGED, DIVERGED, STOPPED = "converged", "diverged", "stopped"
STATUS_NAMES = {
    Status.RUNNING: STOPPED,
    Status.EXHAUSTED: STOPPED,
    Status.CONVERGED: CONVERGED,
    Status.DIVERGED: DIVERGED,
}
"""Values of `Run.status`."""


Evidence = Mapping[str, str | float | int | Shaped[np.ndarray, " ..."]]
"""Values by name: one for a single network, an array with an entry for each run of a batch."""

Measure = Callable[[tuple[np.ndarray, ...], np.ndarray | None], Mapping[str, np.ndarray]]
"""Function from weights and values (R − floor), both (records, runs, …), to quantities."""
Watch = Callable[[float, Mapping[str, np.ndarray]], None]
"""Callback for every record, with its step or time and its quantities."""
CLOSE = 1e-8
"""Factor of the initial gap at which a run without a goal counts as converged."""
RECORDS_PER_CALL, MAX_RECORDED_NUMBERS = 256, 2**26
"""Records measured together, unless someone watches, and the most numbers they may hold."""


def _range(values, form: str) -> str:
    """Format a number, or the smallest and largest of several; empty where none is finite."""
    finite = np.asarray(values)[np.isfinite(values)]
    if not finite.size:
        return ""
    low, high = format(finite.min(), form), format(finite.max(), form)
    return low if low == high else f"{low} to {high}"


class Records(Mapping[str, np.ndarray]):
    """Quantities along a run, by name.

    | axes | of |
    |---|---|
    | (records,) | `step` (descent) or `time` (flow): when each record was taken |
    | (records,) | a quantity of a single run, such as `risk` |
    | (records, batch) | the same of a batch of runs |
    | …, layers | one more axis at the end for quantities of each layer, such as `singular_values` |
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

    def table(self, *, single: bool | None = None) -> pd.DataFrame:
        """Return a tidy table with one row for each record and run.

        Layer quantities become `name_1`, `name_2`, …. `single` means that there is no axis of runs;
        by default this is inferred from the shape of the risk.
        """
        index_name = "time" if "time" in self._columns else "step"
        when = self._columns[index_name]
        batch = max((v.shape[1] for v in self._columns.values() if v.ndim > 1), default=1)
        if single is None:
            scalar = ("risk", "loss", "gap", "sharpness")
            single = all(v.ndim == 1 for name, v in self._columns.items() if name in scalar)
        rows: dict[str, np.ndarray] = {
            index_name: np.repeat(when, 1 if single else batch),
            "run": np.tile(np.arange(1 if single else batch), len(when)),
        }
        for name, values in self._columns.items():
            if name == index_name:
                continue
            flat = values.reshape(len(rows["run"]), -1)
            if flat.shape[1] == 1:
                rows[name] = flat[:, 0]
            else:
                rows |= {f"{name}_{k + 1}": flat[:, k] for k in range(flat.shape[1])}
        import pandas as pd  # takes a third of a second

        return pd.DataFrame(rows)


@dataclass(frozen=True)
class Run:
    """The outcome of training one network, or a batch of them, by any dynamics.

    For a batch, `status`, `steps` and the entries of `evidence` are arrays with one entry for each
    run, and `run[k]` is one of them; for a single network they are plain values.
    """

    network: Network | PyTree
    """The trained weights (or the pytree of a user-defined loss). A diverged run keeps its last
    finite weights."""
    initial: Network | PyTree
    """The initial weights."""
    status: str | Shaped[np.ndarray, " batch"]
    """What happened, in one word; `message` says it in a sentence.

    | status | meaning |
    |---|---|
    | `converged` | A goal was reached (`gap`, `loss_target`, `gradient_norm`). Without a goal: a \
linear network ended with R − R_r ≤ 1e-8 (R(0) − R_r), where R_r is the smallest risk that its \
hidden widths allow (X-34). |
    | `diverged` | The risk is no longer finite, or exceeded 1e10 times the larger of its initial \
value and the risk of the zero map. |
    | `stopped` | All steps (or the time of a flow) were used without either; without a goal, a \
nonlinear network always ends so. |
    """
    steps: int | Integer[np.ndarray, " batch"]
    """Steps taken; for a diverged run the step at which it diverged."""
    records: Records = field(default_factory=Records)
    """The recorded quantities."""
    trajectory: Trajectory | None = None
    """The weights at each record."""
    learning_rate: float | Float[np.ndarray, " ..."] | None = None
    """η on R: a number or (batch,); with one for each layer (layers,) or (batch, layers), with a
    schedule (steps,). None for gradient flow, and where an optimizer has its own."""
    momentum: float = 0.0
    """β of the heavy ball, or of Nesterov's method."""
    evidence: Evidence = field(default_factory=dict)
    """Measured at the end: `risk`, and for linear networks `gap`, R above the smallest risk that
    the hidden widths allow. Where this is above R_min, `bottleneck` is the difference (X-34). For
    flow also `time`, `evaluations`, `drift` (FM-L1)."""
    dynamics: str = "descent"
    """`descent` or `flow`."""
    variant: str = "plain"
    """`plain`, or the options used: `nesterov`, `layers`, `schedule`, `optimizer`, …"""
    weight_decay: float = 0.0
    """λ of the objective R + λΣ‖W_k‖² (X-9)."""
    batch_size: int | None = None
    """Rows of each mini-batch (X-10); None for full-batch descent."""
    preparation: Preparation | None = None
    """How the training table was converted to inputs and targets, for `predict`."""

    def predict(self, table: Source) -> np.ndarray:
        """Predict the rows of a table (a file or a DataFrame): (n,) or (n, targets), or classes.

        The prediction is NaN (None for classes) for rows with a missing value or a category that
        did not occur in training, and a `UserWarning` lists them. The run must have a
        `preparation`, as those of `deeplin train` do.
        """
        prepared, outputs = self._outputs(table)
        return prepared.predictions(outputs)

    def predict_proba(self, table: Source) -> np.ndarray:
        """Return the probability of each class (`preparation.classes`) for the rows of a table."""
        prepared, outputs = self._outputs(table)
        if not prepared.classes:
            raise InputError("this run predicts amounts, not classes; use run.predict.")
        return prepared.probabilities(outputs)

    def _outputs(self, table: Source) -> tuple[Preparation, np.ndarray]:
        """Return the outputs of the network for the rows of a table, (n, outputs)."""
        if self.preparation is None or not isinstance(self.network, Network) or not self.single:
            raise InputError(
                "this run does not know the table it was trained on; pass inputs to run.network."
            )
        network = self.network
        found = TablePredictions(
            table, self.preparation, np.asarray(network.product), np.asarray(network.intercept)
        )
        values = np.concatenate(list(found))
        for note in found.notes:
            warnings.warn(note, UserWarning, stacklevel=3)
        return self.preparation, values

    @property
    def single(self) -> bool:
        """Whether it is one run rather than a batch."""
        return np.ndim(self.steps) == 0

    @property
    def plain(self) -> bool:
        """Whether it was full-batch descent with one constant rate and nothing else, or a flow."""
        more = self.momentum or self.weight_decay or self.batch_size
        return self.variant == "plain" and not more

    def to_frame(self) -> pd.DataFrame:
        """Return the records as a tidy table of `run`, `step` (or `time`), `quantity` and `value`.

        A quantity with one value for each layer becomes `name_1`, `name_2`, …;
        `run.records.table()` has a column for each quantity instead.
        """
        if not self.records:
            raise InputError("this run has no records; train it with record_every=1.")
        when = "time" if "time" in self.records else "step"
        return self.records.table(single=self.single).melt(["run", when], var_name="quantity")

    def __len__(self) -> int:
        """Return the number of runs, 1 for a single run."""
        return int(np.size(self.steps))

    def __getitem__(self, index: int) -> Run:
        """Return one run of a batch."""
        if self.single:
            raise TypeError("this is a single run; run[k] is for batches")
        batch = len(self)
        if not -batch <= index < batch:
            raise IndexError(f"run {index} of a batch of {batch}")

        def one(values, axis=0):
            """Return the entry of this run where there is one for each run."""
            array = np.asarray(values)
            if array.ndim <= axis or array.shape[axis] != batch:
                return values
            entry = array.take(index, axis=axis)
            return entry.item() if entry.ndim == 0 else entry

        values = {f.name: getattr(self, f.name) for f in fields(Run)}
        for name in ("network", "initial"):
            values[name] = jax.tree.map(lambda leaf: leaf[index], values[name])
        for name in ("status", "steps", "learning_rate"):
            values[name] = one(values[name])
        values["evidence"] = {name: one(entry) for name, entry in self.evidence.items()}
        records = {n: v if n in ("step", "time") else one(v, 1) for n, v in self.records.items()}
        if "time" in records and "time" in values["evidence"]:
            # A flow that stopped before the others repeats its end, so its time is the last one.
            records["time"] = np.minimum(records["time"], values["evidence"]["time"])
        values["records"] = Records(records)
        path = self.trajectory
        if path is not None:
            arrays = tuple(array[:, index] for array in path.arrays)
            values["trajectory"] = Trajectory(arrays, path.layout, batched=False)
        return Run(**values)

    @property
    def message(self) -> str:
        """What happened, in a sentence, with the gap that is left."""
        parts = [self._outcome]
        if "gap" in self.evidence:
            reach = "R_min"
            if "bottleneck" in self.evidence:
                width = min(self.network.widths[1:-1])  # pyright: ignore
                excess = np.max(self.evidence["bottleneck"])
                reach = (
                    f"the smallest risk of hidden layers of width {width}, which is {excess:.3g} "
                    "above R_min"
                )
            parts.append(f"the risk is {_range(self.evidence['gap'], '.3g')} above {reach}")
        else:
            parts.append(f"the risk is {_range(self.evidence['risk'], '.3g')}")
        advice = sorted({str(text) for text in np.atleast_1d(self.evidence.get("message", ""))})
        return "; ".join([*parts, *filter(None, advice)]) + "."

    @property
    def _outcome(self) -> str:
        return outcome_of(self.status)

    def _repr_html_(self) -> str:
        rates = np.atleast_1d(np.nan if self.learning_rate is None else self.learning_rate)
        rows = {
            "status": self._outcome,
            "steps": _range(self.steps, "d"),
            "learning rate": _range(rates, ".4g"),
            **{
                name: _range(self.evidence[name], ".4g")
                for name in ("risk", "gap")
                if name in self.evidence
            },
            "records": ", ".join(f"{n} {v.shape}" for n, v in self.records.items()) or "none",
        }
        return html_table({name: value for name, value in rows.items() if value}, repr(self))

    def __repr__(self) -> str:
        net = self.network
        shape = f"; depth {net.depth}, widths {net.widths}" if isinstance(net, Network) else ""
        return f"Run({self._outcome}{shape})"


def outcome_of(status: Any) -> str:
    """Return how many runs ended in each way."""
    kinds, counts = np.unique(np.atleast_1d(status), return_counts=True)
    return ", ".join(f"{count} {kind}" for kind, count in zip(kinds, counts, strict=True))


# --- while it runs -------------------------------------------------------------------------------


class Recorder:
    """Recorder of the quantities and the weights of a batch of runs, for any dynamics."""

    def __init__(
        self,
        ensemble: Ensemble,
        measure: Measure | None,
        *,
        keep_weights: bool = True,
        watch: Watch | None = None,
        unit: str = "step",
    ):
        self.ensemble, self.measure, self.unit = ensemble, measure, unit
        self.keep_weights, self.watch = keep_weights, watch
        self.when: list[float] = []
        self.parts: list[Mapping[str, np.ndarray]] = []
        self.kept: list[tuple[np.ndarray, ...]] = []
        self.values: np.ndarray | None = None
        """R − floor of every run at the last record, if the dynamics computes it."""

    @property
    def records_per_call(self) -> int:
        """Number of records measured at a time."""
        if self.watch is not None:
            return 1
        return max(1, min(RECORDS_PER_CALL, MAX_RECORDED_NUMBERS // self.ensemble.numbers))

    def add(
        self, when: np.ndarray, weights: tuple[np.ndarray, ...], values: np.ndarray | None
    ) -> None:
        """Add several records."""
        self.values = None if values is None else values[-1].copy()
        if self.measure is None:
            return
        self.when.extend(when.tolist())
        self.parts.append(self.measure(weights, values))
        if self.keep_weights:
            self.kept.append(weights)
        if self.watch is not None:
            self.watch(self.when[-1], {name: part[-1] for name, part in self.parts[-1].items()})

    def records(self) -> Records:
        """Return all records as columns, without the batch axis for a single run."""
        if self.measure is None:
            return Records()
        member = 0 if self.ensemble.single else slice(None)
        columns = {
            name: np.concatenate([part[name][:, member] for part in self.parts])
            for name in self.parts[0]
        }
        return Records({self.unit: np.array(self.when)} | columns)

    def weights(self) -> tuple[np.ndarray, ...]:
        """Return the trained arrays at each record, (records, batch, …)."""
        one = len(self.kept) == 1
        return self.kept[0] if one else tuple(map(np.concatenate, zip(*self.kept, strict=True)))

    def trajectory(self) -> Trajectory | None:
        """Return the networks at each record."""
        if self.measure is None or not self.keep_weights:
            return None
        ensemble, count = self.ensemble, len(self.when)
        member = 0 if ensemble.single else slice(None)
        trained = [layer[:, member] for layer in self.weights()]
        fixed = [
            np.broadcast_to(np.asarray(leaf)[member], (count, *np.shape(leaf[member])))
            for leaf in ensemble.fixed
        ]
        arrays = tuple(jax.device_put(array) for array in (*trained, *fixed))
        return Trajectory(arrays, ensemble.layout, not ensemble.single)


def steps_to_record(every: int, steps: int) -> list[int]:
    """Return the steps 0, k, 2k, … and the last one."""
    return [*range(0, steps, whole_number("record_every", every)), steps]


def drive(stepper: Stepper, state: State, stops: Iterable[Any], recorder: Recorder) -> State:
    """Advance the runs through all stops, until the last one or until all have stopped."""
    remaining = iter(stops)
    ahead = list(islice(remaining, recorder.records_per_call))
    while ahead:
        state, visited = stepper.advance(state, ahead)
        done = not state.running.any()
        if visited.count:
            when, last = np.array(ahead[: visited.count]), np.max(stepper.clock(state))
            count = min(int(np.searchsorted(when, last)) + 1, len(when)) if done else len(when)
            values = None if visited.values is None else visited.values[:count]
            weights = tuple(layer[:count] for layer in visited.weights)
            recorder.add(np.minimum(when[:count], last), weights, values)
        if done:
            break
        ahead = ahead[visited.count :] + list(islice(remaining, visited.count))
    return state


def finish(
    objective: Objective,
    recorder: Recorder,
    state: State,
    close: np.ndarray | None = None,
    evidence: Mapping[str, Any] | None = None,
    **rule: Any,
) -> Run:
    """Return the finished run, with plain values for a single network.

    A run that stopped is converged if its gap is at most `close`.
    """
    ensemble = recorder.ensemble
    after = objective.evidence(ensemble.tree(state.weights), recorder.values)
    status = np.array([STATUS_NAMES[Status(code)] for code in state.status])
    if close is not None:
        status = np.where((status == STOPPED) & (after["gap"] <= close), CONVERGED, status)
    if rule.get("weight_decay"):
        squares = [np.sum(np.square(np.asarray(w)).reshape(len(w), -1), 1) for w in state.weights]
        after["objective"] = after["risk"] + rule["weight_decay"] * sum(squares)
    if objective.bottleneck is not None:
        after["bottleneck"] = np.full_like(after["risk"], objective.bottleneck.excess)
    after |= evidence or {}
    return Run(
        network=ensemble.result(state.weights),
        initial=ensemble.initial,
        status=ensemble.members(status),
        steps=ensemble.members(state.steps),
        records=recorder.records(),
        trajectory=recorder.trajectory(),
        evidence={name: ensemble.members(values) for name, values in after.items()},
        **rule,
    )
