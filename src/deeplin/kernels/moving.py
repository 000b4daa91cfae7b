"""How a lane of networks moves: rates for each layer, momentum, weight decay, schedules.

The kernels add −ηG to what `shrunk` starts with, where G is the gradient of the risk; with momentum
`moved` turns the sum into the new weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from deeplin.kernels.lanes import fill, load, multiply_add, store


class Options(NamedTuple):
    """What a kernel is compiled for."""

    inertia: bool = False
    nesterov: bool = False
    decayed: bool = False
    stochastic: bool = False


class Lanes(NamedTuple):
    """A lane of networks in training; every array has `LANES` as its last axis."""

    now: np.ndarray
    was: np.ndarray
    velocity: np.ndarray
    readout: np.ndarray
    rates: np.ndarray
    """−η of each layer."""
    rules: np.ndarray
    """Rows goal, ceiling, value, and the value at the step before."""
    seeds: np.ndarray
    members: np.ndarray
    """The place of each network in the batch; −1 where a lane is idle."""
    widths: np.ndarray


class Motion(NamedTuple):
    """What all lanes share."""

    momentum: float
    weight_decay: float
    batch_size: int
    schedule: np.ndarray
    """What the rates are multiplied by at each step; empty for nothing."""


@njit(nogil=True, forceinline=True)
def coefficients(rates, layer, factor, motion, flags):
    """β, and what decay leaves of a weight: 1 − 2ηλ, or with momentum what it adds, −2ηλ."""
    rate = load(rates, layer) * fill(rates, factor)  # −η
    left = fill(rates, 0.0 if flags[0] else 1.0)
    left = multiply_add(rate, fill(rates, 2 * motion.weight_decay), left)
    return fill(rates, motion.momentum), left


@njit(nogil=True, forceinline=True)
def shrunk(weight, kept, flags):
    """What the gradient is added to: W, (1 − 2ηλ)W, or with momentum 0 or −2ηλW."""
    inertia, _, decayed = flags
    if decayed:
        return kept[1] * weight
    return fill(weight, 0.0) if inertia else weight


@njit(nogil=True, forceinline=True)
def moved(velocity, row, weight, push, kept, flags):
    """V ← βV + push; returns W + V, or Nesterov's W + βV + push."""
    beta = kept[0]
    speed = multiply_add(beta, load(velocity, row), push)
    store(velocity, row, speed)
    return weight + multiply_add(beta, speed, push) if flags[1] else weight + speed
