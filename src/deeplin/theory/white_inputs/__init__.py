"""Gradient flow on white inputs, solved exactly (X-13)."""

from deeplin.theory.white_inputs.flows import (
    TwoLayerFlow,
    balanced_mode,
    time_to_reach,
    two_layer_flow,
)

__all__ = ["TwoLayerFlow", "balanced_mode", "time_to_reach", "two_layer_flow"]
