"""Gradient flow on white inputs, solved exactly (X-13): oracles for everything that integrates.

The loss is c‖Θ − S‖_F² (deeplin's risk where Σ̂ = cI), so flows run 2c times as fast as those of
½‖Θ − S‖_F², in whose clock the formulas are written. Balanced modes are due to Saxe et al.
2014, two layers to Braun et al. 2022 and Dominé et al. 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplin.errors import InputError, finite_array, positive_number, whole_number
from deeplin.theory.architecture import root

BALANCED = 1e-9
"""‖W_2ᵀW_2 − W_1W_1ᵀ − λI‖ up to which layers count as λ-balanced, relative to their size."""


STRETCH = 2.0
"""Fastest rate times time over which the formula for two layers is applied at once."""


LATE = 20.0
"""log(σ/|s − σ|) from which on a mode counts as late: e^{−20} from its target."""


def time_to_reach(
    value: float, *, target: float, start: float, depth: int, curvature: float = 1.0
) -> float:
    """When a balanced mode σ̇ = 2cLσ^{2−2/L}(s − σ) gets from `start` to `value` (X-13).

    L = 2: log[σ(s − σ_0)/(σ_0(s − σ))]/(4cs). With `value` = s/2 and small starts these are the
    times from saddle to saddle: large modes are learnt first, and for L ≥ 3 the time grows like
    σ_0^{2/L−1}.

    ```python
    from deeplin.theory import time_to_reach
    first = time_to_reach(5.0, target=10.0, start=1e-4, depth=3)
    assert first < time_to_reach(0.5, target=1.0, start=1e-4, depth=3)
    ```
    """
    s, begin, end = (
        positive_number(name, number)
        for name, number in (("target", target), ("start", start), ("value", value))
    )
    L = whole_number("depth", depth)
    if not (begin <= end < s or begin >= end > s):
        raise InputError(
            f"a mode that starts at {begin:g} with target {s:g} never reaches {end:g}; pass a "
            "value between start and target."
        )
    clock = 2 * positive_number("curvature", curvature)
    sign = 1.0 if end < s else -1.0
    at = [_clock(float(np.log(sigma / abs(s - sigma))), s, L, sign) for sigma in (begin, end)]
    return (at[1] - at[0]) / clock


def balanced_mode(
    times: Any, *, target: float, start: float, depth: int, curvature: float = 1.0
) -> Float[np.ndarray, " m"]:
    """σ(t) of a balanced mode under gradient flow, at each time (X-13).

    L = 1: s + (σ_0 − s)e^{−2ct}. L = 2: s/(1 + (s/σ_0 − 1)e^{−4cst}). Deeper: `time_to_reach`
    inverted.

    ```python
    from deeplin.theory import balanced_mode
    path = balanced_mode([0.0, 1.0, 10.0], target=2.0, start=0.1, depth=3)
    assert 0.1 == path[0] < path[1] < path[2] <= 2.0
    ```
    """
    moments = finite_array("times", times, (0, 1)).reshape(-1)
    if moments.min() < 0:
        raise InputError(f"times start at {moments.min():g}; pass times of at least 0.")
    s, begin = positive_number("target", target), positive_number("start", start)
    L = whole_number("depth", depth)
    clock = 2 * positive_number("curvature", curvature) * moments
    if L == 1:
        return s + (begin - s) * np.exp(-clock)
    if L == 2 or begin == s:
        return s / (1 + (s / begin - 1) * np.exp(-2 * s * clock))
    return np.array([_mode_after(time, s, begin, L) for time in clock])


@dataclass(frozen=True)
class TwoLayerFlow:
    """Two layers with W_2ᵀW_2 − W_1W_1ᵀ = λI after some time."""

    product: Float[np.ndarray, "q d"]
    """W_2W_1."""
    first_gram: Float[np.ndarray, "d d"]
    """W_1ᵀW_1."""
    second_gram: Float[np.ndarray, "q q"]
    """W_2W_2ᵀ."""
    balance: float
    """λ."""


def two_layer_flow(
    first: Any, second: Any, target: Any, time: float, curvature: float = 1.0
) -> TwoLayerFlow:
    """W_2W_1 at time t from λ-balanced layers, any sizes, in closed form (X-13).

    With Q = [W_1ᵀ; W_2] and F = [[−(λ/2)I, Sᵀ], [S, (λ/2)I]], in the clock of ½‖Θ − S‖_F²,
    QQᵀ(t) = e^{Ft}Q_0[I + Q_0ᵀ(∫_0^t e^{2Fs}ds)Q_0]^{-1}Q_0ᵀe^{Ft}.

    ```python
    import numpy as np
    from deeplin.theory import two_layer_flow
    flow = two_layer_flow(0.1 * np.eye(2), 0.1 * np.eye(2), np.diag([2.0, 1.0]), time=10.0)
    assert np.allclose(flow.product, np.diag([2.0, 1.0]))
    ```
    """
    given = {"first": first, "second": second, "target": target}
    W, V, S = (finite_array(name, array, (2,)) for name, array in given.items())
    if V.shape[1] != len(W) or S.shape != (len(V), W.shape[1]):
        raise InputError(
            f"first, second and target have shapes {W.shape}, {V.shape} and {S.shape}; pass "
            "h×d, q×h and q×d."
        )
    balance = _balance(W, V)
    clock = 2 * positive_number("curvature", curvature)
    clock *= positive_number("time", time, zero_allowed=True)
    d, q = W.shape[1], len(V)
    F = np.block([[-balance / 2 * np.eye(d), S.T], [S, balance / 2 * np.eye(q)]])
    rates, vectors = np.linalg.eigh(F)
    Q = vectors.T @ np.concatenate([W.T, V])
    # The formula composes; over short stretches it loses no digits to modes of different speed.
    stretches = max(1, int(np.ceil(np.abs(rates).max() * clock / STRETCH)))
    for _ in range(stretches):
        Q = _flowed(Q, rates, clock / stretches)
    gram = (vectors @ Q) @ (vectors @ Q).T
    return TwoLayerFlow(gram[d:, :d], gram[:d, :d], gram[d:, d:], balance)


def _flowed(Q: np.ndarray, rates: np.ndarray, time: float) -> np.ndarray:
    """Q(t), up to a rotation from the right, in the eigenbasis of F."""
    safe = np.where(rates == 0, 1.0, 2 * rates)
    integral = np.where(rates == 0, time, np.expm1(safe * time) / safe)
    factor = np.linalg.cholesky(np.eye(Q.shape[1]) + (Q.T * integral) @ Q)
    return np.linalg.solve(factor, (np.exp(rates * time)[:, None] * Q).T).T


def _balance(W: np.ndarray, V: np.ndarray) -> float:
    difference = V.T @ V - W @ W.T
    balance = float(np.trace(difference)) / len(W)
    off = float(np.linalg.norm(difference - balance * np.eye(len(W))))
    size = float(np.sum(W**2) + np.sum(V**2))
    if off > BALANCED * size:
        raise InputError(
            f"the layers are not λ-balanced: W_2ᵀW_2 − W_1W_1ᵀ is {off:.3g} away from every "
            "multiple of the identity. Pass layers for which it is one."
        )
    return balance


def _position(y: float, s: float, sign: float) -> float:
    """σ from y = log(σ/|s − σ|); sign is 1 below the target and −1 above it."""
    return s / (1 + sign * np.exp(-y))


def _clock(y: float, s: float, L: int, sign: float) -> float:
    """An antiderivative of 1/(Lσ^{2−2/L}(s − σ)) at σ(y)."""
    from scipy.special import hyp2f1  # as in `secular.root`

    if L == 2:
        return y / (2 * s)
    # hyp2f1 gives up at its singularity; there dt = dy/(Ls^{2−2/L}) up to e^{−y}
    past = max(y - LATE, 0.0)
    sigma = _position(y - past, s, sign)
    late = past / (L * s ** (2 - 2 / L))
    if L == 1:
        return late + (y - past) - float(np.log(sigma))
    if sign > 0:
        power = 1 - 2 / L
        series = hyp2f1(1, -power, 1 - power, sigma / s)
        return late - float(sigma**-power * series) / (L * s * power)
    power = 2 - 2 / L
    return late + float(sigma**-power * hyp2f1(1, power, 1 + power, s / sigma)) / (L * power)


def _mode_after(time: float, s: float, begin: float, L: int) -> float:
    """σ(t), sought in y, which grows at the rate Lsσ^{1−2/L}."""
    sign = 1.0 if begin < s else -1.0
    start = float(np.log(begin / abs(s - begin)))
    origin = _clock(start, s, L, sign)
    speeds = [L * s * size ** (1 - 2 / L) for size in sorted((begin, s))]
    # a little beyond both ends, which are the root itself where σ hardly moves
    low, high = (start + speed * time for speed in speeds)
    low, high = max(low - 1e-9 * abs(low), start), high + 1e-9 * (1 + abs(high))

    def late(y: float) -> float:
        return _clock(y, s, L, sign) - origin - time

    return begin if time == 0 else _position(root(late, low, high), s, sign)
