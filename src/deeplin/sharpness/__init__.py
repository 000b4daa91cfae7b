"""Sharpness: exact at minimisers, certified Lanczos anywhere, the papers' power iteration."""

from deeplin.sharpness.following import Tracked
from deeplin.sharpness.methods import sharpness
from deeplin.sharpness.result import Sharpness
from deeplin.sharpness.tracking import SharpnessTracker, sharpness_along

__all__ = ["Sharpness", "SharpnessTracker", "Tracked", "sharpness", "sharpness_along"]
