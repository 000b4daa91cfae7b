"""Modes of balanced networks in closed form: their gradient flow (X-13), their orbits (X-12).

Flow on white inputs, a reference for numerical integration: the loss is c‖Θ − S‖_F² (deeplin's risk
where Σ̂ = cI), so flows run 2c times as fast as those of ½‖Θ − S‖_F², in whose time the formulas
are written. Balanced modes are due to Saxe et al. 2014, two layers to Braun et al. 2022 and Dominé
et al. 2024.

Orbits beyond the edge of stability: L equal weights x with the loss c(x^L − σ)² take the step
x ← x + η'(σ − x^L)x^{L−1}, η' = 2cη. Above η' = 2/(Lσ^{2−2/L}) they settle on an orbit x → ax → x
instead of σ^{1/L}. Orbits of deep linear networks and the thresholds of diag(10, 9.5, 9): Ghosh et
al. 2025; the edge of stability: Cohen et al. 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import hyp2f1

from deeplin.errors import InputError, finite_array, positive_number, whole_number
from deeplin.theory.roots import root

BALANCED = 1e-9
"""‖W_2ᵀW_2 − W_1W_1ᵀ − λI‖ up to which layers count as λ-balanced, relative to their size."""
LONGEST_STRETCH = 2.0
"""Largest product of rate and time for one application of the formula for two layers."""
LATE_MODE = 20.0
"""log(σ/|s − σ|) above which a mode counts as late, within e^{−20} of its target."""


def time_to_reach(
    value: float, *, target: float, start: float, depth: int, curvature: float = 1.0
) -> float:
    """Return the time at which a balanced mode σ̇ = 2cLσ^{2−2/L}(s − σ) reaches `value` (X-13).

    L = 2: log[σ(s − σ_0)/(σ_0(s − σ))]/(4cs). With `value` = s/2 and small starts these are the
    times from saddle to saddle: large modes are learned first, and for L ≥ 3 the time grows like
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
    """Return σ(t) of a balanced mode under gradient flow, at each time (X-13).

    L = 1: s + (σ_0 − s)e^{−2ct}. L = 2: s/(1 + (s/σ_0 − 1)e^{−4cst}). Deeper: `time_to_reach`
    inverted.

    ```python
    from deeplin.theory.bounds import balanced_mode
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
    """Return W_2W_1 at time t from λ-balanced layers, any sizes, in closed form (X-13).

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
    # Composing the formula over short times avoids loss of digits for modes of different speed.
    stretches = max(1, int(np.ceil(np.abs(rates).max() * clock / LONGEST_STRETCH)))
    for _ in range(stretches):
        Q = _flowed(Q, rates, clock / stretches)
    gram = (vectors @ Q) @ (vectors @ Q).T
    return TwoLayerFlow(gram[d:, :d], gram[:d, :d], gram[d:, d:], balance)


def _flowed(Q: np.ndarray, rates: np.ndarray, time: float) -> np.ndarray:
    """Return Q(t), up to a rotation from the right, in the eigenbasis of F."""
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
    """Return σ from y = log(σ/|s − σ|); sign is 1 below the target and −1 above it."""
    return s / (1 + sign * np.exp(-y))


def _clock(y: float, s: float, L: int, sign: float) -> float:
    """Return an antiderivative of 1/(Lσ^{2−2/L}(s − σ)) at σ(y)."""
    if L == 2:
        return y / (2 * s)
    # hyp2f1 fails at its singularity; there dt = dy/(Ls^{2−2/L}) up to e^{−y}
    past = max(y - LATE_MODE, 0.0)
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
    """Return σ(t), found by solving for y, which grows at the rate Lsσ^{1−2/L}."""
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


@dataclass(frozen=True)
class Orbit:
    """The orbit x → ax → x of one mode, and its stability."""

    target: float
    depth: int
    low: float
    """x, the smaller of the two weights; `high` is ax."""
    high: float
    multiplier: float
    """Derivative of the two-step map, the factor of a small error of the common weight."""
    balance_multiplier: float
    """(2−a)(2−1/a), the factor of a small difference between layers in two steps."""

    @property
    def ratio(self) -> float:
        """a > 1."""
        return self.high / self.low

    @property
    def stable(self) -> bool:
        """Whether nearby iterates of this mode, balanced or not, converge to the orbit.

        In a network several modes that oscillate at once can also mix and leave it.
        """
        return abs(self.multiplier) < 1 and abs(self.balance_multiplier) < 1

    @property
    def products(self) -> tuple[float, float]:
        """x^L and (ax)^L, below and above the target."""
        return self.low**self.depth, self.high**self.depth

    @property
    def amplitude(self) -> float:
        """Half the distance of the two products."""
        return (self.high**self.depth - self.low**self.depth) / 2


