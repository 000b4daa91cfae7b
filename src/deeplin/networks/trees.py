"""What is trained in a pytree: a network, or any nest of arrays with a loss of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from deeplin.checks import InputError
from deeplin.networks.network import Network

TRAINED, FIXED, STATIC = range(3)

TORCH = (
    "of PyTorch, through which JAX cannot differentiate; pass a Problem with "
    "deeplin.from_torch(module), or arrays with a loss written in jax.numpy "
    "(docs/how-to/pytorch.md)."
)


@dataclass(frozen=True)
class Layout:
    """How a pytree falls into trained arrays, fixed arrays and the rest, and is put together again.

    Of a `Network` the weights are trained and the read-out is fixed; of any other pytree every
    floating array is trained. Hashable, so that compiled code is kept for equal layouts.
    """

    structure: Any
    kinds: tuple[int, ...]
    """TRAINED, FIXED (other arrays) or STATIC, one for each leaf."""
    rest: tuple[Any, ...]
    """The static leaves: numbers, functions, names."""
    network: bool
    """Whether it is a `Network`."""

    @classmethod
    def of(cls, tree: PyTree) -> Layout:
        """The layout of a pytree."""
        leaves, structure = jax.tree.flatten(tree)
        count = len(tree.weights) if isinstance(tree, Network) else len(leaves)
        kinds = tuple(_kind(leaf, k < count) for k, leaf in enumerate(leaves))
        rest = tuple(leaf for leaf, kind in zip(leaves, kinds, strict=True) if kind == STATIC)
        if TRAINED not in kinds:
            raise no_parameters(tree)
        return cls(structure, kinds, rest, isinstance(tree, Network))

    def split(self, tree: PyTree) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Trained and fixed arrays of a tree of this layout, whatever axes they carry."""
        pairs = list(zip(jax.tree.leaves(tree), self.kinds, strict=True))
        trained = tuple(leaf for leaf, kind in pairs if kind == TRAINED)
        return trained, tuple(leaf for leaf, kind in pairs if kind == FIXED)

    def tree(self, trained: Sequence[Any], fixed: Sequence[Any]) -> PyTree:
        """The tree with these arrays; nothing is checked or moved."""
        sources = (iter(trained), iter(fixed), iter(self.rest))
        return jax.tree.unflatten(self.structure, [next(sources[kind]) for kind in self.kinds])

    def parameters(self, trained: Sequence[Any]) -> PyTree:
        """The trained arrays alone: the weights of a network, or the tree with None elsewhere."""
        if self.network:
            return tuple(trained)
        source = iter(trained)
        leaves = [next(source) if kind == TRAINED else None for kind in self.kinds]
        return jax.tree.unflatten(self.structure, leaves)


def no_parameters(tree: PyTree) -> InputError:
    """What to say of a pytree without a floating array in it."""
    kinds = {kind for leaf in jax.tree.leaves(tree) for kind in type(leaf).__mro__}
    if any(kind.__module__.partition(".")[0] == "torch" for kind in kinds):
        return InputError(f"the parameters are {TORCH}")
    return InputError("there are no floating parameters; pass a pytree with arrays in it.")


def _kind(leaf: Any, trainable: bool) -> int:
    if not isinstance(leaf, np.ndarray) and not eqx.is_array(leaf):
        return STATIC
    return TRAINED if trainable and _floating(leaf.dtype) else FIXED


@cache
def _floating(dtype: Any) -> bool:
    return np.issubdtype(dtype, np.inexact)
