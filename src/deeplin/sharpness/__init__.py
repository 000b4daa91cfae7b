"""Sharpness: exact at minimisers, certified Lanczos anywhere, the papers' power iteration."""

from deeplin.sharpness.methods import sharpness
from deeplin.sharpness.result import Sharpness
from deeplin.sharpness.tracking import Tracked, follow, random_block, sharpness_along

__all__ = ["Sharpness", "Tracked", "follow", "random_block", "sharpness", "sharpness_along"]
