"""The period-two orbit of a whole network above its critical rate, by Newton's method.

Descent is the map T(θ) = θ − η∇R(θ). On an orbit F(θ) = T(T(θ)) − θ vanishes; F' = DT² − I with
DT² = (I − ηH(Tθ))(I − ηH(θ)). Rotations between layers, and the flat directions of what has
settled, leave F as it is, so orbits are never isolated and F' is never regular. Levenberg-Marquardt
steps with the damping ‖F‖² converge quadratically all the same (Yamashita and Fukushima 2001).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from deeplin.errors import InputError, positive_number, require_float64
from deeplin.hessian.operators import dense, gradients
from deeplin.networks import Network, products, risk_and_data
from deeplin.problems import Problem

MOST = 2000
"""Parameters up to which a dense Hessian is worth its cost."""
ITERATIONS = 60
"""Most steps; from a settled run five are usual."""
CLOSE = 1e-12
"""Residual of two steps, relative to the weights, at which an orbit counts as found."""
NEUTRAL = 1e-6
"""How near to one a multiplier is that belongs to a direction along which orbits continue."""
MOVES = 1e-6
"""Share of the largest swing above which a mode moves; of ‖Θ‖, above which anything does."""


@dataclass(frozen=True)
class NetworkOrbit:
    """θ → Tθ → θ for a whole network, and what happens beside it."""

    networks: tuple[Network, Network]
    """The two points, that of smaller risk first."""
    risks: tuple[float, float]
    residual: float
    """‖T(T(θ)) − θ‖/‖θ‖."""
    converged: bool
    amplitudes: Float[np.ndarray, " modes"]
    """Half the singular values of the difference of the two products, largest first."""
    multipliers: Float[np.ndarray, " parameters"]
    """Moduli of the eigenvalues of DT², largest first, those of neutral directions left out."""
    neutral: int
    """Directions with multiplier one: rotations between layers, flat ones of what has settled."""
    size: float
    """‖Θ‖_F, the mean of the two."""

    @property
    def modes(self) -> int:
        """How many modes oscillate; none if descent settles."""
        largest = self.amplitudes[0] if self.amplitudes[0] > MOVES * self.size else np.inf
        return int(np.sum(self.amplitudes > MOVES * largest))

    @property
    def amplitude(self) -> float:
        """That of the mode that swings most."""
        return float(self.amplitudes[0])

    @property
    def multiplier(self) -> float:
        """What the slowest small error is multiplied by in two steps."""
        return float(self.multipliers[0])

    @property
    def stable(self) -> bool:
        """Whether iterates nearby end on this orbit, or on one beside it along neutral ways."""
        return self.converged and self.multiplier < 1


def network_orbit(problem: Problem, net: Network, learning_rate: float) -> NetworkOrbit:
    """The period-two orbit of gradient descent near a network, such as the end of a run.

    Newton's method on two steps of descent finds it to rounding from an iterate nearby, stable or
    not. Where descent has settled it finds the minimizer, and `modes` is 0. Far from any orbit it
    may find none: `converged` and `residual` say so; train longer first.

    ```python
    import deeplin as dl, jax, numpy as np
    jax.config.update("jax_enable_x64", True)
    X = np.sqrt(1.5) * np.eye(3)                        # Σ̂ = I/2: the risk is ½‖Θ − S‖²
    problem = dl.Problem.from_data(X, X @ np.diag([10, 9.5, 9]))
    net = dl.Network([1.01 * np.diag(np.cbrt([10, 9.5, 9]))] * 3)
    run = dl.gradient_descent(problem, net, learning_rate=0.032, steps=500)
    orbit = dl.theory.network_orbit(problem, run.network, 0.032)
    assert orbit.stable and orbit.modes == 1
    ```
    """
    if not isinstance(net, Network) or net.batch is not None:
        raise InputError("network_orbit takes one network; pass a deeplin.Network without batch.")
    require_float64("the orbit of a network", net.weights)
    rate = positive_number("learning_rate", learning_rate)
    flat, unravel = ravel_pytree(net.weights)
    if flat.size > MOST:
        raise InputError(f"net has {flat.size} weights; orbits are searched up to {MOST}.")
    risk, data = risk_and_data(problem, net)

    def network(theta: np.ndarray) -> Network:
        return Network(unravel(jnp.asarray(theta)), net.readout, net.activation)

    def descend(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """T(θ) and DT(θ)."""
        here = network(theta).with_batch()
        slope, hessian = (np.asarray(f(risk, data, here))[0] for f in (gradients, dense))
        return theta - rate * slope, np.eye(len(theta)) - rate * hessian

    def twice(theta: np.ndarray):
        """T(θ), F(θ) = T(T(θ)) − θ and DT²(θ)."""
        there, first = descend(theta)
        back, second = descend(there)
        return there, back - theta, second @ first

    with np.errstate(over="ignore", invalid="ignore"):
        theta, there, error, slope = _newton(twice, np.asarray(flat))
        pair = network(theta), network(there)
        risks = [float(risk(data, point)) for point in pair]
        residual = float(np.linalg.norm(error) / np.linalg.norm(theta))
        return _found(pair, risks, residual, slope)


def _newton(twice: Callable, theta: np.ndarray):
    """A zero of F: θ, Tθ, F and DT² there."""
    there, error, slope = twice(theta)
    if not (np.isfinite(slope).all() and np.isfinite(error).all()):
        raise InputError(
            "two steps of descent from net are not finite at this learning_rate; pass a network "
            "near an orbit, such as the end of a run."
        )
    damping = 1.0
    for _ in range(ITERATIONS):
        size = np.linalg.norm(error)
        if size <= CLOSE * np.linalg.norm(theta) / 100:
            break
        jacobian = slope - np.eye(len(theta))
        square = jacobian.T @ jacobian + damping * size**2 * np.eye(len(theta))
        step = np.linalg.lstsq(square, jacobian.T @ error)[0]
        trial = twice(theta - step)
        if np.linalg.norm(trial[1]) < size:
            theta, (there, error, slope), damping = theta - step, trial, max(damping / 10, 1e-6)
        elif damping < 1e12:
            damping *= 10
        else:  # rounding: no step is better
            break
    return theta, there, error, slope


def _found(pair: tuple, risks: list[float], residual: float, slope: np.ndarray) -> NetworkOrbit:
    """The orbit with its evidence, the point of smaller risk first."""
    first, second = (0, 1) if risks[0] <= risks[1] else (1, 0)
    maps = [np.asarray(products.product(network.weights, network.readout)) for network in pair]
    eigenvalues = np.linalg.eigvals(slope)
    neutral = np.abs(eigenvalues - 1) <= NEUTRAL
    return NetworkOrbit(
        (pair[first], pair[second]),
        (risks[first], risks[second]),
        residual,
        bool(residual <= CLOSE),
        np.linalg.svd(maps[1] - maps[0], compute_uv=False) / 2,
        np.sort(np.abs(eigenvalues[~neutral]))[::-1],
        int(np.sum(neutral)),
        float(np.linalg.norm(maps[0] + maps[1]) / 2),
    )
