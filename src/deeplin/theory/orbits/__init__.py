"""Beyond the edge of stability: period-two orbits of balanced modes (X-12) and whole networks."""

from deeplin.theory.orbits.balanced import Orbit, balanced_orbit, mode_orbits
from deeplin.theory.orbits.network import NetworkOrbit, network_orbit

__all__ = ["NetworkOrbit", "Orbit", "balanced_orbit", "mode_orbits", "network_orbit"]
