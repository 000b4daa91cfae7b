"""The statements, one module for each group of results. Importing a module registers its own."""

from importlib import import_module

MODULES = (
    "gradients",
    "minimizers",
    "small_initialization",
    "residual_initialization",
    "talk",
    "exact",
    "benign_data",
    "benign_dynamics",
    "benign_risk",
    "width_free",
)
"""In the order in which certificates list them."""

for name in MODULES:
    import_module(f"{__name__}.{name}")