def balanced_orbit(
    target: float, depth: int, learning_rate: float, curvature: float = 1.0
) -> Orbit | None:
    """Return the orbit of period two of a balanced mode, or None if it converges (X-12).

    With the loss c(x^L − σ)² and η' = 2cη: a = 1 + η'(σ − x^L)x^{L−2} and
    σ = x^L(1 + a^{2L−1})/(1 + a^{L−1}). Since η' increases with a, there is one orbit for each rate
    above 2/(Lσ^{2−2/L}). `curvature` c is 1 for deeplin's risk with Σ̂ = I, and ½ for the loss
    ½(x^L − σ)².

    ```python
    import deeplin as dl
    orbit = dl.theory.balanced_orbit(10.0, depth=3, learning_rate=0.032, curvature=0.5)
    assert orbit.stable and orbit.low < 10 ** (1 / 3) < orbit.high
    assert dl.theory.balanced_orbit(10.0, depth=3, learning_rate=0.030, curvature=0.5) is None
    ```
    """
    sigma, L = positive_number("target", target), whole_number("depth", depth, minimum=2)
    rate = 2 * positive_number("curvature", curvature) * positive_number("rate", learning_rate)
    scaled = rate * sigma ** (2 - 2 / L)
    if scaled <= 2 / L * (1 + 1e-14):  # at the threshold up to rounding
        return None

    def excess(u: float) -> float:
        return np.log(_scaled_rate(u, L) / scaled)

    high = 1.0
    while excess(high) < 0:
        high *= 2
    a = float(np.exp(root(excess, 1e-9, high)))  # log a is at least about the root of 1e-14
    x = float((sigma * _share(np.log(a), L)) ** (1 / L))
    slopes = [
        1 + rate * ((L - 1) * sigma * y ** (L - 2) - (2 * L - 1) * y ** (2 * L - 2))
        for y in (x, a * x)
    ]
    return Orbit(sigma, L, x, a * x, slopes[0] * slopes[1], (2 - a) * (2 - 1 / a))


def first_doubling(target: float, depth: int, curvature: float = 1.0) -> float:
    """Return the learning rate at which the orbit of period two doubles its period (X-37).

    There the multiplier of two steps of the loss c(x^L − σ)² reaches −1. For L = 2 this is at
    2cησ = √5 − 1, where the ratio of the two values of the orbit is the golden ratio.

    Args:
        target: the target σ of the mode.
        depth: the number L of layers, at least 2.
        curvature: c, which is 1 for deeplin's risk with Σ̂ = I, and ½ for the loss ½(x^L − σ)².

    ```python
    import deeplin as dl
    rate = dl.theory.first_doubling(10.0, depth=3, curvature=0.5)
    assert abs(rate - 0.0385130) < 1e-7
    ```
    """
    L = whole_number("depth", depth, minimum=2)
    sigma = positive_number("target", target)
    critical = 1 / (L * sigma ** (2 - 2 / L) * positive_number("curvature", curvature))

    def excess(excess_rate: float) -> float:
        orbit = balanced_orbit(sigma, L, critical * (1 + excess_rate), curvature)
        return 2.0 if orbit is None else orbit.multiplier + 1  # the multiplier begins at 1

    high = 0.125
    while excess(high) > 0:
        high *= 2
    return critical * (1 + root(excess, 0.0, high))


def _share(u: float, L: int) -> float:
    """Return x^L/σ = (1 + a^{L−1})/(1 + a^{2L−1}), a = e^u."""
    return float(np.exp(np.logaddexp(0, (L - 1) * u) - np.logaddexp(0, (2 * L - 1) * u)))


def _scaled_rate(u: float, L: int) -> float:
    """Return η'σ^{2−2/L} = (a − 1)/((1 − s)s^{1−2/L}) with s = x^L/σ, without cancellation."""
    s = _share(u, L)
    rest = np.expm1(L * u) * np.exp((L - 1) * u - np.logaddexp(0, (2 * L - 1) * u))
    return float(np.expm1(u) / (rest * s ** (1 - 2 / L)))
