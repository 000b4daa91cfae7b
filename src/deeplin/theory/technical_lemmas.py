"""Inequalities between numbers that the proofs of FM use (Lemmas 4 and 5)."""

from __future__ import annotations

import numpy as np

from deeplin.theory.context import Context
from deeplin.theory.registry import Check, statement

GRID = np.linspace(0.0, 1.0, 401)[1:]
"""Where the inequalities are evaluated, as a share of their range (at 0 both sides are equal)."""


@statement(
    "FM-L4",
    title="powers near one",
    kind="lemma",
    reference="FM, Lemma 4",
    formula=r"(1-x)^\alpha\ge1-2\alpha x\ (0\le x\le\tfrac12),\quad"
    r"(1+x)^\alpha\le1+2\alpha x\ (\alpha x\le1)",
)
def powers_near_one(context: Context) -> list[Check]:
    """Both, for α = 1/L, 1 and L."""
    depth = float(context.depth)
    alpha = np.array([1 / depth, 1.0, depth])[:, None]
    low, high = GRID / 2, GRID / alpha
    shape = (1, 1, -1)
    return [
        Check((1 - 2 * alpha * low).reshape(shape), ((1 - low) ** alpha).reshape(shape), "1 − x"),
        Check(((1 + high) ** alpha).reshape(shape), (1 + 2 * alpha * high).reshape(shape), "1 + x"),
    ]


@statement(
    "FM-L5",
    title="a factor L against an exponential in √L",
    kind="lemma",
    reference="FM, Lemma 5, where C = 1 suffices",
    formula=r"Le^{-\sqrt Lx}\le4e^{-x}\quad(x\ge1)",
)
def depth_against_exponential(context: Context) -> Check:
    """At the depth of the network, as log L − √L x ≤ log 4 − x."""
    x = (1 + 49 * np.insert(GRID, 0, 0.0))[None, None]
    L = float(context.depth)
    return Check(np.log(L) - np.sqrt(L) * x, np.log(4.0) - x)
