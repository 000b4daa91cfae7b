"""Sharpness-aware minimization: the largest stable rate, and where it can settle (X-23)."""

from __future__ import annotations

import numpy as np

from deeplin.errors import positive_number


def effective_sharpness(sharpness: float, radius: float) -> float:
    """S(1 + ρS): what SAM, θ ← θ − η∇R(θ + ρ∇R(θ)), has in the place of S.

    At a minimizer its Jacobian is I − ηA(I + ρA) with A = ∇²R ⪰ 0, and λ(1 + ρλ) increases. (With
    the perturbation divided by its norm the map is not differentiable at a minimizer, and no rate
    makes it settle: along one quadratic mode it ends in a cycle of two points.)
    """
    return sharpness * (1 + radius * sharpness)


def sam_sharpness_limit(learning_rate: float, sam_radius: float) -> float:
    """The largest sharpness S at which SAM is stable: 4/(η(1 + √(1 + 8ρ/η))) (X-23).

    The root of ηS(1 + ρS) = 2, without cancellation; 2/η for ρ = 0.

    ```python
    from deeplin.theory import sam_sharpness_limit
    assert sam_sharpness_limit(0.1, 0.0) == 20 and sam_sharpness_limit(0.1, 0.05) < 20
    ```
    """
    eta = positive_number("learning_rate", learning_rate)
    rho = positive_number("sam_radius", sam_radius, zero_allowed=True)
    return float(4 / (eta * (1 + np.sqrt(1 + 8 * rho / eta))))
