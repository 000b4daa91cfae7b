"""Records along a dynamics: which steps, which quantities, the weights there, and the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from deeplin.dynamics.engine import State, Status
from deeplin.dynamics.flow_limit import flow_sharpness
from deeplin.dynamics.objective import Ensemble, Gradient, Objective
from deeplin.dynamics.run import CONVERGED, STATUS_NAMES, STOPPED, Records, Run
from deeplin.errors import InputError, shown, whole_number
from deeplin.hessian import SharpnessTracker, spectrum_along
from deeplin.networks import Layout, Network, Trajectory, products
from deeplin.networks.singular_values import extreme_singular

QUANTITIES = (
    "risk",
    "gap",
    "distance",
    "sharpness",
    "layer_norms",
    "singular_values",
    "alignment",
    "conservation",
)
"""Recorded unless others are asked for."""
ON_REQUEST = ("eigenvalues", "product_singular_values", "flow_sharpness")
TOP = 5
"""Eigenvalues of the Hessian in a record."""


def _split(record: Any) -> tuple[Any, dict[str, Callable[[PyTree], Any]]]:
    """Names of quantities, and the caller's own: `{"name": function}`, alone or among the names."""
    if record is None or isinstance(record, str):
        return record, {}
    parts = (record,) if isinstance(record, Mapping) else tuple(record)
    own = {name: f for part in parts if isinstance(part, Mapping) for name, f in part.items()}
    for name, function in own.items():
        if not callable(function):
            raise InputError(
                f"record holds {name!r}: {shown(function)}; pass a function of the network."
            )
    return tuple(part for part in parts if not isinstance(part, Mapping)), own


def _checked(names: Any, objective: Objective, network: PyTree) -> tuple[str, ...]:
    """The names to record: all that have a meaning here by default, else the given ones.

    `gap` and `distance` refer to the optimum of the problem, the minimizer of a linear network
    only; `alignment` and `conservation` compare neighboring layers of a network.
    """
    usual, more = ("risk", "sharpness"), ON_REQUEST[:1]
    if objective.layout.network:
        missing = () if objective.has_gap else ("gap",)
        missing += () if objective.optimum is not None else ("distance",)
        missing += () if objective.is_least_squares else ("flow_sharpness",)
        missing += () if network.depth > 1 else ("alignment", "conservation")
        usual, more = (
            tuple(name for name in kind if name not in missing) for kind in (QUANTITIES, ON_REQUEST)
        )
    if names is None:
        return usual
    chosen = (names,) if isinstance(names, str) else tuple(names)
    for name in chosen:
        if not isinstance(name, str) or name not in usual + more:
            raise InputError(
                f"record holds {shown(name)}, which cannot be measured here; pass names out of "
                f"{', '.join(usual + more)}."
            )
    return chosen


def measure(
    objective: Objective, networks: PyTree, initial: PyTree, names: Iterable[str]
) -> dict[str, np.ndarray]:
    """The named quantities of networks with any leading axes (batch; records, batch).

    `sharpness` is not among them: it has its own method and warm start. All but the risk of a
    nonlinear network is NumPy, which has nothing to compile for a new shape.
    """
    near = not objective.layout.network or isinstance(networks.weights[0], np.ndarray)
    host = networks if near else jax.tree.map(np.asarray, networks)
    with np.errstate(over="ignore", invalid="ignore"):  # a diverging run may get there
        known = (name for name in names if name in _MEASURES)
        return {name: _MEASURES[name](objective, host, initial) for name in known}


def _risk(objective, networks, _initial) -> np.ndarray:
    if objective.has_gap:
        return _gap(objective, networks, _initial) + objective.floor
    layout = objective.layout
    tree = networks.with_batch() if isinstance(networks, Network) else networks
    return np.asarray(_values(objective.gradient, objective.data, *layout.split(tree)))


@partial(jax.jit, static_argnums=0)
def _values(gradient: Gradient, data, weights, fixed) -> Array:
    return jax.vmap(partial(gradient.value, data))(weights, fixed)


