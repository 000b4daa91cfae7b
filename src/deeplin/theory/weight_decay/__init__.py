"""Weight decay: the global minimiser, its sharpness, and where it collapses (X-9)."""

from deeplin.theory.weight_decay.minimum import (
    CriticalWeightDecay,
    DecayedMinimum,
    critical_weight_decay,
    decayed_minimum,
)

__all__ = ["CriticalWeightDecay", "DecayedMinimum", "critical_weight_decay", "decayed_minimum"]
