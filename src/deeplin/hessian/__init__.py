"""Sharpness: exact at minimisers, certified Lanczos anywhere, the papers' power iteration."""

from deeplin.hessian.choose import sharpness
from deeplin.hessian.exact import tangent_kernel, tangent_kernel_change
from deeplin.hessian.result import HessianSpectrum, Sharpness, Tracked
from deeplin.hessian.spectrum import hessian_spectrum
from deeplin.hessian.tracking import SharpnessTracker, sharpness_along, spectrum_along

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
