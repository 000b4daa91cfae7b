"""What is trained in a pytree, and such trees along a run.

A network, or any nest of arrays with a loss of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree, Shaped

from deeplin.errors import InputError
from deeplin.networks.network import Network

TRAINED, FIXED, STATIC = range(3)

TORCH = (
    "of PyTorch, through which JAX cannot differentiate; pass a Problem with "
    "deeplin.from_torch(module), arrays with a loss written in jax.numpy, or for the sharpness the "
    "module itself with a deeplin.TorchLoss (docs/how-to/pytorch.md)."
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


def _of_networks(name: str, meaning: str) -> Any:
    """The property of a trajectory that its stacked networks have under this name."""

    def get(trajectory: Trajectory) -> Any:
        tree = trajectory.stacked
        if not isinstance(tree, Network):
            raise AttributeError(f"{name}: this is no trajectory of networks; use trajectory[k]")
        return getattr(tree, name)

    return property(get, doc=meaning)


class Trajectory(eqx.Module):
    """What a run looked like at each record: `trajectory[k]` is a network, or a batch of them.

    A pytree whose arrays have a leading record axis, before the batch axis if there is one. For
    networks `weights`, `readout` and `activation` give those arrays by name; a slice of a
    trajectory is a trajectory.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 2))
    problem = dl.Problem.from_data(X, X[:, 0])
    net = dl.initialize.gaussian(jax.random.key(0), widths=(2, 2, 1), scale=0.5)
    run = dl.gradient_descent(problem, net, 0.05, 10, record_every=5, record=["risk"])
    run.trajectory[-1].product, len(run.trajectory), run.trajectory.weights[0].shape
    ```
    """

    arrays: tuple[Shaped[Array, " ..."], ...]
    """Trained, then fixed arrays of the trees."""
    layout: Layout = eqx.field(static=True)
    batched: bool = eqx.field(static=True)
    """Whether each record is a batch."""

    @classmethod
    def of(cls, trees: Sequence[PyTree], batched: bool) -> Trajectory:
        """The trajectory through trees of one layout."""
        layout = Layout.of(trees[0])
        columns = zip(*(sum(layout.split(tree), ()) for tree in trees), strict=True)
        stacked = (jax.device_put(np.stack([np.asarray(a) for a in column])) for column in columns)
        return cls(tuple(stacked), layout, batched)

    @property
    def stacked(self) -> PyTree:
        """All records in one tree whose arrays have a leading record axis (unchecked)."""
        trained = self.layout.kinds.count(TRAINED)
        return self.layout.tree(self.arrays[:trained], self.arrays[trained:])

    def __len__(self) -> int:
        """Number of records."""
        return len(self.arrays[0])

    def __getitem__(self, index: Any) -> Any:
        """One record as a tree, or several as a trajectory."""
        part = Trajectory(tuple(a[index] for a in self.arrays), self.layout, self.batched)
        if not isinstance(index, (int, np.integer)):
            return part
        tree = part.stacked
        if isinstance(tree, Network):
            return Network(tree.weights, tree.readout, tree.activation, tree.biased)
        return tree

    def __iter__(self) -> Iterator[Any]:
        """The records one by one."""
        return (self[k] for k in range(len(self)))

    weights = _of_networks("weights", "W_1 … W_L at every record.")
    readout = _of_networks("readout", "The read-out at every record (it is never trained).")
    activation = _of_networks("activation", "Name of the activation.")
    biased = _of_networks("biased", "Which layers have biases, with a constant unit; else None.")
    widths = _of_networks("widths", "d_0, …, d_L.")
    depth = _of_networks("depth", "Number of layers L.")
    outputs = _of_networks("outputs", "Number of outputs.")
