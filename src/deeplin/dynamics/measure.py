"""Quantities measured along a dynamics, for many networks at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from deeplin.checks import InputError
from deeplin.dynamics.objective import Ensemble, Objective
from deeplin.dynamics.state import State
from deeplin.networks import Layout, Network, products
from deeplin.sharpness import SharpnessTracker, Tracked

AGAINST_OPTIMUM = ("gap", "distance")
BETWEEN_LAYERS = ("alignment", "conservation")
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


def applicable(objective: Objective, network: PyTree) -> tuple[str, ...]:
    """The quantities that have a meaning here.

    `gap` and `distance` refer to the least-squares optimum, the minimiser of a linear network
    only; `alignment` and `conservation` compare neighbouring layers of a network.
    """
    if not objective.layout.network:
        return ("risk", "sharpness")
    missing = () if objective.has_gap else AGAINST_OPTIMUM
    missing += () if network.depth > 1 else BETWEEN_LAYERS
    return tuple(name for name in QUANTITIES if name not in missing)


def check_quantities(
    names: Iterable[str] | None, objective: Objective, network: PyTree
) -> tuple[str, ...]:
    """The names to record: all applicable ones by default, else the given ones once checked."""
    possible = applicable(objective, network)
    if names is None:
        return possible
    chosen = (names,) if isinstance(names, str) else tuple(names)
    for name in chosen:
        if name not in possible:
            raise InputError(
                f"record holds {name!r}, which cannot be measured here; pass names out of "
                f"{', '.join(possible)}."
            )
    return chosen


def measure(
    objective: Objective, networks: PyTree, initial: PyTree, names: Iterable[str]
) -> dict[str, np.ndarray]:
    """The named quantities of networks with any leading axes (batch; records, batch).

    `sharpness` is not among them: it has its own method and warm start. All but the risk of a
    nonlinear network is NumPy, which has nothing to compile for a new shape.
    """
    host = jax.tree.map(np.asarray, networks) if objective.layout.network else networks
    with np.errstate(over="ignore", invalid="ignore"):  # a diverging run may get there
        return {
            name: _MEASURES[name](objective, host, initial) for name in names if name != "sharpness"
        }


def _risk(objective, networks, _initial) -> np.ndarray:
    if objective.has_gap:
        return _gap(objective, networks, _initial) + objective.data[0].minimal_risk.item()
    layout = objective.layout
    tree = networks.with_batch() if isinstance(networks, Network) else networks
    return np.asarray(_risks(objective.risk, layout, objective.data, layout.split(tree)))


@partial(jax.jit, static_argnums=(0, 1))
def _risks(risk, layout: Layout, data, arrays) -> Array:
    return jax.vmap(lambda own: risk(*data, layout.tree(*own)))(arrays)


class Quantities:
    """The named quantities of a batch of runs at each state, the sharpness followed from the last.

    Sharpness is the largest eigenvalue of ∇²R, without the 2λ that weight decay adds to it.
    """

    def __init__(self, problem: Any, objective: Objective, ensemble: Ensemble, names: Any):
        self.problem, self.objective, self.ensemble = problem, objective, ensemble
        self.initial = ensemble.tree(ensemble.weights)
        self.names = check_quantities(names, objective, self.initial)
        self.tracker = SharpnessTracker(problem)

    def __call__(self, state: State) -> dict[str, np.ndarray]:
        """One value of each quantity for each run."""
        tree = self.ensemble.tree(state.weights)
        row = measure(self.objective, tree, self.initial, self.names)
        if "sharpness" in self.names:
            found = self._sharpness(tree)
            row |= {"sharpness": found.value, "sharpness_error": found.error}
        return row

    def _sharpness(self, tree: PyTree) -> Tracked:
        if self.ensemble.layout.network:
            return self.tracker(tree)
        arrays, still = eqx.partition(tree, eqx.is_array)
        one_record = eqx.combine(jax.tree.map(lambda leaf: leaf[None], arrays), still)
        return Tracked(*(column[0] for column in self.tracker.along(one_record)))


def _gap(objective, networks, _initial) -> np.ndarray:
    """R − R_min (FM-L8)."""
    covariance = np.asarray(objective.data[0].covariance)
    return products.gap(covariance, _difference(objective, networks))


def _distance(objective, networks, _initial) -> np.ndarray:
    """‖Θ − Θ*‖², squared."""
    return products.squared_distance(_difference(objective, networks))


def _difference(objective, networks) -> np.ndarray:
    """Θ − Θ*, (…, d, q)."""
    theta = products.product(networks.weights, networks.readout)
    return theta - np.asarray(objective.data[0].optimum)


def _layer_norms(_objective, networks, _initial) -> np.ndarray:
    """‖W_k‖_F, one for each layer."""
    return np.stack([np.linalg.norm(w, axis=(-2, -1)) for w in networks.weights], axis=-1)


def _singular_values(_objective, networks, _initial) -> np.ndarray:
    """σ_k, the largest singular value of each layer."""
    return np.stack([_singular(weight)[1][..., 0] for weight in networks.weights], axis=-1)


def _alignment(_objective, networks, _initial) -> np.ndarray:
    """⟨v_{k+1}, u_k⟩² for neighbouring layers (FM-L2 c)."""
    pairs = pairwise(_singular(weight) for weight in networks.weights)
    cosines = [
        np.sum(upper[..., 0, :] * lower[..., :, 0], axis=-1)
        for (lower, _, _), (_, _, upper) in pairs
    ]
    return np.stack(cosines, axis=-1) ** 2


def _singular(weight: np.ndarray) -> tuple[np.ndarray, "*_"]:
    """The singular value decomposition of each matrix; not a number where that is none."""
    finite = np.asarray(np.isfinite(weight).all(axis=(-2, -1)))[..., None, None]
    left, values, right = np.linalg.svd(np.where(finite, weight, 0), full_matrices=False)
    return left, np.where(finite[..., 0], values, np.nan), np.where(finite, right, np.nan)


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
    "singular_values": _singular_values,
    "alignment": _alignment,
    "conservation": _conservation,
}
