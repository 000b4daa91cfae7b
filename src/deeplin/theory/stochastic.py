"""Critical learning rates of mini-batch descent, at one minimizer and at the flattest (X-10)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator, eigsh

from deeplin.dynamics.optimizer import check_momentum
from deeplin.errors import InputError, whole_number
from deeplin.networks import Network
from deeplin.networks.network import check_fits, host_arrays
from deeplin.networks.products import backward_products, forward_products
from deeplin.problems import Problem
from deeplin.problems.problem import as_map
from deeplin.theory.architecture import architecture, padded
from deeplin.theory.minimizers import flattest_minimizer, flattest_network
from deeplin.theory.second_moment import DENSE, SecondMoment, TopMoment, noise_share

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
    network: Network,
    batch_size: int,
    *,
    momentum: float = 0.0,
    linearized: bool = False,
) -> StochasticSharpness:
    """Return S_B at an interpolating minimizer with one output (X-10).

    Batches are drawn without replacement.

    S_B(K) = max over symmetric N of 2[(p/n)Σ_i(x_iᵀNx_i)² + (1−p) tr Σ̂NΣ̂N]/tr(Σ̂NK^{-1}N), with
    p = (n−B)/(B(n−1)) and K = Σ_k‖v_k‖²A_kᵀA_k of the network. B = n gives the sharpness.

    Args:
        problem: the data, which a linear map interpolates.
        network: a linear network at a minimizer.
        batch_size: B; every step draws new rows.
        momentum: heavy-ball β, for which the result is also exact.
        linearized: allow R_min > 0. Descent at a constant rate then does not converge; the value
            gives the rate up to which the second moment of the linearized network stays bounded.

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
    kernel = _kernel(problem, network, problem.spectrum.vectors)
    if np.linalg.eigvalsh(kernel)[0] <= 0:
        raise InputError(
            "the product of this network does not move in every direction of the data: a layer is "
            "zero. Pass a minimizer without zero layers."
        )
    top = SecondMoment(_rows(problem), kernel, size, beta).top()
    return StochasticSharpness(top.value, top.upper, size, beta)


