"""Names of version 0.2 that have moved: they still work, with a DeprecationWarning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module

MOVED = {
    "deeplin.sweep": {"sweep.progress": "Bar=show_progress Lines=show_progress"},
    "deeplin.theory": {
        "certificates.certificate": "Certificate certify",
        "certificates.context": "Constants",
        "certificates.registry": "Check NotApplicable Statement statement",
        "certificates.statements": "STATEMENTS",
        "training.critical_rate": "CriticalRate empirical_critical_rate",
    },
    "deeplin.training": {"training.advice": "Optimizer=TrainingSpec"},
}
"""For each package, the new module of each of its former names; `old=new` if renamed."""


def moved(package: str) -> Callable[[str], object]:
    """Return a module-level `__getattr__` that finds names which left `package` in version 0.3."""
    places = {
        entry.split("=")[0]: (f"deeplin.{module}", entry.split("=")[-1])
        for module, names in MOVED[package].items()
        for entry in names.split()
    }

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, new = places[name]
        warnings.warn(
            f"{package}.{name} is now {module}.{new}; the old name goes in the next version.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(module), new)

    return find
