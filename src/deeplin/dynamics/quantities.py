"""Quantities recorded along a dynamics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from deeplin.dynamics.integration import flow_sharpness
from deeplin.dynamics.objective import Ensemble, Objective
from deeplin.errors import InputError, shown
from deeplin.hessian.spectrum import spectra
from deeplin.hessian.tracking import SharpnessTracker
from deeplin.networks import Network, products
from deeplin.networks.network import Layout, affine_columns

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
"""Quantities that are recorded by default."""
ON_REQUEST = ("eigenvalues", "gradient_norm", "product_singular_values", "flow_sharpness")
TOP = 5
"""Number of Hessian eigenvalues in a record."""


class Quantities:
    """Named quantities of a batch of runs at each state; the sharpness is tracked between states.

    Sharpness is the largest eigenvalue of ∇²R, without the 2λ that weight decay adds to it.
    """

    def __init__(self, problem: Any, objective: Objective, ensemble: Ensemble, record: Any):
        """`record` holds names and user-defined quantities as `{"name": function}`."""
        self.problem, self.objective, self.ensemble = problem, objective, ensemble
        parts = (record,) if isinstance(record, (str, Mapping)) else record
        parts = None if parts is None else tuple(parts)
        self.own = {
            name: function
            for part in parts or ()
            if isinstance(part, Mapping)
            for name, function in part.items()
        }
        for name, function in self.own.items():
            if not callable(function):
                raise InputError(
                    f"record holds {name!r}: {shown(function)}; pass a function of the network."
                )
        usual, more = self._measurable()
        names = usual if parts is None else [p for p in parts if not isinstance(p, Mapping)]
        for name in names:
            if not isinstance(name, str) or name not in usual + more:
                raise InputError(
                    f"record holds {shown(name)}, which cannot be measured here; pass names out of "
                    f"{', '.join(usual + more)}."
                )
        self.names = tuple(names)

    def _measurable(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names that are defined here: those recorded by default, and those on request.

        `gap` and `distance` refer to the optimum of the problem, the minimizer of a linear network
        only; `alignment` and `conservation` compare neighboring layers of a network.
        """
        objective = self.objective
        if not objective.layout.network:
            return ("risk", "sharpness"), ("eigenvalues", "gradient_norm")
        missing = () if objective.has_gap else ("gap",)
        missing += () if objective.optimum is not None else ("distance",)
        missing += () if objective.is_least_squares else ("flow_sharpness",)
        missing += () if max(objective.layout.layers) > 0 else ("alignment", "conservation")
        usual, more = (
            tuple(name for name in kind if name not in missing) for kind in (QUANTITIES, ON_REQUEST)
        )
        return usual, more

    @cached_property
    def tracker(self) -> SharpnessTracker:
        """Tracker of the sharpness from record to record."""
        return SharpnessTracker(self.problem)

    def __call__(
        self, weights: tuple[np.ndarray, ...], values: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        """Return each quantity for each record and run.

        The trained arrays have axes for records and runs first; `values` are R − floor there, if
        the dynamics has computed them.
        """
        tree = self._records(weights)
        if values is None and not {"risk", "gap"}.isdisjoint(self.names):
            values = self._values(weights, tree)
        found: dict[str, np.ndarray] = {}
        for name in self.names:
            if name in ("risk", "gap"):
                assert values is not None
                found[name] = values + self.objective.floor if name == "risk" else values
            elif name == "sharpness":
                tracked = self.tracker.along(tree)
                found |= {"sharpness": tracked.value, "sharpness_error": tracked.error}
            elif name == "eigenvalues":
                found[name] = self._eigenvalues(tree)
            elif name == "flow_sharpness":
                found |= self._flow_sharpness(tree)
            elif name == "gradient_norm":
                found[name] = self.objective.gradient_norms(tree)
            else:
                with np.errstate(over="ignore", invalid="ignore"):  # a diverging run may get there
                    found[name] = _OF_LAYERS[name](self, tree)
        layout = self.ensemble.layout
        for name, function in self.own.items():
            found[name] = np.asarray(_mapped_twice(function, layout, layout.split(tree)))
        return found

    def _records(self, weights: tuple[np.ndarray, ...]) -> PyTree:
        """Return all records in one tree whose arrays have axes for records and runs."""
        count, trained = len(weights[0]), weights
        fixed = tuple(np.broadcast_to(leaf, (count, *leaf.shape)) for leaf in self.ensemble.fixed)
        if not self.ensemble.layout.network:
            trained, fixed = (tuple(map(jnp.asarray, part)) for part in (trained, fixed))
        return self.ensemble.layout.tree(trained, fixed)

    def _values(self, weights: tuple[np.ndarray, ...], tree: PyTree) -> np.ndarray:
        """Return R − floor at each record."""
        if self.objective.has_gap:
            return self.objective.values(tree)
        trees = (self.ensemble.tree(own) for own in zip(*weights, strict=True))
        return np.stack([self.objective.values(own) for own in trees])

    def _eigenvalues(self, tree: PyTree) -> np.ndarray:
        """Return the largest eigenvalues at each record, of all records as one batch."""
        layout = self.ensemble.layout
        parts = layout.split(tree)
        axes = jax.tree.leaves(parts)[0].shape[:2]
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), parts)
        count = min(TOP, sum(leaf[0].size for leaf in self.ensemble.weights))
        values = spectra(self.problem, layout.tree(*flat), count=count).values
        return values.reshape(*axes, count)

    def _flow_sharpness(self, tree: Network) -> dict[str, np.ndarray]:
        """Return the sharpness at the end of the gradient flow from each state, with its error.

        The repeated states of a stopped run are evaluated once.
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


@partial(jax.jit, static_argnums=(0, 1))
def _mapped_twice(function: Callable[[PyTree], Any], layout: Layout, arrays: Any) -> Array:
    """Return a user-defined quantity for all records and runs, in one call."""
    return jax.vmap(jax.vmap(lambda own: function(layout.tree(*own))))(arrays)


# --- of layers and their product, with any leading axes -----------------------------------------


def _distance(quantities: Quantities, networks: Network) -> np.ndarray:
    """Return ‖Θ − Θ*‖², squared; Θ* is the best product that the hidden widths allow (X-34)."""
    assert quantities.objective.optimum is not None
    theta = affine_columns(networks)
    return np.asarray(products.squared_distance(theta - quantities.objective.optimum))


def _product_singular_values(_: Quantities, networks: Network) -> np.ndarray:
    """Return the singular values of Θ, largest first."""
    theta = products.product(networks.weights, networks.readout)
    return products.singular_values(np.asarray(theta))


def _layer_norms(_: Quantities, networks: Network) -> np.ndarray:
    """Return ‖W_k‖_F, one for each layer."""
    return np.stack([np.linalg.norm(w, axis=(-2, -1)) for w in networks.weights], axis=-1)


def _singular_values(_: Quantities, networks: Network) -> np.ndarray:
    """Return σ_k, the largest singular value of each layer."""
    values = products.values_of_layers([np.asarray(w) for w in networks.weights])[..., 0]
    return values.astype(networks.weights[0].dtype)


def _alignment(_: Quantities, networks: Network) -> np.ndarray:
    """Return ⟨v_{k+1}, u_k⟩² for neighboring layers (FM-L2 c)."""
    pairs = pairwise(products.extreme_singular(np.asarray(w)) for w in networks.weights)
    cosines = [np.sum(upper.right * lower.left, axis=-1) for lower, upper in pairs]
    return np.stack(cosines, axis=-1) ** 2


def _conservation(quantities: Quantities, networks: Network) -> np.ndarray:
    """Return max_k ‖D_k − D_k(0)‖_F for the imbalances D_k, which the flow conserves (FM-L1)."""
    ensemble = quantities.ensemble
    return products.drift(networks, ensemble.tree(ensemble.weights))


_OF_LAYERS: dict[str, Callable[[Quantities, Network], np.ndarray]] = {
    "distance": _distance,
    "layer_norms": _layer_norms,
    "product_singular_values": _product_singular_values,
    "singular_values": _singular_values,
    "alignment": _alignment,
    "conservation": _conservation,
}
