"""The networks whose minimizers have closed forms: depth, read-out, aligned layers, padding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.errors import InputError, finite_array, require_size, whole_number
from deeplin.networks import Network
from deeplin.problems import Problem, require_problem


class Architecture(NamedTuple):
    """L layers, and the fixed read-out p or None where the last layer is the output."""

    depth: int
    readout: Float[np.ndarray, " m"] | None

    @property
    def norm(self) -> float:
        """‖p‖, 1 without a read-out."""
        return readout_norm(self.readout)


def readout_norm(readout: Float[np.ndarray, " m"] | None) -> float:
    """Return ‖p‖, or 1 without a read-out."""
    return 1.0 if readout is None else float(np.linalg.norm(readout))


def architecture(
    problem: Problem, depth: int, readout: ArrayLike | None, quantity: str, *, signal: bool = True
) -> Architecture:
    """Check that `quantity` is defined for this problem, depth and read-out.

    Without `signal`, problems may have a zero minimizer, or none.
    """
    require_problem(problem)
    L = whole_number("depth", depth)
    if signal:
        problem.require_signal(quantity)
    if readout is None:
        return Architecture(L, None)
    problem.require_single_target(f"{quantity} of a network with a read-out")
    p = finite_array("readout", readout, (1,))
    require_size("readout", p)
    if not np.any(p):
        raise InputError("readout is zero; pass a vector p ≠ 0.")
    return Architecture(L, p)


def aligned_network(
    rows: Float[np.ndarray, "k d"],
    scale: float | Float[np.ndarray, " k"],
    columns: Float[np.ndarray, "q k"],
    depth: int,
    readout: Float[np.ndarray, " m"] | None = None,
) -> Network:
    """Return W_1 = rows, W_2 … W_{L−1} = diag(scale) and W_L = columns.

    With a read-out p its direction takes the place of `columns`' one output; for L = 1, W_1 is
    their product.
    """
    if readout is not None:
        columns = np.outer(readout / np.linalg.norm(readout), columns[0])
    if depth == 1:
        return Network([columns @ rows], readout=readout)
    middle = np.diag(np.broadcast_to(scale, len(rows)))
    return Network([rows, *[middle] * (depth - 2), columns], readout=readout)


def padded(network: Network, width: int | None) -> Network:
    """Return the same map with hidden layers of this width, by default that of the inputs."""
    layers = [np.asarray(weight) for weight in network.weights]
    rank = max([len(layer) for layer in layers[:-1]], default=0)
    hidden = require_width(width or max(layers[0].shape[1], rank), rank, len(layers))
    for k, layer in enumerate(layers):
        rows = hidden if k < len(layers) - 1 else len(layer)
        columns = hidden if k > 0 else layer.shape[1]
        layers[k] = np.pad(layer, ((0, rows - len(layer)), (0, columns - layer.shape[1])))
    if network.biases is None:
        return Network(layers, readout=network.readout)
    pairs = zip(map(np.asarray, network.biases), layers, strict=True)
    biases = [np.pad(bias, (0, len(layer) - len(bias))) for bias, layer in pairs]
    return Network(layers, biases=biases)


def require_width(hidden: int, rank: int, depth: int) -> int:
    """Return a hidden width at which a map of this rank is possible."""
    width = whole_number("width", hidden)
    if depth > 1 and width < rank:
        raise InputError(
            f"the hidden layers have width {width}, but the solution has rank {rank}: no such "
            f"network is a minimizer. Pass a width of at least {rank}; "
            f"minimal_sharpness(problem, depth, width={width}) has the flattest network of that "
            "width."
        )
    return width


def is_white(problem: Problem) -> bool:
    """Return whether Σ̂ = cI on its range, up to a relative spread of 1e-9."""
    high, low = problem.largest_eigenvalue, problem.smallest_eigenvalue
    return high - low <= 1e-9 * high
