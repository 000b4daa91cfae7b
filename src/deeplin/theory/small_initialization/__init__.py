"""Gradient flow from a small initialization (FM Section 4)."""

from deeplin.theory.small_initialization.formulas import (
    LojasiewiczConstant,
    initialization_scale,
    lojasiewicz_constant,
)

__all__ = ["LojasiewiczConstant", "initialization_scale", "lojasiewicz_constant"]
