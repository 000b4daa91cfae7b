"""Exact reduction of a network to the subspaces in which it is trained (X-4)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from deeplin.errors import InputError
from deeplin.networks import Network
from deeplin.networks.network import check_fits, host_arrays, in_float64
from deeplin.networks.products import product
from deeplin.problems import Problem
from deeplin.problems.problem import as_map


@dataclass(frozen=True, eq=False)
class Reduction:
    """A smaller network and problem with exactly the same training dynamics, and the inverse map.

    With orthonormal bases B_0 … B_L the reduced layers are A_k = B_kᵀ W_k B_{k−1}, and at all times
    W_k(t) = W_k(0) + B_k (A_k(t) − A_k(0)) B_{k−1}ᵀ, under descent, momentum and flow.
    """

    network: Network
    """The reduced initial network; the original one if no width shrinks."""
    problem: Problem
    """The problem it is trained on: the data in the coordinates B_0."""
    bases: tuple[np.ndarray, ...]
    """B_k of shape (d_k, r_k), one for each width."""
    original: Network
    """The network that was reduced."""

    def lift(self, network: Network) -> Network:
        """Return the full weights that correspond to reduced weights (or to a batch of them)."""
        layers = [
            whole + self.bases[k + 1] @ (now - start) @ self.bases[k].T
            for k, (whole, now, start) in enumerate(self._layers(network))
        ]
        return Network(layers, None, self.original.readout, self.original.activation)

    def theta(self, network: Network) -> np.ndarray:
        """Return the product of the full network, (q, d) or (d,), from reduced weights.

        It is that of B_1ᵀW_1(0) + (A_1 − A_1(0)) B_0ᵀ and the other layers as they are.
        """
        whole, now, start = next(self._layers(network))
        first = self.bases[1].T @ whole + (now - start) @ self.bases[0].T
        weights, readout = host_arrays(network)
        return as_map(product([first, *weights[1:]], readout))

    def _layers(self, network: Network):
        """Return full initial, reduced current and reduced initial weights of each layer."""
        if network.widths != self.network.widths:
            raise InputError(
                f"the network has widths {network.widths}; pass weights of this reduction's "
                f"network, whose widths are {self.network.widths}."
            )
        networks = (self.original, network, self.network)
        return zip(*(map(np.asarray, net.weights) for net in networks), strict=True)


def reduce(problem: Problem, network: Network) -> Reduction:
    """Return the smallest network whose training on `problem` is exactly that of `network` (X-4).

    Gradients have columns in the backward span and rows in the forward span. The smallest family
    H_0 = range Σ̂, H_1, …, H_L = span of the read-out with W_k H_{k−1} ⊆ H_k and W_kᵀH_k ⊆ H_{k−1}
    between hidden layers contains them at all times. Identity or orthogonal middle layers give
    dim H_k ≤ rank(X) + q whatever the width; Gaussian ones fill the whole width, and then the
    result says so in `smaller` and `reason`. With an activation only the inputs can shrink.

    Args:
        problem: The problem that the network is to be trained on.
        network: One network at its start.

    Returns:
        A `Reduction`: the smaller network and problem, and the way back.

    ```python
    import deeplin as dl, jax, numpy as np
    X = np.random.default_rng(0).normal(size=(8, 300))
    problem = dl.Problem.from_data(X, X[:, 0])
    network = dl.initialize.gaussian(jax.random.key(0), widths=(300, 100, 1), scale=0.1)
    reduction = dl.reduce(problem, network)
    run = dl.gradient_descent(reduction.problem, reduction.network, 1e-3, steps=100)
    full = reduction.lift(run.network)
    ```
    """
    check_fits(problem, network)
    if network.batch is not None:
        raise InputError(
            f"reduce takes one network and received a batch of {network.batch}; each network has "
            "its own subspaces, so reduce them one by one."
        )
    host_arrays(network)  # known without biases alone
    network = in_float64(network)
    bases = _closed_family(problem, network)
    weights = tuple(
        upper.T @ np.asarray(weight) @ lower
        for weight, lower, upper in zip(network.weights, bases[:-1], bases[1:], strict=True)
    )
    readout = None if network.readout is None else bases[-1].T @ np.asarray(network.readout)
    small = Network(weights, None, readout, network.activation)
    return Reduction(
        small if small.widths != network.widths else network,
        in_coordinates(problem, bases[0]),
        bases,
        network,
    )


def _closed_family(problem: Problem, network: Network) -> tuple[np.ndarray, ...]:
    """Return orthonormal bases of H_0 … H_L; the identity where a space is the whole space."""
    widths, inputs = network.widths, problem.spectrum.vectors
    if problem.rank == 0:
        raise InputError("Σ̂ is zero: every gradient vanishes. Pass nonzero inputs.")
    if network.activation != "linear":
        return (_or_identity(inputs), *map(np.eye, widths[1:]))
    outputs = np.eye(widths[-1])
    if network.readout is not None:
        outputs = np.reshape(network.readout / jnp.linalg.norm(network.readout), (-1, 1))
    hidden = _hidden_spaces([np.asarray(weight) for weight in network.weights], inputs, outputs)
    return tuple(map(_or_identity, (inputs, *hidden, outputs)))


def _hidden_spaces(
    weights: list[np.ndarray], inputs: np.ndarray, outputs: np.ndarray
) -> list[np.ndarray]:
    """Return bases of H_1 … H_{L−1}, closed under all layers and their transposes."""
    L = len(weights)
    spaces = [np.zeros((len(weight), 0)) for weight in weights[:-1]]
    floors = [_rounding(weight) for weight in weights]
    waiting: deque[tuple[int, np.ndarray]] = deque()

    def enlarge(k: int, image: np.ndarray, floor: float) -> None:
        fresh = _new_directions(spaces[k - 1], image, floor)
        if fresh.shape[1]:
            spaces[k - 1] = np.concatenate([spaces[k - 1], fresh], axis=1)
            waiting.append((k, fresh))

    def up(k: int, directions: np.ndarray) -> None:
        enlarge(k, weights[k - 1] @ directions, floors[k - 1])

    def down(k: int, directions: np.ndarray) -> None:
        enlarge(k, weights[k].T @ directions, floors[k])

    if L > 1:
        up(1, inputs)
        down(L - 1, outputs)
    while waiting:
        k, fresh = waiting.popleft()
        if k < L - 1:
            up(k + 1, fresh)
        if k > 1:
            down(k - 1, fresh)
    # A layer that no direction reaches is constant; one zero unit keeps the network valid.
    return [space if space.shape[1] else np.eye(len(space), 1) for space in spaces]


def _new_directions(basis: np.ndarray, image: np.ndarray, floor: float) -> np.ndarray:
    """Return orthonormal directions of the columns of `image` outside `basis`, above `floor`."""
    for _ in range(2):
        image = image - basis @ (basis.T @ image)
    left, sizes, _ = np.linalg.svd(image, full_matrices=False)
    fresh = left[:, sizes > floor]
    return np.linalg.qr(fresh - basis @ (basis.T @ fresh))[0]


def _rounding(layer: np.ndarray) -> float:
    """Return a bound on the rounding of products with this layer, 100 ε √d ‖W‖_2."""
    vector = np.random.default_rng(0).standard_normal(layer.shape[1])
    for _ in range(6):
        image = layer.T @ (layer @ (vector / np.linalg.norm(vector)))
        if not np.any(image):
            return 0.0
        vector = image
    size = np.sqrt(np.linalg.norm(vector))
    return float(100 * np.finfo(np.float64).eps * np.sqrt(max(layer.shape)) * size)


def _or_identity(basis: np.ndarray) -> np.ndarray:
    return np.eye(len(basis)) if basis.shape[0] == basis.shape[1] else basis


def in_coordinates(problem: Problem, basis: np.ndarray) -> Problem:
    """Return the problem with its inputs in coordinates of `basis`, whose span contains them."""
    if basis.shape[0] == basis.shape[1]:
        return problem
    if problem.inputs is not None and problem.targets is not None:
        return Problem.from_data(problem.inputs @ basis, problem.targets)
    eigenvalues, _, coordinates = problem.spectrum
    cross = eigenvalues[:, None] * coordinates
    moments = np.asarray(problem.second_moments)[problem.dimension :, problem.dimension :]
    return Problem.from_moments(np.diag(eigenvalues), cross, moments, problem.samples)
