"""How flat a minimizer can be: the bracket of FM-T2, the exact value (X-2, X-7), who attains it.

For white data the minimal sharpness is due to Mulayoff & Michaeli 2020. Brackets that are best
possible for given Λ, a and L: `sharpness_brackets` (X-18).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.errors import InputError, finite_array
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.theory.architecture import (
    Architecture,
    aligned_network,
    architecture,
    numerical_rank,
    stability_limit,
)
from deeplin.theory.secular import root
from deeplin.theory.softmax import Program, Solution, minimizer_of
from deeplin.validation import validated


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
        """2/S_min, (2+2β)/S_min with momentum β: above it no minimizer is stable."""
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
        """The flattest minimizer with layers of width `hidden` (at least the rank of Θ*).

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
    """S_min, the smallest sharpness of any minimizer of depth L, for any data (X-2, X-7; FM-T2).

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
    """2a‖w*‖^{2−1/L}‖p‖^{1/L} Σ_k 1/‖W_k‖_F: below the sharpness of that minimizer (FM-T2, E-8).

    `layer_norms` holds ‖W_k‖_F along its last axis; other axes are a batch of minimizers. The
    norms of some layers alone give a smaller bound (FM-rescale); pass the `depth` L then.
    """
    problem.require_single_target("this bound")
    norms = np.asarray(layer_norms, dtype=np.float64)
    net = architecture(problem, depth or norms.shape[-1], readout, "the minimal sharpness")
    power = 1 / net.depth
    scale = 2 * problem.alignment * problem.optimum_norm ** (2 - power) * net.norm**power
    with np.errstate(divide="ignore"):  # no minimizer has a layer of zeros: no bound is too large
        return scale * np.sum(1 / norms, axis=-1)


def flattest_network(
    optimum: Float[np.ndarray, "d q"],
    depth: int,
    suffix_norm: float,
    *,
    hidden: int | None = None,
    readout: Float[np.ndarray, " m"] | None = None,
) -> Network:
    """W_1 = UᵀΘ*/t, and W_2 … W_L partial isometries of equal norm with product tU (X-7)."""
    right, values, left = np.linalg.svd(optimum, full_matrices=False)
    rank = numerical_rank(values, max(optimum.shape))
    norm = 1.0 if readout is None else float(np.linalg.norm(readout))
    size = (suffix_norm / norm) ** (1 / (depth - 1)) if depth > 1 else 1.0
    first = values[:rank, None] * right[:, :rank].T / suffix_norm
    width = hidden or len(optimum)
    return aligned_network(first, size, size * left[:rank].T, depth, width, readout)


def layer_rates(rates: ArrayLike, depth: int | None = None) -> Float[np.ndarray, " L"]:
    """One learning rate above zero for each layer."""
    given = finite_array("rates", rates, (1,))
    if given.min() <= 0 or (depth is not None and len(given) != depth):
        wanted = "one learning rate above 0 for each layer"
        raise InputError(f"rates are {given.tolist()}; pass {wanted}, first layer first.")
    return given


def geometric_mean(rates: Float[np.ndarray, " L"]) -> float:
    """(η_1⋯η_L)^{1/L}."""
    return float(np.exp(np.mean(np.log(rates))))


def _bracket(problem: Problem, net: Architecture) -> tuple[float, float]:
    """The bounds of FM-T2 for one output, their extension for several."""
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
    """The program of X-17, between the bounds that do not need it."""
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
    """S_min and the t that attains it.

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
        """λ_max(Q) and v x'Q'x, up to the common factor Λ."""
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
    """ℓ_i/Λ and the coordinates of Θ*, (r, rank): up to a rotation of the outputs.

    A part of Θ* below rounding moves S_min by less than rounding, but would stall the search.
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
    """The largest eigenvalue and its eigenvector."""
    if len(matrix) == 1:
        return float(matrix[0, 0]), np.ones(1)
    values, vectors = np.linalg.eigh(matrix)
    return float(values[-1]), vectors[:, -1]
