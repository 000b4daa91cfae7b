"""Spiked populations with very wide networks on them, at the scales that BO-T3.2 asks for."""

from __future__ import annotations

import numpy as np

from deeplin.dynamics import simulate_wide
from deeplin.problems import Population
from deeplin.problems.synthetic import Synthetic, spiked
from deeplin.sweep import coordinate_words

OUTPUTS, SPIKES, WIDTH = 2, 2, 10**6
ALPHA = 0.05
"""Operator norm of the first layer; entries have standard deviation α/√m (E-6)."""


def draw(
    seed: int,
    repetition: int,
    samples: int,
    dimension: int,
    epsilon: float,
    *,
    spikes: int = SPIKES,
    noise: float = 1.0,
) -> Synthetic:
    """A data set of a spiked population, from its coordinates."""
    words = coordinate_words(seed, samples=samples, repetition=repetition, part="bounds")
    return spiked(
        (words[0] << 32) | words[1],
        dimension,
        samples=samples,
        outputs=OUTPUTS,
        spikes=spikes,
        epsilon=epsilon,
        noise=noise,
    )


def population_of(data: Synthetic) -> Population:
    """The population that a data set was drawn from."""
    return Population(np.asarray(data.truth), data.spectrum, drawn=True)


def last_layer(data: Synthetic, depth: int, *, spikes: int = SPIKES) -> float:
    """β of BO-T3.2 with c = 1: max(1, λ_1^{1/4}√(Ln)(√‖Θ*‖λ_1^{1/4} + q^{1/4})/√s_k)."""
    n = data.problem.samples
    return max(1.0, np.sqrt(depth * n / data.spectrum[spikes:].sum()) * (1 + OUTPUTS**0.25))


def train(data: list[Synthetic], depth: int, beta: float, keys, *, alpha: float = ALPHA):
    """Gradient flow of a network of width 10⁶ on each data set, to a mean loss of 1e-8."""
    return simulate_wide(
        [source.problem for source in data],
        WIDTH,
        depth,
        alpha / np.sqrt(WIDTH),
        beta / np.sqrt(WIDTH),
        keys,
        dynamics="flow",
        loss_target=1e-8,
        record_every=10**6,
    )
