"""Sharpness and other eigenvalues of Hessians: exact at minimizers, certified elsewhere."""

from deeplin.hessian._sharpness import Sharpness, sharpness
from deeplin.hessian.monitor import SharpnessMonitor
from deeplin.hessian.operators import unflatten
from deeplin.hessian.spectrum import HessianSpectrum, hessian_spectrum
from deeplin.hessian.stochastic import SpectralDensity, Trace, hessian_trace, spectral_density
from deeplin.hessian.torch_loss import TorchLoss
from deeplin.hessian.tracking import sharpness_along

__all__ = [
    "HessianSpectrum",
    "Sharpness",
    "SharpnessMonitor",
    "SpectralDensity",
    "TorchLoss",
    "Trace",
    "hessian_spectrum",
    "hessian_trace",
    "sharpness",
    "sharpness_along",
    "spectral_density",
    "unflatten",
]
