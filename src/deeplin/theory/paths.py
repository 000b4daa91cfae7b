"""Parallel paths, f(x) = Σ_h p_hᵀW_L^{(h)}…W_1^{(h)}x: how flat their minimizers can be (X-22)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from deeplin.errors import InputError, finite_array, whole_number
from deeplin.problems import Problem
from deeplin.theory.flattest_minimizer import minimal_sharpness
from deeplin.theory.secular import largest_eigenvalue_of_update, root
from deeplin.validation import validated


@validated
def parallel_sharpness(problem: Problem, depth: int | Sequence[int], paths: ArrayLike) -> float:
    """S_min of networks with parallel paths, any data (X-22).

    One output, any convex loss: that of one path with ‖p‖² = (Σ_h‖p_h‖^{−2/(L−2)})^{−(L−2)}, the
    smallest ‖p_h‖ for L = 2. Several outputs and squared loss: m^{2/L−1} times that of one path.
    For L = 2 nothing is gained by more paths, for any loss.

    Arguments:
        depth: the depth of all paths, or one for each.
        paths: the number of paths, all with ‖p_h‖ = 1, or the norms ‖p_h‖.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    one, four = (dl.theory.parallel_sharpness(problem, 4, m) for m in (1, 4))
    assert np.isclose(four, one / 2)
    ```
    """
    if isinstance(depth, Sequence):
        depths = np.array([whole_number("depth", L) for L in depth])
        norms = path_norms(paths, len(depths))
        if len(set(depths)) > 1:
            return _of_different_depths(problem, depths[norms > 0], norms[norms > 0])
        depth = int(depths[0])
    L, norms = whole_number("depth", depth), path_norms(paths)
    if problem.outputs == 1:
        return minimal_sharpness(problem, L, [effective_norm(norms, L)]).exact
    if np.any(norms != 1):
        raise InputError(
            f"the paths have read-outs of norms {norms.tolist()}; networks with several outputs "
            "have none. Pass the number of paths."
        )
    if L > 2:
        problem.require_squared_loss("the sharpness of parallel paths with several outputs")
    return len(norms) ** (2 / L - 1) * minimal_sharpness(problem, L).exact


def path_norms(paths: ArrayLike, count: int | None = None) -> Float[np.ndarray, " m"]:
    """‖p_h‖ of each path; `count` ones where only their number is given."""
    if np.ndim(paths) == 0:
        m = whole_number("paths", paths)
        if count is not None and m not in (1, count):
            raise InputError(f"paths is {m} for {count} depths; pass one norm for each depth.")
        return np.ones(count or m)
    norms = finite_array("paths", paths, (1,))
    if norms.min() < 0 or norms.max() == 0 or (count is not None and len(norms) != count):
        raise InputError(
            f"paths is {norms.tolist()}; pass their number, or one norm ‖p_h‖ of at least 0 for "
            "each of them, not all 0."
        )
    return norms


def effective_norm(norms: Float[np.ndarray, " m"], depth: int) -> float:
    """‖p‖ of the one path that has the same S_min; a path with p_h = 0 does not count."""
    used = norms[norms > 0]
    if depth == 1:
        return float(np.linalg.norm(used))  # the paths add up to one layer
    if depth == 2:
        return float(used.min())
    power = 2 / (depth - 2)
    return float(np.exp(-float(logsumexp(-power * np.log(used))) / power))  # pyright: ignore


def _of_different_depths(
    problem: Problem, depths: Int[np.ndarray, " m"], norms: Float[np.ndarray, " m"]
) -> float:
    """The least λ_max(H^{1/2}[Σt_h² I + w*w*ᵀ/g]H^{1/2}), g = Σ_h(t_h/‖p_h‖)^{2/(L_h−1)}/(L_h−1).

    For a given T = Σt_h² the sum g is concave in the t_h², and its maximum is where its derivatives
    are equal. A path of one layer has t_h = ‖p_h‖ and K ⪰ ‖p_h‖²I, which is attained.
    """
    problem.require_single_target("the sharpness of paths of different depths")
    problem.require_signal("the sharpness of paths of different depths")
    if np.any(depths == 1):
        return 2 * problem.largest_eigenvalue * float(np.sum(norms[depths == 1] ** 2))
    levels, squares = 2 * problem.spectrum.eigenvalues, problem.spectrum.coordinates[:, 0] ** 2
    power = 1 / (depths - 1)

    def shares(log_price: float) -> np.ndarray:
        """t_h² where the derivatives of g are the price; two layers take all at theirs."""
        deep = depths > 2
        logs = np.full(len(depths), -np.inf)
        rate = 2 * np.log(power[deep]) - 2 * power[deep] * np.log(norms[deep])
        logs[deep] = (rate - log_price) / (1 - power[deep])
        return np.exp(logs)

    shallow = -2 * np.log(norms[depths == 2].min()) if np.any(depths == 2) else -np.inf

    def best(log_total: float) -> float:
        total = np.exp(log_total)
        given = np.zeros(len(depths))
        if np.any(depths > 2):
            low, high = log_total - 1.0, log_total + 1.0
            while np.sum(shares(low)) < total:
                low -= 5.0
            while np.sum(shares(high)) > total:
                high += 5.0
            price = root(lambda x: np.log(np.sum(shares(x))) - log_total, low, high)
            given = shares(max(price, shallow))
        gained = np.sum((given / norms**2) ** power * power)
        if np.isfinite(shallow):
            gained += max(total - np.sum(given), 0.0) * np.exp(shallow)
        return largest_eigenvalue_of_update(total * levels, levels * squares / gained)

    from scipy.optimize import minimize_scalar

    start = 2 * np.log(problem.optimum_norm)
    found = minimize_scalar(
        lambda x: np.log(best(x)), bracket=(start - 1, start + 1), options={"xtol": 1e-10}
    )
    return float(np.exp(found.fun))  # pyright: ignore[reportAttributeAccessIssue]
