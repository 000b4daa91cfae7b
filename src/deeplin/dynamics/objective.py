"""What a dynamics goes down: a value and its gradient, as a pure function of data and network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jaxtyping import Array

from deeplin.checks import InputError
from deeplin.networks import (
    Network,
    check_loss,
    data_risk,
    gap_and_gradient,
    landscape,
    linear_risk,
)
from deeplin.problems import Problem

Gradient = tuple[Array, ...]


class Objective(NamedTuple):
    """A risk R and how to descend it: `value_and_gradient(*data, network)`, value = R − floor.

    For a linear network on a problem the value is the gap R − R_min, taken about the optimum so
    that it stays accurate down to rounding; otherwise it is the risk itself and the floor is 0.
    The data are arguments of the functions, so compiled code does not depend on the problem.
    """

    value_and_gradient: Callable[..., tuple[Array, Gradient]]
    risk: Callable[..., Array]
    data: tuple[Any, ...]
    floor: float
    """R_min, a lower bound of the risk, where `has_gap`; else 0."""
    has_gap: bool
    """Whether R − R_min is meaningful: a linear network on a problem."""


@dataclass(frozen=True)
class Autodiff:
    """Value and gradient over the weights by reverse-mode differentiation, the read-out fixed."""

    risk: Callable[..., Array]

    def __call__(self, *arguments) -> tuple[Array, Gradient]:
        """R and its gradient at the network, which is the last argument."""
        *data, network = arguments

        def of_weights(weights):
            return self.risk(*data, Network(weights, network.readout, network.activation))

        return jax.value_and_grad(of_weights)(network.weights)


def objective_of(problem: Problem | Callable[[Network], Array], network: Network) -> Objective:
    """The objective of a problem, or of any differentiable `loss(network) -> scalar`."""
    if not isinstance(problem, Problem):
        if not callable(problem):
            raise InputError(
                f"problem is a {type(problem).__name__}; pass a deeplin.Problem or a function "
                "loss(network) that returns a scalar."
            )
        check_loss(problem, network)
        return Objective(Autodiff(problem), problem, (), 0.0, False)
    risk, data = landscape(problem, network)
    if risk is linear_risk:
        return Objective(gap_and_gradient, linear_risk, (data,), problem.minimal_risk, True)
    return Objective(Autodiff(data_risk), data_risk, (data,), 0.0, False)
