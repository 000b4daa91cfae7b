"""Networks (or other pytrees) along a run, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from deeplin.networks.network import Network
from deeplin.networks.trees import TRAINED, Layout


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
        is_network = isinstance(tree, Network)
        return Network(tree.weights, tree.readout, tree.activation) if is_network else tree

    def __iter__(self) -> Iterator[Any]:
        """The records one by one."""
        return (self[k] for k in range(len(self)))

    # --- of networks -------------------------------------------------------------------------

    @property
    def weights(self) -> tuple[Float[Array | np.ndarray, "records *batch _ _"], ...]:
        """W_1 … W_L at every record."""
        return self._networks("weights")

    @property
    def readout(self) -> Float[Array | np.ndarray, "records *batch m"] | None:
        """The read-out at every record (it is never trained)."""
        return self._networks("readout")

    @property
    def activation(self) -> str:
        """Name of the activation."""
        return self._networks("activation")

    @property
    def widths(self) -> tuple[int, ...]:
        """d_0, …, d_L."""
        return self._networks("widths")

    @property
    def depth(self) -> int:
        """Number of layers L."""
        return self._networks("depth")

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self._networks("outputs")

    def _networks(self, name: str) -> Any:
        tree = self.stacked
        if not isinstance(tree, Network):
            raise AttributeError(f"{name}: this is no trajectory of networks; use trajectory[k]")
        return getattr(tree, name)
