"""Learning rates at which mini-batch descent settles: at one minimizer, and at best (X-10)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.dynamics.update import check_momentum
from deeplin.errors import InputError, finite_array, whole_number
from deeplin.networks import Network, check_fits, host_arrays
from deeplin.networks.products import backward_products, forward_products
from deeplin.problems import Problem
from deeplin.theory.flattest_minimizer import flattest_network, minimal_sharpness
from deeplin.theory.second_moment import (
    DENSE,
    AlignedFamily,
    SecondMoment,
    flattest,
    noise_share,
)

INTERPOLATES = 1e-8
"""‖residual‖/‖y‖ up to which the data count as interpolated."""


AT_MINIMUM = 1e-6
"""‖X(w − w*)‖/‖y‖ up to which a network counts as a minimizer."""


@dataclass(frozen=True)
class StochasticSharpness:
    """S_B(K): the second moment of mini-batch descent is stable exactly up to (2+2β)/S_B."""

    value: float
    upper: float
    """An upper bound of S_B(K); `value` is a lower bound."""
    batch_size: int
    momentum: float

    @property
    def critical_learning_rate(self) -> float:
        """(2+2β)/S_B."""
        return (2 + 2 * self.momentum) / self.value


def stochastic_sharpness(
    problem: Problem,
    network: Network | Any,
    batch_size: int,
    *,
    momentum: float = 0.0,
    linearized: bool = False,
) -> StochasticSharpness:
    """S_B at an interpolating minimizer, one output, batches drawn without replacement (X-10).

    S_B(K) = max over symmetric N of 2[(p/n)Σ_i(x_iᵀNx_i)² + (1−p) tr Σ̂NΣ̂N]/tr(Σ̂NK^{-1}N), with
    p = (n−B)/(B(n−1)) and K = Σ_k‖v_k‖²A_kᵀA_k of the network. B = n gives the sharpness.

    Arguments:
        network: a linear network at a minimizer, or K itself (d×d).
        batch_size: B; every step draws its rows afresh.
        momentum: heavy-ball β, also exact.
        linearized: allow R_min > 0. Descent at a constant rate then does not settle; the value
            says up to which rate the second moment of the network linearised here stays bounded.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    network = dl.theory.minimal_sharpness(problem, depth=3).minimizer
    s = dl.theory.stochastic_sharpness(problem, network, batch_size=10)
    assert s.value > dl.sharpness(problem, network).value
    ```
    """
    size = _check(problem, batch_size, linearized)
    beta = check_momentum(momentum)
    basis = problem.spectrum.vectors
    if isinstance(network, Network):
        kernel = _kernel(problem, network, basis)
    else:
        given = finite_array("K", network, (2,))
        if given.shape != (problem.dimension,) * 2:
            raise InputError(
                f"K has shape {given.shape}; pass a network, or K = JJᵀ of shape "
                f"({problem.dimension}, {problem.dimension})."
            )
        kernel = basis.T @ (given + given.T) @ basis / 2
    if np.linalg.eigvalsh(kernel)[0] <= 0:
        raise InputError("K is not positive definite on the data; pass K = JJᵀ of a minimizer.")
    top = SecondMoment(_rows(problem), kernel, size, beta).top()
    return StochasticSharpness(top.value, top.upper, size, beta)


def stochastic_sharpness_bound(
    problem: Problem, network: Network, batch_size: int, *, weight_decay: float = 0.0
) -> float:
    """S_B ≤ p (max_i S_i + 2λ) + (1−p)(S + 2λ): for any number of outputs, with weight decay λ.

    S_i is the sharpness of sample i alone and S that of all, both of the network linearised here.
    As G_i ⪯ ½S_iI for the curvature ½G_i of one sample, ⟨N, G_iNG_i⟩ ≤ ½S_i tr G_iN²; sum over i
    and use p as in `stochastic_sharpness`. Up to 2 over the bound the second moment is stable.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    network = dl.theory.minimal_sharpness(problem, depth=3).minimizer
    exact = dl.theory.stochastic_sharpness(problem, network, batch_size=10).value
    assert exact <= dl.theory.stochastic_sharpness_bound(problem, network, batch_size=10)
    ```
    """
    inputs = problem.curvature_rows("the threshold of mini-batch descent")
    share = noise_share(problem.samples, whole_number("batch_size", batch_size))
    weights, readout = host_arrays(network)
    _, *backward = backward_products(weights, readout)
    grams = [V.T @ V for V in backward]
    powers = [np.sum(signal**2, axis=0) for signal in forward_products(weights, inputs.T)]
    single = 2 * np.linalg.eigvalsh(np.einsum("kn,kpq->npq", np.array(powers), np.array(grams)))
    whole = _linearized(problem, weights, grams)
    return share * float(single[:, -1].max()) + (1 - share) * whole + 2 * weight_decay


def _linearized(problem: Problem, weights: list[np.ndarray], grams: list[np.ndarray]) -> float:
    """S = 2 max over Z of Σ_k⟨Z, B_kB_kᵀZΣ̂^{1/2}A_kᵀA_kΣ̂^{1/2}⟩/‖Z‖² (X-1), by Lanczos."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    eigenvalues, vectors, _ = problem.spectrum
    roots = [A * np.sqrt(eigenvalues) for A in forward_products(weights, vectors)]
    inner = [root.T @ root for root in roots]
    shape = len(grams[0]), len(eigenvalues)
    size = shape[0] * shape[1]

    def product(flat: np.ndarray) -> np.ndarray:
        Z = flat.reshape(shape)
        terms = [G @ Z @ M for G, M in zip(grams, inner, strict=True)]
        return 2 * np.sum(terms, axis=0).reshape(-1)

    if size <= DENSE**2:
        return float(np.linalg.eigvalsh(np.array([product(row) for row in np.eye(size)]))[-1])
    operator = LinearOperator((size, size), matvec=product, dtype=np.float64)  # pyright: ignore[reportCallIssue]
    top = eigsh(operator, k=1, which="LA", return_eigenvectors=False, v0=np.ones(size))
    return float(top[0])


