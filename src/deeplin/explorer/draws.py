"""The page's random numbers in Python: data, weights and read-out of a state, number for number.

Certificates of presets are computed here and shown there, so both sides must train the same
network. `page/random.js` and `page/start.js` are the originals; a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

import deeplin as dl

WORD = 0xFFFFFFFF
DATA, READOUT, WEIGHTS = 1, 2, 3
"""Streams: every seed gives independent numbers for each purpose."""


class Random:
    """The generator of `page/random.js`: three words and a counter of 32 bits, normals in pairs."""

    def __init__(self, seed: int, stream: int):
        self.a, self.b, self.c, self.count = seed & WORD, stream & WORD, 0x9E3779B9, 1
        self.spare: float | None = None
        for _ in range(20):
            self.word()

    def word(self) -> int:
        """32 random bits."""
        total = (self.a + self.b + self.count) & WORD
        self.count = (self.count + 1) & WORD
        self.a = self.b ^ (self.b >> 9)
        self.b = (self.c + (self.c << 3)) & WORD
        self.c = ((((self.c << 21) | (self.c >> 11)) & WORD) + total) & WORD
        return total

    def uniform(self) -> float:
        """Uniform on (0, 1)."""
        return (self.word() + 0.5) / 4294967296

    def normal(self) -> float:
        """Standard normal."""
        if self.spare is not None:
            value, self.spare = self.spare, None
            return value
        radius = math.sqrt(-2 * math.log(self.uniform()))
        angle = 2 * math.pi * self.uniform()
        self.spare = radius * math.sin(angle)
        return radius * math.cos(angle)

    def normals(self, *shape: int) -> np.ndarray:
        """An array of normals, row by row."""
        return np.array([self.normal() for _ in range(math.prod(shape))]).reshape(shape)


def data_of(state: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """X and Y of synthetic data, scaled to ‖Θ*‖_F = 1."""
    random = Random(state["data_seed"], DATA)
    n, d, q = state["samples"], state["dimension"], state["outputs"]
    spread = float(state["condition_number"]) ** (-np.arange(d) / (2 * max(d - 1, 1)))
    X = random.normals(n, d) * spread
    Y = X @ random.normals(d, q)
    Y += state["noise"] * random.normals(n, q)
    return X, Y / np.linalg.norm(dl.Problem.from_data(X, Y).optimum)


def network_of(state: Mapping[str, Any]) -> dl.Network:
    """The network of the first run at its start."""
    d, q, L, scale = state["dimension"], state["outputs"], state["depth"], state["scale"]
    residual = state["architecture"] == "residual"
    widths = [d] * (L + 1) if residual else [d, *[state["width"]] * (L - 1), q]
    random = Random(state["seed"], WEIGHTS)
    layers = [random.normals(m, n) for n, m in pairwise(widths)]
    if residual:
        readout = Random(state["data_seed"], READOUT).normals(q, d)[0]
        noise = scale / math.sqrt(L * d)
        return dl.Network(
            [np.eye(d) + noise * layer for layer in layers], readout / np.linalg.norm(readout)
        )
    if state["initialization"] == "rank_one":
        raise dl.InputError("presets start from Gaussian layers, not rank_one.")
    if state["initialization"] == "zero_layer":
        layers[0] = np.zeros_like(layers[0])
    return dl.Network([scale * layer for layer in layers])
