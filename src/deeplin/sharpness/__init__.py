"""Sharpness: exact at minimisers, certified Lanczos anywhere, the papers' power iteration."""

from deeplin.sharpness.exact import tangent_kernel, tangent_kernel_change
from deeplin.sharpness.extreme import sharpness
from deeplin.sharpness.result import HessianSpectrum, Sharpness, Tracked
from deeplin.sharpness.spectrum import hessian_spectrum
from deeplin.sharpness.tracking import SharpnessTracker, sharpness_along, spectrum_along

__all__ = [
    "HessianSpectrum",
    "Sharpness",
    "SharpnessTracker",
    "Tracked",
    "hessian_spectrum",
    "sharpness",
    "sharpness_along",
    "spectrum_along",
    "tangent_kernel",
    "tangent_kernel_change",
]