@dataclass(frozen=True)
class MinimalStochasticSharpness:
    """S_min(B), the least S_B of any minimizer, inside a certified interval."""

    lower: float
    """No minimizer has a smaller S_B: certified by the cuts, to rounding."""
    exact: float
    """S_B of `minimizer`, the least value found."""
    upper: float
    """A certified upper bound of S_B of `minimizer`."""
    batch_size: int
    depth: int
    suffix_norm: float
    """t = ‖W_2ᵀ…W_Lᵀp‖ of the minimizer that attains it."""
    optimum: Float[np.ndarray, "d 1"] = field(repr=False)
    readout: Float[np.ndarray, " m"] | None = field(repr=False)

    @property
    def critical_learning_rate(self) -> float:
        """2/S_min(B): above it the second moment grows at every minimizer."""
        return 2 / self.exact

    @cached_property
    def minimizer(self) -> Network:
        """The network that attains it: rank-one, aligned."""
        return flattest_network(self.optimum, self.depth, self.suffix_norm, readout=self.readout)


def minimal_stochastic_sharpness(
    problem: Problem,
    depth: int,
    batch_size: int,
    readout: ArrayLike | None = None,
    *,
    tolerance: float = 1e-7,
) -> MinimalStochasticSharpness:
    """S_min(B) = min over t of S_B(t²I + (L−1)(‖p‖/t)^{2/(L−1)}w*w*ᵀ), certified (X-10).

    One output and R_min = 0. `tolerance` is the relative width wanted of [lower, exact].

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    s = dl.theory.minimal_stochastic_sharpness(problem, depth=3, batch_size=10)
    assert s.lower <= s.exact <= s.upper
    ```
    """
    size = _check(problem, batch_size, linearized=False)
    full = minimal_sharpness(problem, depth, readout)
    L, t = full.depth, full.suffix_norm
    norm = 1.0 if full.readout is None else float(np.linalg.norm(full.readout))
    if size == problem.samples:
        lower = value = upper = full.exact
    elif L == 1:
        top = SecondMoment(_rows(problem), norm**2 * np.eye(problem.rank), size).top()
        lower, value, upper = top.value, top.value, top.upper
    else:
        eigenvalues, _, coordinates = problem.spectrum
        family = AlignedFamily(_rows(problem), eigenvalues, coordinates[:, 0], L, norm, size)
        lower, value, upper, tau = flattest(family, float(np.log(t)), tolerance)
        t = float(np.exp(tau))
    return MinimalStochasticSharpness(
        lower, value, upper, size, L, t, problem.optimum.reshape(-1, 1), full.readout
    )


def _check(problem: Problem, batch_size: int, linearized: bool) -> int:
    """B, if the result speaks about this problem."""
    problem.require_single_target("the threshold of mini-batch descent")
    problem.require_signal("the threshold of mini-batch descent")
    problem.require_data("the threshold of mini-batch descent")
    size = whole_number("batch_size", batch_size)
    if size > problem.samples:
        raise InputError(
            f"batch_size is {size} and there are {problem.samples} samples; pass at most that."
        )
    missed = problem.residual_share
    if size < problem.samples and missed > INTERPOLATES**2 and not linearized:
        squared = problem.loss == "squared"
        why = f"R_min is {problem.minimal_risk:.3g}, not 0" if squared else "some φ_i' is not 0"
        raise InputError(
            f"mini-batch descent at a constant rate does not settle here: {why} at the optimum, "
            "so batches keep pushing at every minimizer. Pass "
            "batch_size=None for the full batch, or linearized=True to stochastic_sharpness "
            "for the rate up to which the second moment stays bounded near one minimizer."
        )
    return size


def _rows(problem: Problem) -> np.ndarray:
    """The rows of X in the eigenbasis of Σ̂, (n, r); scaled by (φ_i''/2)^{1/2} for other losses."""
    rows = problem.curvature_rows("the threshold of mini-batch descent")
    return rows @ problem.spectrum.vectors


def _kernel(problem: Problem, network: Network, basis: np.ndarray) -> np.ndarray:
    """K = Σ_k‖v_k‖²A_kᵀA_k on the row space, for a network at a minimizer."""
    if network.batch is not None or network.activation != "linear":
        raise InputError("pass one linear network, without a batch axis.")
    check_fits(problem, network)
    weights, readout = host_arrays(network)
    product, *backward = backward_products(weights, readout)
    missed = float(problem.gap(product))
    if not missed <= AT_MINIMUM**2 * problem.zero_gap:
        raise InputError(
            f"the network is not at a minimizer: its risk is {missed:.3g} above R_min. Train it "
            "further, or pass theory.minimal_sharpness(problem, depth).minimizer."
        )
    pairs = zip(backward, forward_products(weights, basis), strict=True)
    return np.sum([np.sum(v_k**2) * A_k.T @ A_k for v_k, A_k in pairs], axis=0)