def stochastic_sharpness_bound(
    problem: Problem, network: Network, batch_size: int, *, weight_decay: float = 0.0
) -> float:
    """Return the bound S_B ≤ p (max_i S_i + 2λ) + (1−p)(S + 2λ), for any number of outputs.

    λ is the weight decay.

    S_i is the sharpness of sample i alone and S that of all, both of the network linearized here.
    As G_i ⪯ ½S_iI for the curvature ½G_i of one sample, ⟨N, G_iNG_i⟩ ≤ ½S_i tr G_iN²; sum over i
    and use p as in `stochastic_sharpness`. Up to 2 over the bound the second moment is stable.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    network = dl.theory.minimal_sharpness(problem, depth=3).minimizer
    exact = dl.theory.stochastic_sharpness(problem, network, batch_size=10).value
    assert exact <= dl.theory.bounds.stochastic_sharpness_bound(problem, network, batch_size=10)
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
    """Return S = 2 max over Z of Σ_k⟨Z, B_kB_kᵀZΣ̂^{1/2}A_kᵀA_kΣ̂^{1/2}⟩/‖Z‖² (X-1), by Lanczos."""
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
    """S_min(B), the least S_B of any minimizer, with a certified interval."""

    lower: float
    """No minimizer has a smaller S_B: certified by the cuts, to rounding."""
    exact: float
    """S_B of `minimizer`, the least value found."""
    upper: float
    """A certified upper bound of S_B of `minimizer`."""
    batch_size: int
    depth: int
    narrowest: Network = field(repr=False)
    """The minimizer that attains it: rank-one, aligned."""

    @property
    def critical_learning_rate(self) -> float:
        """2/S_min(B): above it the second moment grows at every minimizer."""
        return 2 / self.exact

    @cached_property
    def minimizer(self) -> Network:
        """`narrowest` with layers as wide as its inputs."""
        return padded(self.narrowest, None)


def minimal_stochastic_sharpness(
    problem: Problem,
    depth: int,
    batch_size: int,
    readout: ArrayLike | None = None,
    *,
    tolerance: float = 1e-7,
) -> MinimalStochasticSharpness:
    """Return S_min(B) = min over t of S_B(t²I + (L−1)(‖p‖/t)^{2/(L−1)}w*w*ᵀ), certified (X-10).

    It holds for one output and R_min = 0. `tolerance` is the requested relative width of [lower,
    exact].

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    s = dl.theory.minimal_stochastic_sharpness(problem, depth=3, batch_size=10)
    assert s.lower <= s.exact <= s.upper
    ```
    """
    size = _check(problem, batch_size, linearized=False)
    net = architecture(problem, depth, readout, "the minimal sharpness")
    L, norm = net.depth, net.norm
    full, t = flattest_minimizer(problem, net)
    if size == problem.samples:
        lower = value = upper = full
    elif L == 1:
        top = SecondMoment(_rows(problem), norm**2 * np.eye(problem.rank), size).top()
        lower, value, upper = top.value, top.value, top.upper
    else:
        eigenvalues, _, coordinates = problem.spectrum
        family = AlignedFamily(_rows(problem), eigenvalues, coordinates[:, 0], L, norm, size)
        lower, value, upper, tau = flattest(family, float(np.log(t)), tolerance)
        t = float(np.exp(tau))
    network = flattest_network(problem.optimum_columns, L, t, readout=net.readout)
    return MinimalStochasticSharpness(lower, value, upper, size, L, network)


def _check(problem: Problem, batch_size: int, linearized: bool) -> int:
    """Return B, or raise InputError if the result does not apply to this problem."""
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
    """Return the rows of X in the eigenbasis of Σ̂, (n, r).

    For other losses they are scaled by (φ_i''/2)^{1/2}.
    """
    rows = problem.curvature_rows("the threshold of mini-batch descent")
    return rows @ problem.spectrum.vectors


def _kernel(problem: Problem, network: Network, basis: np.ndarray) -> np.ndarray:
    """Return K = Σ_k‖v_k‖²A_kᵀA_k on the row space, for a network at a minimizer."""
    if network.batch is not None or network.activation != "linear":
        raise InputError("pass one linear network, without a batch axis.")
    check_fits(problem, network)
    weights, readout = host_arrays(network)
    product, *backward = backward_products(weights, readout)
    missed = float(problem.gap(as_map(product)))
    if not missed <= AT_MINIMUM**2 * problem.zero_gap:
        raise InputError(
            f"the network is not at a minimizer: its risk is {missed:.3g} above R_min. Train it "
            "further, or pass theory.minimal_sharpness(problem, depth).minimizer."
        )
    pairs = zip(backward, forward_products(weights, basis), strict=True)
    return np.sum([np.sum(v_k**2) * A_k.T @ A_k for v_k, A_k in pairs], axis=0)


MAX_MINIMIZERS = 60
"""Maximum number of minimizers evaluated in the search for the flattest one."""
SEARCH_CELLS, CELL_PARTS = 64, 4
"""Number of cells in the search for the lowest cut, and of the parts into which a cell is
divided."""

Cut = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class AlignedFamily:
    """The kernels K_t on the row space, among which the flattest minimizer is found (X-10).

    Every minimizer has K ⪰ K_t = t²I + (L−1)(‖p‖/t)^{2/(L−1)}w*w*ᵀ for some t > 0 (proof of X-2),
    S_B grows with K, and K_t is attained: S_min(B) = min over t of S_B(K_t). Any symmetric N gives
    a lower bound for all t at once, a cut,

        S_B(K_t) ≥ c t²/(A − κ(t)B),   c = 2⟨N, E(N)⟩, A = tr Σ̂N², B = ŵᵀNΣ̂Nŵ, κ = b/(1+b),

    b = (L−1)(‖p‖/t)^{2/(L−1)}‖w*‖²/t². In τ = log t the slope of the logarithm of a cut lies
    between −2/(L−1) and 2, so the least value of the highest cut is known from its values on a
    grid. No convexity is needed.
    """

    rows: Float[np.ndarray, "n r"]
    eigenvalues: Float[np.ndarray, " r"]
    coordinates: Float[np.ndarray, " r"]
    depth: int
    norm: float
    batch_size: int

    @cached_property
    def unscaled(self) -> SecondMoment:
        """The eigenvalue problem of K = I."""
        return SecondMoment(self.rows, np.eye(len(self.coordinates)), self.batch_size)

    def ratio(self, tau: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Return (L−1)(‖p‖/t)^{2/(L−1)}, the weight of w*w*ᵀ in K_t."""
        return (self.depth - 1) * (self.norm * np.exp(-tau)) ** (2 / (self.depth - 1))

    def kernel(self, tau: float) -> Float[np.ndarray, "r r"]:
        """Return K_t."""
        w, weight = self.coordinates, self.ratio(np.array([tau]))[0]
        return np.exp(2 * tau) * np.eye(len(w)) + weight * np.outer(w, w)

    def top(self, tau: float, start: np.ndarray | None = None) -> TopMoment:
        """Return S_B(K_t)."""
        return SecondMoment(self.rows, self.kernel(tau), self.batch_size).top(start)

    def cut(self, N: Float[np.ndarray, "r r"]) -> Cut:
        """Return c, A and B of the lower bound that N gives."""
        inside = self.unscaled.basis.T @ N @ self.unscaled.basis
        w = self.coordinates / np.linalg.norm(self.coordinates)
        top = float(np.sum(inside * self.unscaled.mean(inside)))
        whole = float(np.sum(self.eigenvalues[:, None] * N**2))
        return top, whole, float(self.eigenvalues @ (N @ w) ** 2)

    def heights(self, cuts: list[Cut], tau: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Return the logarithm of the highest cut at each τ."""
        c, A, B = np.array(cuts).T[..., None]
        b = self.ratio(tau) * float(np.sum(self.coordinates**2)) * np.exp(-2 * tau)
        # A − κB = (A − B) + B/(1+b), without cancellation where A = B
        return np.max(np.log(c) + 2 * tau - np.log((A - B) + B / (1 + b)), axis=0)


def flattest(
    family: AlignedFamily, guess: float, tolerance: float
) -> tuple[float, float, float, float]:
    """Return a lower bound of S_min(B), the value at the best t found, its upper bound, and log t.

    S_B(K_t) is evaluated where the highest cut is lowest, until both agree to `tolerance`.
    """
    w = family.coordinates / np.linalg.norm(family.coordinates)
    cuts = [family.cut(np.outer(w, w))]  # grows without bound for t → 0
    tau, best, lower = guess, None, -np.inf
    found = None
    for _ in range(MAX_MINIMIZERS):
        found = family.top(tau, None if found is None else found.moment)
        cuts.append(family.cut(found.moment))
        if best is None or found.value < best[0].value:
            best = found, tau
        low, high = _reach(family, cuts, np.log(best[0].value), tau)
        lower, tau = _lowest(family, cuts, low, high, tolerance / 4)
        if lower >= np.log(best[0].value) - tolerance:
            break
    assert best is not None
    top, at = best
    return min(float(np.exp(lower)), top.value), top.value, top.upper, at


def _reach(family: AlignedFamily, cuts: list[Cut], level: float, tau: float) -> tuple[float, float]:
    """Return an interval outside which the cuts are above this level."""
    ends = []
    for step in (-1.0, 1.0):
        # the first cut grows to the left and every cut to the right, at constant rates in the end
        while family.heights(cuts, np.array([tau + step]))[0] <= level:
            step *= 2
        ends.append(tau + step)
    return ends[0], ends[1]


def _lowest(
    family: AlignedFamily, cuts: list[Cut], low: float, high: float, tolerance: float
) -> tuple[float, float]:
    """Return a lower bound of the highest cut on [low, high], and about where it is lowest."""
    falling, rising = -2 / (family.depth - 1), 2.0  # between which the slopes of all cuts lie
    left = np.linspace(low, high, SEARCH_CELLS + 1)[:-1]
    width = (high - low) / SEARCH_CELLS
    lowest, at, settled = np.inf, low, np.inf
    while len(left):
        start, end = family.heights(cuts, left), family.heights(cuts, left + width)
        for values, points in ((start, left), (end, left + width)):
            if values.min() < lowest:
                lowest, at = float(values.min()), float(points[values.argmin()])
        meeting = np.clip((start - end + rising * width) / (rising - falling), 0, width)
        bounds = start + falling * meeting
        open_cells = bounds < lowest - tolerance
        settled = min(settled, float(bounds[~open_cells].min(initial=np.inf)))
        width /= CELL_PARTS
        left = (left[open_cells, None] + width * np.arange(CELL_PARTS)).reshape(-1)
    return min(settled, lowest), at
