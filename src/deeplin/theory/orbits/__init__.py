"""Beyond the edge of stability: period-two orbits (X-12)."""

from deeplin.theory.orbits.balanced import Orbit, balanced_orbit, mode_orbits

__all__ = ["Orbit", "balanced_orbit", "mode_orbits"]