class Quantities:
    """The named quantities of a batch of runs at each state, the sharpness followed from the last.

    Sharpness is the largest eigenvalue of ∇²R, without the 2λ that weight decay adds to it.
    """

    def __init__(self, problem: Any, objective: Objective, ensemble: Ensemble, names: Any):
        self.problem, self.objective, self.ensemble = problem, objective, ensemble
        self.initial = ensemble.tree(ensemble.weights)
        names, self.own = _split(names)
        self.names = _checked(names, objective, self.initial)

    @cached_property
    def tracker(self) -> SharpnessTracker:
        """Follows the sharpness from record to record."""
        return SharpnessTracker(self.problem)

    def __call__(
        self, weights: tuple[np.ndarray, ...], values: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        """Return each quantity for each record and run.

        The trained arrays have axes for records and runs first; `values` are R − floor there, if
        the dynamics knows them.
        """
        tree = self._records(weights)
        known = self._known(values)
        names = [name for name in self.names if name not in known]
        if self.objective.has_gap:  # NumPy, for any leading axes
            found = measure(self.objective, tree, self.initial, names)
        else:
            trees = (self.ensemble.tree(weights) for weights in zip(*weights, strict=True))
            rows = [measure(self.objective, own, self.initial, names) for own in trees]
            found = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        found = known | found
        if "sharpness" in self.names:
            tracked = self.tracker.along(tree)
            found |= {"sharpness": tracked.value, "sharpness_error": tracked.error}
        if "eigenvalues" in self.names:
            count = min(TOP, sum(leaf[0].size for leaf in self.ensemble.weights))
            found["eigenvalues"] = spectrum_along(self.problem, tree, count=count).values
        if "flow_sharpness" in self.names:
            found |= self._flow_sharpness(tree)
        return found | {name: self._own(function, tree) for name, function in self.own.items()}

    def _known(self, values: np.ndarray | None) -> dict[str, np.ndarray]:
        """Risk and gap, if they are asked for and the dynamics had them at hand."""
        if values is None:
            return {}
        known = {"risk": values + self.objective.floor}
        known |= {"gap": values} if self.objective.has_gap else {}
        return {name: known[name] for name in self.names if name in known}

    def _flow_sharpness(self, tree: Network) -> dict[str, np.ndarray]:
        """Sharpness at the end of the gradient flow from each state, with its error.

        A run that has stopped repeats its state, which then is not followed again.
        """
        axes = tree.weights[0].shape[:2]
        layers = [np.asarray(layer).reshape(*axes, -1) for layer in tree.weights]
        moved = np.ones(axes, bool)
        moved[1:] = np.any([np.any(w[1:] != w[:-1], axis=-1) for w in layers], axis=0)
        value, error = flow_sharpness(
            self.problem, jax.tree.map(lambda leaf: np.asarray(leaf)[moved], tree)
        )
        place = np.zeros(axes, int)
        place[moved] = np.arange(len(value))
        place = np.maximum.accumulate(place, axis=0)  # of the last state that was new
        return {"flow_sharpness": value[place], "flow_sharpness_error": error[place]}

    def _records(self, weights: tuple[np.ndarray, ...]) -> PyTree:
        """All records in one tree whose arrays have axes for records and runs."""
        count, moving = len(weights[0]), list(weights)
        still = [np.broadcast_to(leaf, (count, *leaf.shape)) for leaf in self.ensemble.fixed]
        if not self.ensemble.layout.network or self.own:
            moving, still = (list(map(jnp.asarray, part)) for part in (moving, still))
        return self.ensemble.layout.tree(tuple(moving), tuple(still))

    def _own(self, function: Callable[[PyTree], Any], tree: PyTree) -> np.ndarray:
        """A quantity of the caller's, for all records and runs in one call."""
        layout = self.ensemble.layout
        return np.asarray(_mapped_twice(function, layout, layout.split(tree)))


@partial(jax.jit, static_argnums=(0, 1))
def _mapped_twice(function, layout: Layout, arrays) -> Array:
    return jax.vmap(jax.vmap(lambda own: function(layout.tree(*own))))(arrays)


def _gap(objective, networks, _initial) -> np.ndarray:
    """R − R_min (FM-L8)."""
    theta = products.product(networks.weights, networks.readout)
    return jax.tree.map(np.asarray, objective.data.risk).value_and_gradient(theta)[0]


def _distance(objective, networks, _initial) -> np.ndarray:
    """‖Θ − Θ*‖², squared."""
    return products.squared_distance(_difference(objective, networks))


def _difference(objective, networks) -> np.ndarray:
    """Θ − Θ*, (…, d, q)."""
    theta = products.product(networks.weights, networks.readout)
    return theta - objective.optimum


def _product_singular_values(_objective, networks, _initial) -> np.ndarray:
    """The singular values of Θ, largest first; not a number where that is none."""
    theta = products.product(networks.weights, networks.readout)
    finite = np.isfinite(theta).all(axis=(-2, -1))[..., None]
    values = np.linalg.svd(np.where(finite[..., None], theta, 0), compute_uv=False)
    return np.where(finite, values, np.nan)


def _layer_norms(_objective, networks, _initial) -> np.ndarray:
    """‖W_k‖_F, one for each layer."""
    return np.stack([np.linalg.norm(w, axis=(-2, -1)) for w in networks.weights], axis=-1)


def _singular_values(_objective, networks, _initial) -> np.ndarray:
    """σ_k, the largest singular value of each layer."""
    return np.stack([_top(weight)[0] for weight in networks.weights], axis=-1)


def _alignment(_objective, networks, _initial) -> np.ndarray:
    """⟨v_{k+1}, u_k⟩² for neighboring layers (FM-L2 c)."""
    pairs = pairwise(_top(weight) for weight in networks.weights)
    cosines = [np.sum(upper * lower, axis=-1) for (_, lower, _), (_, _, upper) in pairs]
    return np.stack(cosines, axis=-1) ** 2


def _top(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """σ, u and v of each matrix; not a number where that is none."""
    finite = np.asarray(np.isfinite(weight).all(axis=(-2, -1)))
    found = extreme_singular(np.where(finite[..., None, None], weight, 0))
    values = np.where(finite, found.largest, np.nan).astype(weight.dtype)
    return values, found.left, np.where(finite[..., None], found.right, np.nan)


def _conservation(_objective, networks, initial) -> np.ndarray:
    """max_k ‖D_k − D_k(0)‖_F with D_k = W_{k+1}ᵀW_{k+1} − W_kW_kᵀ, constant on the flow (FM-L1)."""
    then = products.imbalance([np.asarray(weight) for weight in initial.weights])
    pairs = zip(products.imbalance(networks.weights), then, strict=True)
    return np.max([np.linalg.norm(a - b, axis=(-2, -1)) for a, b in pairs], axis=0)


_MEASURES: dict[str, Callable[..., Any]] = {
    "risk": _risk,
    "gap": _gap,
    "distance": _distance,
    "layer_norms": _layer_norms,
    "product_singular_values": _product_singular_values,
    "singular_values": _singular_values,
    "alignment": _alignment,
    "conservation": _conservation,
}

Measure = Callable[[tuple[np.ndarray, ...], np.ndarray | None], Mapping[str, np.ndarray]]
"""The quantities of some records from weights and values (R − floor), records and runs first."""
Watch = Callable[[float, Mapping[str, np.ndarray]], None]
"""Called with every record: its step or time, and its quantities."""
CLOSE = 1e-8
"""Without a goal, a run that has shrunk its initial gap by this factor is called converged."""
TOGETHER, HELD = 256, 2**26
"""Records measured together, unless someone watches, and the most numbers they may hold."""


class Recorder:
    """Collects the quantities of a batch of runs, whatever their dynamics, and their weights."""

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
        """R − floor of every run at the last record, if the dynamics knows it."""

    @property
    def together(self) -> int:
        """Records measured at a time."""
        if self.watch is not None:
            return 1
        return max(1, min(TOGETHER, HELD // self.ensemble.numbers))

    def add(
        self, when: np.ndarray, weights: tuple[np.ndarray, ...], values: np.ndarray | None
    ) -> None:
        """Take several records."""
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
        """All records as columns, without the batch axis for a single run."""
        if self.measure is None:
            return Records()
        member = 0 if self.ensemble.single else slice(None)
        columns = {
            name: np.concatenate([part[name][:, member] for part in self.parts])
            for name in self.parts[0]
        }
        return Records({self.unit: np.array(self.when)} | columns)

    def weights(self) -> tuple[np.ndarray, ...]:
        """The trained arrays at each record, (records, batch, …)."""
        one = len(self.kept) == 1
        return self.kept[0] if one else tuple(map(np.concatenate, zip(*self.kept, strict=True)))

    def trajectory(self) -> Trajectory | None:
        """The networks at each record."""
        if self.measure is None or not self.keep_weights:
            return None
        ensemble, count = self.ensemble, len(self.when)
        member = 0 if ensemble.single else slice(None)
        moving = [layer[:, member] for layer in self.weights()]
        still = [
            np.broadcast_to(np.asarray(leaf)[member], (count, *np.shape(leaf[member])))
            for leaf in ensemble.fixed
        ]
        arrays = tuple(jax.device_put(array) for array in (*moving, *still))
        return Trajectory(arrays, ensemble.layout, not ensemble.single)


def steps_to_record(every: int | None, steps: int) -> list[int]:
    """Return the steps 0, k, 2k, … and the last one; only the last one without `every`."""
    if every is None:
        return [steps]
    return [*range(0, steps, whole_number("record_every", every)), steps]


# --- at the end -------------------------------------------------------------------------------


def end_evidence(
    objective: Objective,
    ensemble: Ensemble,
    weights: tuple[Any, ...],
    values: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Risk, and gap where it has a meaning, of every run; without a gap, R − floor may be known."""
    tree = ensemble.tree(weights)
    if not objective.has_gap:
        if values is not None:
            return {"risk": values + objective.floor}
        return measure(objective, tree, tree, ("risk",))
    gap = measure(objective, tree, tree, ("gap",))["gap"]
    return {"risk": gap + objective.floor, "gap": gap}


def finish(
    objective: Objective,
    recorder: Recorder,
    state: State,
    close: np.ndarray | None = None,
    evidence: Mapping[str, Any] | None = None,
    **rule: Any,
) -> Run:
    """Put together the run; plain values for a single network.

    A run that stopped is converged if its gap is at most `close`.
    """
    ensemble = recorder.ensemble
    after = end_evidence(objective, ensemble, state.weights, recorder.values)
    status = np.array([STATUS_NAMES[Status(code)] for code in state.status])
    if close is not None:
        status = np.where((status == STOPPED) & (after["gap"] <= close), CONVERGED, status)
    if rule.get("weight_decay"):
        squares = [np.sum(np.square(np.asarray(w)).reshape(len(w), -1), 1) for w in state.weights]
        after["objective"] = after["risk"] + rule["weight_decay"] * sum(squares)
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
