"""The two layouts of a linear map: a matrix (q, d) for people, columns (d, q) inside.

A linear map is (q, d), as W_L…W_1 is, or (d,) for one output; any leading axes are a batch. Inside
the library maps are columns Θ = (W_L…W_1)ᵀ, (d, q), in which a batch multiplies without copies.
"""

from __future__ import annotations

from typing import Any


def as_map(columns: Any) -> Any:
    """Return columns (…, d, q) as linear maps, (…, q, d), or (…, d) for one output."""
    return columns[..., 0] if columns.shape[-1] == 1 else columns.mT


def as_columns(theta: Any, outputs: int) -> Any:
    """Return linear maps, (…, q, d) or (…, d) for one output, as columns (…, d, q)."""
    return theta[..., None] if outputs == 1 else theta.mT
