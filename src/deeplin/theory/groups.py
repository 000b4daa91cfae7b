"""The statements of every group, in the order in which certificates list them."""

from importlib import import_module

MODULES = (
    "gradients",
    "conservation",
    "minimizers.statements",
    "small_initialization.statements",
    "residual_initialization.statements",
    "technical_lemmas",
    "talk.statements",
    "minimizers.exact_statements",
    "weight_decay.statements",
    "stochastic.statements",
    "orbits.statements",
    "white_inputs.statements",
    "benign_overfitting.data_statements",
    "benign_overfitting.dynamics_statements",
    "benign_overfitting.convergence_statements",
    "benign_overfitting.risk_statements",
    "width_free",
)
"""Importing a module registers its statements."""

for name in MODULES:
    import_module(f"deeplin.theory.{name}")
