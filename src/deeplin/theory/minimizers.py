"""Flattest and balanced minimizers (FM Section 3; X-2, X-3, X-7, X-8, X-18).

This module has the flattest minimizer, with the bracket of FM-T2 and its exact value; the balanced
minimizer, to which small initializations converge; the minimizer of smallest trace; and brackets of
the first two that are best possible for given Λ, a and L. For white data the minimal sharpness is
due to Mulayoff & Michaeli 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.errors import InputError, finite_array, validated, whole_number
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.theory.architecture import (
    Architecture,
    aligned_network,
    architecture,
    largest_eigenvalue_of_update,
    numerical_rank,
    readout_norm,
    root,
    stability_limit,
)
from deeplin.theory.softmax import Program, Solution, balanced_curvature, minimizer_of


@dataclass(frozen=True)
class MinimalSharpness:
    """The smallest sharpness of any minimizer: bracketed (FM-T2), exact (X-2, X-7), attained."""

    lower: float
    """2σ_1^{2−2/L}‖p‖^{2/L}L a with a = v_1ᵀΣ̂v_1, σ_1 and v_1 the first singular value and vector
    of Θ*. For one output the lower bound printed as FM-T2; for several its extension (X-7)."""
    exact: float
    """S_min (X-2, X-7)."""
    upper: float
    """2‖w*‖^{2−2/L}‖p‖^{2/L} sqrt((2L−1)Λ² + (L−1)²a²), the upper bound printed as FM-T2, for one
    output; for several 2σ_1^{2−2/L}(Λ + (L−1)λ_max(Θ*Σ̂Θ*ᵀ)/σ_1²) (X-7)."""
    outputs: int
    """Number of outputs q; the bracket is printed in FM for one output only."""
    depth: int
    suffix_norm: float
    """t: the norm of W_L…W_2 (with p) at the flattest minimizer, which is t times an isometry."""
    optimum: Float[np.ndarray, "d q"] = field(repr=False)
    readout: Float[np.ndarray, " m"] | None = field(repr=False)
    program: tuple[Program, Solution] | None = field(default=None, repr=False)
    """Softmax (X-17): the program and its solution. `lower` is then a certificate, `upper` the
    bound by a Kronecker product, and `suffix_norm` NaN."""

    def critical_learning_rate(self, momentum: float = 0.0, *, nesterov: bool = False) -> float:
        """Return 2/S_min, or (2+2β)/S_min with momentum β, above which no minimizer is stable."""
        return stability_limit(momentum, nesterov=nesterov) / self.exact

    @property
    def printed_critical_learning_rate(self) -> float:
        """1/(‖w*‖^{2−2/L}‖p‖^{2/L} L a), the approximation of FM-crit: 2 over the lower bound."""
        return 2 / self.lower

    @cached_property
    def minimizer(self) -> Network:
        """The flattest minimizer, as wide as its inputs in every layer."""
        return self.attaining()

    def attaining(self, hidden: int | None = None, rates: ArrayLike | None = None) -> Network:
        """Return the flattest minimizer with layers of width `hidden` (at least the rank of Θ*).

        With `rates` η_1 … η_L of geometric mean g: the one whose Hessian, each layer multiplied by
        its rate, has the smallest largest eigenvalue; its layers are √(η_k/g) times as large, with
        the same product (X-11).
        """
        if self.program is not None:
            network = minimizer_of(self.program[0], self.program[1].factors, hidden)
        else:
            network = flattest_network(
                self.optimum, self.depth, self.suffix_norm, hidden=hidden, readout=self.readout
            )
        if rates is None:
            return network
        given = layer_rates(rates, self.depth)
        scales = np.sqrt(given / geometric_mean(given))
        scaled = [scale * np.asarray(w) for scale, w in zip(scales, network.weights, strict=True)]
        return Network(scaled, self.readout)


@validated
def minimal_sharpness(
    problem: Problem, depth: int, readout: ArrayLike | None = None
) -> MinimalSharpness:
    """Return S_min, the smallest sharpness of a minimizer of depth L, for any data (X-2, X-7).

    FM-T2 bounds it.

    S_min = min over t > 0 of 2λ_max(Σ̂^{1/2}[t² I + (L−1)(‖p‖/t)^{2/(L−1)} Θ*ᵀΘ*]Σ̂^{1/2}), for any
    number of outputs and hidden layers at least as wide as the rank of Θ*.

    For any other convex loss of one output H/2 takes the place of Σ̂ (X-14). For softmax it is a
    geodesically convex program, with its dual as `lower` for two layers (X-17).

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, :2])
    flattest = dl.theory.minimal_sharpness(problem, depth=10)
    assert flattest.lower <= flattest.exact <= flattest.upper
    ```
    """
    net = architecture(problem, depth, readout, "the minimal sharpness")
    if isinstance(problem, GeneralizedLinearProblem) and problem.outputs > 1:
        return _of_softmax(problem, net)
    exact, t = _flattest(problem, net)
    lower, upper = _bracket(problem, net)
    return MinimalSharpness(
        lower=lower,
        exact=exact,
        upper=upper,
        outputs=problem.outputs,
        depth=net.depth,
        suffix_norm=t,
        optimum=problem.optimum.reshape(problem.dimension, -1),
        readout=net.readout,
    )


@validated
def minimizer_lower_bound(
    problem: Problem,
    layer_norms: ArrayLike,
    readout: ArrayLike | None = None,
    *,
    depth: int | None = None,
) -> np.ndarray:
    """Return 2a‖w*‖^{2−1/L}‖p‖^{1/L} Σ_k 1/‖W_k‖_F, a lower bound of the sharpness (FM-T2, E-8).

    `layer_norms` holds ‖W_k‖_F along its last axis; other axes are a batch of minimizers. The
    norms of some layers alone give a smaller bound (FM-rescale); pass the `depth` L then.
    """
    problem.require_single_target("this bound")
    norms = np.asarray(layer_norms, dtype=np.float64)
    net = architecture(problem, depth or norms.shape[-1], readout, "the minimal sharpness")
    power = 1 / net.depth
    scale = 2 * problem.alignment * problem.optimum_norm ** (2 - power) * net.norm**power
    with np.errstate(divide="ignore"):  # no minimizer has a zero layer, so any bound holds
        return scale * np.sum(1 / norms, axis=-1)


def flattest_network(
    optimum: Float[np.ndarray, "d q"],
    depth: int,
    suffix_norm: float,
    *,
    hidden: int | None = None,
    readout: Float[np.ndarray, " m"] | None = None,
) -> Network:
    """Return W_1 = UᵀΘ*/t, and W_2 … W_L partial isometries of equal norm with product tU (X-7)."""
    right, values, left = np.linalg.svd(optimum, full_matrices=False)
    rank = numerical_rank(values, max(optimum.shape))
    size = (suffix_norm / readout_norm(readout)) ** (1 / (depth - 1)) if depth > 1 else 1.0
    first = values[:rank, None] * right[:, :rank].T / suffix_norm
    width = hidden or len(optimum)
    return aligned_network(first, size, size * left[:rank].T, depth, width, readout)


def layer_rates(rates: ArrayLike, depth: int | None = None) -> Float[np.ndarray, " L"]:
    """Return one learning rate above zero for each layer."""
    given = finite_array("rates", rates, (1,))
    if given.min() <= 0 or (depth is not None and len(given) != depth):
        wanted = "one learning rate above 0 for each layer"
        raise InputError(f"rates are {given.tolist()}; pass {wanted}, first layer first.")
    return given


def geometric_mean(rates: Float[np.ndarray, " L"]) -> float:
    """Return (η_1⋯η_L)^{1/L}."""
    return float(np.exp(np.mean(np.log(rates))))


def _bracket(problem: Problem, net: Architecture) -> tuple[float, float]:
    """Return the bounds of FM-T2 for one output, or their extension to several."""
    L = net.depth
    eigenvalues, _, coordinates = problem.spectrum
    left, values, _ = np.linalg.svd(coordinates, full_matrices=False)
    size, Lambda = float(values[0]), problem.largest_eigenvalue
    unit = 2 * size ** (2 - 2 / L) * net.norm ** (2 / L)
    a = float(eigenvalues @ left[:, 0] ** 2)
    if problem.outputs == 1:
        upper = unit * float(np.hypot(np.sqrt(2 * L - 1) * Lambda, (L - 1) * a))
    else:
        columns = np.sqrt(eigenvalues)[:, None] * left * values / size
        upper = unit * (Lambda + (L - 1) * float(np.linalg.norm(columns, ord=2)) ** 2)
    return unit * L * a, upper


def _of_softmax(problem: GeneralizedLinearProblem, net: Architecture) -> MinimalSharpness:
    """Return S_min from the program of X-17, between the bounds that do not need it."""
    L, program = net.depth, Program.of(problem)
    found = program.solve(L)
    G, smallest, largest = program.scalar_bounds()
    cross = G @ program.theta.T
    alone = Problem.from_moments(G / 2, cross / 2, program.theta @ cross / 2, problem.samples)
    scale = _flattest(alone, net)[0]
    exact = float(found.values[-1])
    lower = program.dual(found.rho) if L == 2 else program.product_bound(L, found.rho)
    return MinimalSharpness(
        lower=min(exact, max(lower, smallest * scale)),  # they meet to rounding
        exact=exact,
        upper=max(exact, largest * scale),
        outputs=problem.outputs,
        depth=L,
        suffix_norm=float("nan"),
        optimum=problem.optimum,
        readout=None,
        program=(program, found),
    )


def _flattest(problem: Problem, net: Architecture) -> tuple[float, float]:
    """Return S_min and the t that attains it.

    An eigenvalue of D + BBᵀ is at most S exactly when those of Bᵀ(S − D)^{-1}B are at most one, so
    with v = 2t²/S the two nested searches become one over v ∈ (0, 1/Λ]:
    S_min^{L/(L−1)} = min over v of 2(L−1)(2‖p‖²/v)^{1/(L−1)} λ_max(Q(v)), Q = Θ*Σ̂(I − vΣ̂)^{-1}Θ*ᵀ.
    Its logarithm is convex in log v, and the optimum is where v x'Q'x/x'Qx passes 1/(L−1), x the
    top eigenvector. Searched in log h, h = 1 − vΛ; where Θ* has no part along the top eigenvectors
    of Σ̂ the quotient stays bounded, and the optimum can sit at the end h = 0.
    """
    L, Lambda = net.depth, problem.largest_eigenvalue
    if L == 1:
        return 2 * net.norm**2 * Lambda, net.norm
    ell, columns = _signal(problem)
    below = 1 - ell

    def moments(h: float) -> tuple[float, float]:
        """Return λ_max(Q) and v x'Q'x, up to the common factor Λ."""
        weights = ell / (below + h * ell)
        top, x = _top(columns.T * weights @ columns)
        return top, float((columns @ x) ** 2 @ (weights**2)) * (1 - h)

    def slope(log_h: float) -> float:
        top, derivative = moments(np.exp(log_h))
        return (L - 1) * derivative / top - 1

    end = np.log(1e-60)
    h = float(np.exp(root(slope, end, 0.0))) if slope(end) > 0 else 0.0
    top, _ = moments(h)
    v = (1 - h) / Lambda
    power = np.log(2 * (L - 1) * Lambda * top) + np.log(2 * net.norm**2 / v) / (L - 1)
    exact = float(np.exp(power * (L - 1) / L))
    return exact, float(np.sqrt(v * exact / 2))


def _signal(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return ℓ_i/Λ and the coordinates of Θ*, (r, rank), up to a rotation of the outputs.

    Parts of Θ* below rounding change S_min by less than rounding, but would stall the search, so
    they are removed.
    """
    eigenvalues, _, coordinates = problem.spectrum
    if problem.outputs > 1:
        left, values, _ = np.linalg.svd(coordinates, full_matrices=False)
        rank = numerical_rank(values, max(coordinates.shape))
        coordinates = left[:, :rank] * values[:rank]
    sizes = np.linalg.norm(coordinates, axis=1)
    share = sizes > np.finfo(float).eps * problem.optimum_norm
    return eigenvalues[share] / eigenvalues[0], coordinates[share]


def _top(matrix: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the largest eigenvalue and its eigenvector."""
    if len(matrix) == 1:
        return float(matrix[0, 0]), np.ones(1)
    values, vectors = np.linalg.eigh(matrix)
    return float(values[-1]), vectors[:, -1]


@validated
def balanced_network(problem: Problem, depth: int, width: int | None = None) -> Network:
    """Return the balanced minimizer, W_k = S^{1/L} between aligned bases, for Θ*ᵀ = U S Vᵀ.

    W_{k+1}ᵀW_{k+1} = W_kW_kᵀ for every k, and its product is the solution of minimal norm. For one
    target this is the rank-one aligned network of X-3.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.theory.minimizers import balanced_network
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, :2])
    assert balanced_network(problem, depth=3).widths == (5, 5, 5, 2)
    ```
    """
    return balanced_factors(problem.optimum.reshape(problem.dimension, -1), depth, width)


def balanced_factors(
    product: Float[np.ndarray, "d q"],
    depth: int,
    width: int | None = None,
    readout: Float[np.ndarray, " m"] | None = None,
) -> Network:
    """Return L layers of equal singular values with this product and the least Σ‖W_k‖_F² (X-9)."""
    L = whole_number("depth", depth)
    right, values, left = np.linalg.svd(product / readout_norm(readout), full_matrices=False)
    rank = numerical_rank(values, max(product.shape))
    hidden = max(product.shape) if width is None else width
    share = values[:rank] ** (1 / L)
    first, last = share[:, None] * right[:, :rank].T, left[:rank].T
    return aligned_network(first, share, last * share if L > 1 else last, L, hidden, readout)


@validated
def balanced_sharpness(problem: Problem, depth: int, readout: ArrayLike | None = None) -> float:
    """Return S_bal, the sharpness at the end of the flow from a vanishing initialization (X-3).

    One target: λ_max(2‖w*‖^{2−2/L}‖p‖^{2/L}(Σ̂ + (L−1)Σ̂^{1/2}ŵŵᵀΣ̂^{1/2})), ŵ = w*/‖w*‖. For several
    the Hessian at balanced weights acts on D (d×q) as D ↦ 2 Σ_k (ΘΘᵀ)^{(k−1)/L} Σ̂ D (ΘᵀΘ)^{(L−k)/L}
    (X-1), which falls apart along the right singular vectors of Θ: for each singular value s_j,
    λ_max(2 Σ̂^{1/2} [Σ_k s_j^{2(L−k)/L} (ΘΘᵀ)^{(k−1)/L}] Σ̂^{1/2}). Other convex losses have H/2 in
    the place of Σ̂ (X-14, X-17), at the minimizer of least norm.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    assert dl.theory.balanced_sharpness(problem, 3) >= dl.theory.minimal_sharpness(problem, 3).exact
    ```
    """
    net = architecture(problem, depth, readout, "the balanced sharpness")
    if isinstance(problem, GeneralizedLinearProblem) and problem.outputs > 1:
        curvature = balanced_curvature(Program.of(problem), net.depth)
        return float(np.linalg.eigvalsh(curvature)[-1])
    if problem.outputs > 1:
        eigenvalues, _, coordinates = problem.spectrum
        return max(_of_singular_values(eigenvalues, coordinates, net.depth))
    alone = balanced_sharpness_at(problem, problem.optimum.reshape(1, -1), net.depth)
    return net.norm ** (2 / net.depth) * float(alone[0])


def balanced_sharpness_at(
    problem: Problem, products: Float[np.ndarray, "batch d"], depth: int
) -> Float[np.ndarray, " batch"]:
    """Return S_bal (X-3) of one target at minimizers w, of which a singular Σ̂ has several."""
    eigenvalues, vectors, _ = problem.spectrum
    sizes = np.linalg.norm(products, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = (products @ vectors / sizes[:, None]) ** 2
    update = (depth - 1) * eigenvalues * np.nan_to_num(squares)
    return 2 * sizes ** (2 - 2 / depth) * largest_eigenvalue_of_update(eigenvalues, update)


def _of_singular_values(
    eigenvalues: Float[np.ndarray, " r"], coordinates: Float[np.ndarray, "r q"], L: int
) -> list[float]:
    """Return the largest eigenvalue for each singular value of Θ*, zero included."""
    left, values, _ = np.linalg.svd(coordinates, full_matrices=False)
    columns = np.zeros(coordinates.shape[1])
    columns[: len(values)] = values
    root = np.sqrt(eigenvalues)[:, None] * left
    tops = []
    for s in np.unique(columns):
        # k = 1 has the identity of all inputs; k ≥ 2 lives on the left singular vectors.
        weights = sum(s ** (2 * (L - k) / L) * values ** (2 * (k - 1) / L) for k in range(2, L + 1))
        matrix = (root * weights) @ root.T + np.diag(s ** (2 * (L - 1) / L) * eigenvalues)
        tops.append(2 * float(np.linalg.eigvalsh(matrix)[-1]))
    return tops


@dataclass(frozen=True)
class MinimalTrace:
    """The smallest trace of ∇²R at any minimizer, and the network that has it."""

    exact: float
    """2L(q‖p‖² tr Σ̂)^{1/L} ν^{2(L−1)/L} with ν = ‖Θ*Σ̂^{1/2}‖_* (q = 1 with a read-out p)."""
    nuclear_norm: float
    """ν, the sum of the singular values of Θ*Σ̂^{1/2}."""
    depth: int
    input_power: float
    """tr Σ̂."""
    optimum: Float[np.ndarray, "d q"] = field(repr=False)
    left: Float[np.ndarray, "q k"] = field(repr=False)
    """The left singular vectors U of Θ*Σ̂^{1/2} = U S Vᵀ."""
    values: Float[np.ndarray, " k"] = field(repr=False)
    """The singular values S > 0 of Θ*Σ̂^{1/2}."""
    readout: Float[np.ndarray, " m"] | None = field(repr=False)
    program: tuple[Program, Solution] | None = field(default=None, repr=False)
    """Softmax (X-17): the program of the trace and its solution, which replace ν, U and S."""

    @cached_property
    def minimizer(self) -> Network:
        """A minimizer with this trace, as wide as its inputs in every layer."""
        return self.attaining()

    def attaining(self, hidden: int | None = None) -> Network:
        """Return W_1 = a S^{-1/2}UᵀΘ*, W_L = b U S^{1/2}, and c times the identity between them.

        With T = exact/2L the scales a² = ν tr Σ̂/T, b² = qν/T and c² = ν²/T make all L terms equal.
        """
        if self.program is not None:
            return minimizer_of(self.program[0], self.program[1].factors, hidden)
        L, nu, share = self.depth, self.nuclear_norm, self.exact / (2 * self.depth)
        width, roots = hidden or len(self.optimum), np.sqrt(self.values)
        rows = self.left.T @ self.optimum.T
        norm = readout_norm(self.readout)
        if L == 1:
            return aligned_network(rows / norm, 1.0, self.left, L, width, self.readout)
        outputs = len(self.left) * norm**2
        a, b, c = np.sqrt([nu * self.input_power / share, nu * outputs / share, nu**2 / share])
        first, last = a * rows / roots[:, None], b / norm * self.left * roots
        return aligned_network(first, c, last, L, width, self.readout)


@validated
def minimal_trace(problem: Problem, depth: int, readout: ArrayLike | None = None) -> MinimalTrace:
    """Return min tr ∇²R over minimizers = 2L (q tr Σ̂)^{1/L} ‖Θ*Σ̂^{1/2}‖_*^{2(L−1)/L} (X-8).

    It holds for any number of outputs q and any data, with hidden layers at least as wide as the
    rank of Θ*. Training with label noise and sharpness-aware training tend to this minimizer. Other
    convex losses of one output have H/2 in the place of Σ̂ (X-14); softmax by the program of X-17.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, :2])
    assert dl.theory.minimal_trace(problem, depth=3).minimizer.depth == 3
    ```
    """
    net = architecture(problem, depth, readout, "the minimal trace")
    L = net.depth
    if isinstance(problem, GeneralizedLinearProblem) and problem.outputs > 1:
        program = Program.of(problem)
        solution = program.solve(L, powers=(1.0,))
        return MinimalTrace(
            exact=float(np.sum(solution.values)),
            nuclear_norm=float("nan"),
            depth=L,
            input_power=float("nan"),
            optimum=problem.optimum,
            left=program.outputs,
            values=np.full(len(program.outputs.T), np.nan),
            readout=None,
            program=(program, solution),
        )
    eigenvalues, _, coordinates = problem.spectrum
    _, values, left = np.linalg.svd(
        np.sqrt(eigenvalues)[:, None] * coordinates, full_matrices=False
    )
    rank = numerical_rank(values, max(coordinates.shape))
    nu, power = float(np.sum(values)), float(np.sum(eigenvalues))
    ends = problem.outputs * net.norm**2 * power
    return MinimalTrace(
        exact=2 * L * ends ** (1 / L) * nu ** (2 - 2 / L),
        nuclear_norm=nu,
        depth=L,
        input_power=power,
        optimum=problem.optimum.reshape(problem.dimension, -1),
        left=left[:rank].T,
        values=values[:rank],
        readout=net.readout,
    )


class SharpnessBrackets(NamedTuple):
    """Best possible brackets of S_min and S_bal for given Λ, a, ‖w*‖, ‖p‖ and L (X-18)."""

    minimal: tuple[float, float]
    """N a G(c) ≤ S_min ≤ N L a c^{1/L}, with N = 2‖w*‖^{2−2/L}‖p‖^{2/L}."""
    balanced: tuple[float, float]
    """N max(La, Λ) ≤ S_bal ≤ N(Λ + (L−1)a)."""
    spread: float
    """c = Λ/a ≥ 1."""
    worst_ratio: float
    """The largest S_bal/S_min of any data with this spread (`worst_sharpness_ratio`)."""


@validated
def sharpness_brackets(
    problem: Problem, depth: int, readout: ArrayLike | None = None
) -> SharpnessBrackets:
    """Return the best possible brackets of S_min and S_bal for given Λ, a and L (X-18).

    G(c) = L for c = Λ/a ≤ L and c((L−1)/(c−1))^{(L−1)/L} above. For c ≤ L the bracket of S_min is
    narrower than a factor e^{1/e} = 1.445. The bracket of FM-T2 contains it.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    low, high = dl.theory.sharpness_brackets(problem, depth=10).minimal
    assert low <= dl.theory.minimal_sharpness(problem, depth=10).exact <= high
    ```
    """
    problem.require_single_target("this bracket")
    net = architecture(problem, depth, readout, "the minimal sharpness")
    L, a, Lambda = net.depth, problem.alignment, problem.largest_eigenvalue
    c = max(Lambda / a, 1.0)
    unit = 2 * problem.optimum_norm ** (2 - 2 / L) * net.norm ** (2 / L)
    return SharpnessBrackets(
        minimal=(unit * a * float(least_sharpness(L, c)), unit * L * a * c ** (1 / L)),
        balanced=(unit * max(L * a, Lambda), unit * (Lambda + (L - 1) * a)),
        spread=c,
        worst_ratio=float(worst_sharpness_ratio(L, c)),
    )


def least_sharpness(depth: int, spread: ArrayLike) -> np.ndarray:
    """Return G(c), the least S_min/(Na) of data with Λ/a = c (X-18)."""
    c = np.asarray(spread, dtype=np.float64)
    return np.maximum(c, depth) / _diagonal_ratio(depth, c)


@validated
def worst_sharpness_ratio(depth: int, spread: ArrayLike) -> float | np.ndarray:
    """Return R(c, L), the supremum of S_bal/S_min over all data with Λ/a ≤ c (X-18).

    The bound of FM-C2 is 4Λ/λ.

    With r(c) = (c+L−1)/(L c^{1/L}), approached by Σ̂ = diag(c, ν), ν → 0, and, for c > L,
    D(c) = ((c−1)/(L−1))^{(L−1)/L}, attained by Σ̂ = diag(c, 1) and w* along the second axis:
    R = r(c) for c ≤ L−1 and R ≥ max(r, D) always (theorems). In general R is the maximum of
    `plane_ratio` over a plane of data (theorem). For L ≥ 3 and c > L−1 that maximum is max(r, D) to
    rounding at every value tried (computed, not proved); for L = 2 and c < 2.2 it is up to 1.113 %
    larger, and searched here.

    Args:
        depth: L.
        spread: c = Λ/a ≥ 1, a number or an array.

    ```python
    import deeplin as dl
    assert dl.theory.worst_sharpness_ratio(depth=10, spread=5.0) < 1.2
    assert dl.theory.worst_sharpness_ratio(depth=10, spread=1000.0) > 60
    ```
    """
    L = whole_number("depth", depth)
    c = finite_array("spread", spread, (0, 1, 2))
    if c.min() < 1:
        raise InputError(f"spread is {c.min():g}; pass Λ/a, which is at least 1.")
    ratio = np.maximum((c + L - 1) / (L * c ** (1 / L)), _diagonal_ratio(L, c))
    if L == 2:
        near = (c > 1) & (c < 2.2)
        ratio = np.vectorize(lambda x, r, n: _worst_of_two_layers(x) if n else r)(c, ratio, near)
    return float(ratio) if c.ndim == 0 else ratio


def _diagonal_ratio(L: int, c: np.ndarray) -> np.ndarray:
    """Return D(c) for c > L, else 1."""
    above = np.maximum(c - 1, L - 1) / max(L - 1, 1)
    return np.where(c > L, above, 1.0) ** ((L - 1) / L)


def plane_ratio(depth: int, spread: ArrayLike, overlap: ArrayLike) -> np.ndarray:
    """Return S_bal/S_min for Σ̂ = bbᵀ + κqqᵀ, ‖b‖ = a = 1, (q·b)² = g, κ such that Λ = c (X-18).

    These data attain the worst ratio: λ(L, κ)/min_x λ(x + (L−1)x^{−1/(L−1)}, xκ) with λ(y_1, y_2)
    the larger eigenvalue of y_1 bbᵀ + y_2 qqᵀ and κ = c(c−1)/(c−1+g). The denominator is convex in
    log x.
    """
    L = whole_number("depth", depth, minimum=2)
    c, g = np.broadcast_arrays(np.asarray(spread, float), np.asarray(overlap, float))
    kappa = np.divide(c * (c - 1), c - 1 + g, out=np.zeros(c.shape), where=c > 1)

    def top(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return (first + second + np.sqrt((first - second) ** 2 + 4 * first * second * g)) / 2

    def objective(log_x: np.ndarray) -> np.ndarray:
        x = np.exp(log_x)
        return top(x + (L - 1) * x ** (-1 / (L - 1)), x * kappa)

    # Above x = 1 both arguments grow with x; below (c + L)^{1−L} the first exceeds the value at 1.
    low, high = (1 - L) * np.log(c + L), np.zeros(c.shape)
    golden = (np.sqrt(5) - 1) / 2
    for _ in range(90):
        left, right = high - golden * (high - low), low + golden * (high - low)
        lower = objective(left) < objective(right)
        low, high = np.where(lower, low, left), np.where(lower, right, high)
    return top(np.full(c.shape, float(L)), kappa) / objective((low + high) / 2)


def _worst_of_two_layers(c: float) -> float:
    """Return max over g of `plane_ratio(2, c, g)`, by a grid that is refined twice."""
    low, high = 0.0, 1.0
    for _ in range(5):
        grid = np.linspace(low, high, 65)
        ratios = plane_ratio(2, c, grid)
        best = int(np.argmax(ratios))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, 64)]
    return float(ratios[best])
