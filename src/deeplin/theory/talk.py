"""What the talk adds to the paper: residual form, and the contrast with logistic regression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deeplin.errors import finite_array, whole_number


def logistic_descent(
    inputs: np.ndarray, labels: np.ndarray, rates: Sequence[float], steps: int
) -> np.ndarray:
    """Final loss (1/n)Σ log(1 + exp(−y_i x_iᵀw)) of descent from zero, for each learning rate.

    Rates are multiples of 2/smoothness, smoothness = λ_max(XᵀX/n)/4: above 1 the convex theory
    gives no guarantee, yet on separable data the loss goes to zero for every rate (Talk-log).

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(20, 3))
    loss = dl.theory.logistic_descent(X, np.sign(X[:, 0]), rates=(1.0, 30.0), steps=500)
    assert (loss < np.log(2)).all()
    ```
    """
    X = finite_array("inputs", inputs, (2,))
    y = finite_array("labels", labels, (1,))
    signed = X * y[:, None]
    smoothness = np.linalg.norm(X, 2) ** 2 / (4 * len(X))
    eta = 2 * np.asarray(rates, dtype=np.float64) / smoothness
    w = np.zeros((X.shape[1], len(eta)))
    for _ in range(whole_number("steps", steps)):
        margin = signed @ w
        # 1/(1 + e^m) without overflow for large margins
        w += eta * (signed.T @ np.exp(-np.logaddexp(0, margin))) / len(X)
    return np.mean(np.logaddexp(0, -(signed @ w)), axis=0)
