"""How much curvature an optimiser bears: ηS at the edge of stability."""

from __future__ import annotations

from deeplin.checks import InputError, positive_number


def stability_limit(momentum: float = 0.0, *, nesterov: bool = False) -> float:
    """The largest ηS at which descent is stable at a minimum of sharpness S.

    2 for gradient descent. Heavy ball, x ← x − η∇ + β(x − x₋): z² − (1+β−ηS)z + β has its roots in
    the unit disk exactly for ηS ≤ 2+2β. Nesterov, ∇ taken at x + β(x − x₋): with c = 1−ηS the
    polynomial z² − (1+β)cz + βc asks for c ≥ −1/(1+2β), so ηS ≤ (2+2β)/(1+2β).

    ```python
    from deeplin.theory import stability_limit
    assert stability_limit(0.9) == 3.8 and stability_limit(0.9, nesterov=True) < 1.36
    ```
    """
    beta = check_momentum(momentum)
    return (2 + 2 * beta) / (1 + 2 * beta) if nesterov else 2 + 2 * beta


def check_momentum(momentum: float) -> float:
    """β, from 0 to below 1."""
    beta = positive_number("momentum", momentum, zero_allowed=True)
    if beta >= 1:
        raise InputError(f"momentum is {momentum}; pass a number from 0 to below 1.")
    return beta
