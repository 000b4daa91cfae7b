"""Risk of interpolating networks (BO): effective ranks, exact risk, bounds."""

from deeplin.theory.benign_overfitting.effective_ranks import (
    EffectiveRanks,
    effective_index,
    effective_ranks,
    spike,
)
from deeplin.theory.benign_overfitting.ridgeless import RidgelessRisk, ridgeless_risk
from deeplin.theory.benign_overfitting.risk import (
    RiskBound,
    RiskSplit,
    conditional_variance,
    interpolation_bound,
    minimum_norm_interpolant,
    random_start_bound,
    require_interpolation,
    risk_split,
    spike_bound,
)

__all__ = [
    "EffectiveRanks",
    "RidgelessRisk",
    "RiskBound",
    "RiskSplit",
    "conditional_variance",
    "effective_index",
    "effective_ranks",
    "interpolation_bound",
    "minimum_norm_interpolant",
    "random_start_bound",
    "require_interpolation",
    "ridgeless_risk",
    "risk_split",
    "spike",
    "spike_bound",
]
