"""Places worth visiting, each a state with a sentence on what to look for."""

from __future__ import annotations

from dataclasses import dataclass

from deeplin.explorer.state import State


@dataclass(frozen=True)
class Preset:
    """A button: its text, the state it opens, and what can be seen there."""

    title: str
    state: State
    look: str


PRESETS = {
    "sharpening": Preset(
        "Progressive sharpening",
        State(scale=0.35, learning_rate=0.02, steps=500),
        "The sharpness grows while the risk falls, and stays below 2/η (FM-1c).",
    ),
    "edge": Preset(
        "Edge of stability",
        State(scale=0.45, learning_rate=0.07, steps=4000, seeds=3),
        "From a large start the sharpness ends at 2/η, not where gradient flow would go (FM-1b).",
    ),
    "catapult": Preset(
        "Catapult",
        State(architecture="residual", scale=1.0, learning_rate=0.03, steps=400, seeds=8),
        "The start is sharper than 2/η: the risk jumps up first, and training still succeeds.",
    ),
    "small": Preset(
        "Small initialisation",
        State(depth=4, scale=0.1, learning_rate=0.08, steps=5000),
        "Layers become rank one, equal and aligned; the end is at S_bal whatever η is (X-3).",
    ),
    "residual": Preset(
        "Residual network",
        State(architecture="residual", scale=0.5, learning_rate=0.02, steps=400),
        "Weights near the identity: fast from the first step, and close to the flattest minimum.",
    ),
    "benign": Preset(
        "Benign overfitting",
        State(tab="wide", wide_width=10**6, alpha=1e-5, beta=1.0),
        "A small first layer: the trained network is the minimum-norm interpolant.",
    ),
    "counterexample": Preset(
        "β = 0 counterexample",
        State(tab="wide", wide_width=1000, alpha=0.1, beta=0.0),
        "The network starts at the zero function, yet ends away from the minimum-norm "
        "interpolant (erratum E-4).",
    ),
}
