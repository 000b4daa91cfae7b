"""Adam and RMSProp at a constant rate: where they can settle (X-24)."""

from __future__ import annotations

from numpy.typing import ArrayLike

from deeplin.errors import InputError, positive_number
from deeplin.problems import Problem
from deeplin.theory.flattest_minimizer import minimal_sharpness
from deeplin.validation import validated


@validated
def adam_critical_learning_rate(
    problem: Problem,
    depth: int,
    readout: ArrayLike | None = None,
    *,
    beta1: float = 0.9,
    epsilon: float = 1e-8,
) -> float:
    """ε(2+2β₁)/((1−β₁)S_min): above it full-batch Adam settles in no minimizer (X-24).

    At a minimizer m and √ν are of first order in the deviation, so m/(√ν + ε) = m/ε up to second
    order: the late steps are those of heavy-ball descent with averaged gradients at rate η/ε, and
    β₂ does not enter. `beta1=0` is RMSProp. With the usual ε = 1e-8 no usual rate is below it: Adam
    comes close, is thrown out, and returns. Any convex loss; almost every start; ε stands outside
    the root.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    assert dl.theory.adam_critical_learning_rate(problem, depth=3) < 1e-6
    ```
    """
    beta = positive_number("beta1", beta1, zero_allowed=True)
    if beta >= 1:
        raise InputError(f"beta1 is {beta:g}; pass a number from 0 to below 1.")
    small = positive_number("epsilon", epsilon)
    exact = minimal_sharpness(problem, depth, readout).exact
    return small * (2 + 2 * beta) / ((1 - beta) * exact)
