"""Quantities measured along a dynamics, for a whole batch of networks at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from deeplin.checks import InputError
from deeplin.dynamics.objective import Objective
from deeplin.networks import Network

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


def applicable(objective: Objective, network: Network) -> tuple[str, ...]:
    """The quantities that have a meaning here.

    `gap` and `distance` refer to the least-squares optimum, the minimiser of a linear network
    only; `alignment` and `conservation` compare neighbouring layers.
    """
    missing = () if objective.has_gap else AGAINST_OPTIMUM
    missing += () if network.depth > 1 else BETWEEN_LAYERS
    return tuple(name for name in QUANTITIES if name not in missing)


def check_quantities(
    names: Iterable[str] | None, objective: Objective, network: Network
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
    objective: Objective, networks: Network, initial: Network, names: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """The named quantities of a batch of networks, each with leading axis `batch`.

    `sharpness` is not among them: it has its own method and warm start.
    """
    plain = tuple(name for name in names if name != "sharpness")
    columns = _measure(objective.risk, plain, objective.data, networks, initial)
    return {name: np.asarray(columns[name]) for name in plain}


@partial(jax.jit, static_argnums=(0, 1))
def _measure(risk, names, data, networks: Network, initial: Network) -> dict[str, Array]:
    def of_one(network: Network, start: Network) -> dict[str, Array]:
        return {name: _MEASURES[name](risk, data, network, start) for name in names}

    return jax.vmap(of_one)(networks.with_batch(), initial.with_batch())


def _risk(risk, data, network, _start) -> Array:
    return risk(*data, network)


def _gap(_risk, data, network, _start) -> Array:
    """R − R_min = Tr((Θ−Θ*)ᵀΣ̂(Θ−Θ*)) (FM-L8)."""
    difference = _difference(data, network)
    return jnp.sum(difference * (data[0].covariance @ difference))


def _distance(_risk, data, network, _start) -> Array:
    """‖Θ − Θ*‖², squared."""
    return jnp.sum(_difference(data, network) ** 2)


def _difference(data, network) -> Array:
    return network.product.reshape(data[0].optimum.shape) - data[0].optimum


def _layer_norms(_risk, _data, network, _start) -> Array:
    """‖W_k‖_F, one for each layer."""
    return jnp.stack([jnp.linalg.norm(weight) for weight in network.weights])


def _singular_values(_risk, _data, network, _start) -> Array:
    """σ_k, the largest singular value of each layer."""
    values = [jnp.linalg.svd(w, full_matrices=False) for w in network.weights]
    return jnp.stack([singular[0] for _, singular, _ in values])


def _alignment(_risk, _data, network, _start) -> Array:
    """⟨v_{k+1}, u_k⟩² for neighbouring layers (FM-L2 c)."""
    factors = [jnp.linalg.svd(weight, full_matrices=False) for weight in network.weights]
    pairs = zip(factors[1:], factors[:-1], strict=True)
    return jnp.stack([jnp.dot(upper[2][0], lower[0][:, 0]) ** 2 for upper, lower in pairs])


def _conservation(_risk, _data, network, start) -> Array:
    """max_k ‖D_k − D_k(0)‖_F with D_k = W_{k+1}ᵀW_{k+1} − W_kW_kᵀ, constant on the flow (FM-L1)."""
    pairs = zip(imbalances(network), imbalances(start), strict=True)
    return jnp.max(jnp.stack([jnp.linalg.norm(now - then) for now, then in pairs]))


def imbalances(network: Network) -> list[Array]:
    """D_k = W_{k+1}ᵀW_{k+1} − W_kW_kᵀ for k = 1 … L−1 (FM-L1)."""
    layers = network.weights
    return [upper.T @ upper - lower @ lower.T for lower, upper in pairwise(layers)]


_MEASURES: dict[str, Callable[..., Any]] = {
    "risk": _risk,
    "gap": _gap,
    "distance": _distance,
    "layer_norms": _layer_norms,
    "singular_values": _singular_values,
    "alignment": _alignment,
    "conservation": _conservation,
}
