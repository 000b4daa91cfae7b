"""Flattest minimizers: their sharpness, exact and in the bracket of FM-T2 (X-2, X-7, X-34, X-38).

For white data the minimal sharpness is due to Mulayoff & Michaeli 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.dynamics.optimizer import stability_limit
from deeplin.errors import InputError, finite_array, whole_number
from deeplin.networks import Network
from deeplin.problems import Problem
from deeplin.problems.best_of_rank import Truncation
from deeplin.problems.factorizations import numerical_rank
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.problems.problem import as_columns
from deeplin.theory.architecture import (
    Architecture,
    aligned_network,
    architecture,
    is_white,
    padded,
    readout_norm,
)
from deeplin.theory.balanced import balanced_top
from deeplin.theory.gauge import Reduced, WithBiases, least_squares_family
from deeplin.theory.interior_point import Form, solve
from deeplin.theory.roots import root

CLOSED = 1e-11
"""Relative difference of two bounds up to which they count as equal."""
LARGEST_MATRIX = 600
"""Largest matrix that the program of X-17, X-34 and X-38 factorizes at every step."""
MOST_UNKNOWNS = 2000
"""Largest number of entries of its P_k."""
MOST_ANGLES = 12
"""Largest number of angles between tied directions (X-34)."""
STARTS = 3
"""Random starts of the search over these angles."""
CENTERED_INPUTS = 1e-8
"""Mean of an input, relative to its size, up to which it counts as centered (X-38)."""


@dataclass(frozen=True, repr=False)
class MinimalSharpness:
    """The smallest sharpness of any minimizer: bounded, exact, and attained."""

    lower: float
    """Squared loss without bottleneck and biases, or one output: 2σ_1^{2−2/L}‖p‖^{2/L}L a with
    a = v_1ᵀΣ̂v_1, σ_1 and v_1 the first singular value and vector of Θ*; for one output the lower
    bound printed as FM-T2, for several its extension (X-7). Otherwise a bound by duality that
    certifies `exact` (X-17, X-34, X-38), or X-7 for Θ_r."""
    upper: float
    """In the first case 2‖w*‖^{2−2/L}‖p‖^{2/L} sqrt((2L−1)Λ² + (L−1)²a²), the upper bound printed
    as FM-T2, for one output, and 2σ_1^{2−2/L}(Λ + (L−1)λ_max(Θ*Σ̂Θ*ᵀ)/σ_1²) for several (X-7).
    Otherwise the sharpness of a known minimizer: that of X-7 for Θ_r, or the balanced one."""
    outputs: int
    """Number of outputs q; the bracket is printed in FM for one output only."""
    depth: int
    readout: Float[np.ndarray, " m"] | None
    value: float | None
    """S_min; None where its program is too large."""
    narrowest: Callable[[], Network]
    """A flattest minimizer whose hidden layers are as narrow as possible."""

    def __repr__(self) -> str:
        exact = "too large a program" if self.value is None else f"{self.value:.8g}"
        bounds = f"lower={self.lower:.8g}, exact={exact}, upper={self.upper:.8g}"
        return f"MinimalSharpness({bounds}, depth={self.depth})"

    @property
    def exact(self) -> float:
        """S_min (X-2, X-7, X-17, X-34, X-38); raises where its program is too large."""
        if self.value is None:
            raise InputError(
                "the program of the exact minimal sharpness is too large for this width and these "
                f"outputs; it lies between {self.lower:.6g} and {self.upper:.6g}, which are its "
                "bounds `lower` and `upper`. Pass a smaller width, or fewer outputs."
            )
        return self.value

    def critical_learning_rate(self, momentum: float = 0.0, *, nesterov: bool = False) -> float:
        """Return 2/S_min, or (2+2β)/S_min with momentum β, above which no minimizer is stable."""
        return stability_limit(momentum, nesterov=nesterov) / self.exact

    @property
    def printed_critical_learning_rate(self) -> float:
        """1/(‖w*‖^{2−2/L}‖p‖^{2/L} L a), the approximation of FM-crit: 2 over the lower bound."""
        return 2 / self.lower

    @cached_property
    def minimizer(self) -> Network:
        """The flattest minimizer, as wide as its inputs in every layer.

        Where the program is too large, the minimizer that has the sharpness `upper`.
        """
        return self.attaining()

    def attaining(self, hidden: int | None = None, rates: ArrayLike | None = None) -> Network:
        """Return the flattest minimizer with layers of width `hidden` (at least its rank).

        With `rates` η_1 … η_L of geometric mean g: the one whose Hessian, each layer multiplied by
        its rate, has the smallest largest eigenvalue; its layers are √(η_k/g) times as large, with
        the same product (X-11).
        """
        network = padded(self.narrowest(), hidden)
        if rates is None:
            return network
        if network.biases is not None:
            raise InputError("layer-wise rates with biases are not covered; pass rates=None.")
        given = layer_rates(rates, self.depth)
        scales = np.sqrt(given / geometric_mean(given))
        scaled = [scale * np.asarray(w) for scale, w in zip(scales, network.weights, strict=True)]
        return Network(scaled, readout=self.readout)


def minimal_sharpness(
    problem: Problem,
    depth: int,
    readout: ArrayLike | None = None,
    *,
    width: int | None = None,
    biases: bool = False,
) -> MinimalSharpness:
    """Return S_min, the smallest sharpness of a minimizer of depth L, for any data (X-2, X-7).

    S_min = min over t > 0 of 2λ_max(Σ̂^{1/2}[t² I + (L−1)(‖p‖/t)^{2/(L−1)} Θ*ᵀΘ*]Σ̂^{1/2}), for any
    number of outputs and hidden layers at least as wide as the rank of Θ*. FM-T2 bounds it.

    For any other convex loss of one output H/2 takes the place of Σ̂ (X-14). A geodesically convex
    program gives it for softmax (X-17), for hidden layers narrower than the rank of Θ* (X-34) and
    with biases (X-38); `lower` is then a certificate by duality.

    Args:
        problem: the data and the loss.
        depth: L.
        readout: p, the fixed last vector of a network with one output.
        width: the smallest hidden width. Below the rank of Θ* the minimizers are those of the best
            product of this rank, `problem.best_of_rank(width)`, which is Θ_r in X-34.
        biases: whether every layer has a bias; for squared loss and centered inputs.

    Returns:
        `MinimalSharpness`, with `lower`, `exact`, `upper` and the `minimizer` that attains it.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X)
    autoencoder = dl.theory.minimal_sharpness(problem, depth=4, width=2)
    assert np.isclose(autoencoder.exact, 2 * 4 * problem.largest_eigenvalue)
    ```
    """
    net = architecture(problem, depth, readout, "the minimal sharpness")
    narrow = None if width is None else whole_number("width", width)
    if biases:
        _require_biases_covered(problem, net)
    if isinstance(problem, GeneralizedLinearProblem) and problem.outputs > 1:
        return _of_softmax(problem, net, narrow)
    rank = _rank(problem)
    if net.depth > 1 and (biases or (narrow is not None and narrow < rank)):
        return _of_program(problem, net, min(narrow or rank, rank), biases=biases)
    exact, t = flattest_minimizer(problem, net)
    lower, upper = _bracket(problem, net)
    if biases:  # one layer: its bias is independent of it
        exact, lower, upper = (max(value, 2.0) for value in (exact, lower, upper))
    optimum = problem.optimum_columns
    return MinimalSharpness(
        lower=lower,
        upper=upper,
        outputs=problem.outputs,
        depth=net.depth,
        readout=net.readout,
        value=exact,
        narrowest=lambda: flattest_network(optimum, net.depth, t, readout=net.readout),
    )


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
    readout: Float[np.ndarray, " m"] | None = None,
) -> Network:
    """Return W_1 = UᵀΘ*/t, and W_2 … W_L partial isometries of equal norm with product tU (X-7).

    Its hidden layers are as wide as the rank of Θ*.
    """
    right, values, left = np.linalg.svd(optimum, full_matrices=False)
    rank = numerical_rank(values, max(optimum.shape))
    size = (suffix_norm / readout_norm(readout)) ** (1 / (depth - 1)) if depth > 1 else 1.0
    first = values[:rank, None] * right[:, :rank].T / suffix_norm
    return aligned_network(first, size, size * left[:rank].T, depth, readout)


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


def _of_softmax(
    problem: GeneralizedLinearProblem, net: Architecture, width: int | None
) -> MinimalSharpness:
    """Return S_min from the program of X-17, or of X-34 where the width limits the rank."""
    L, columns = net.depth, problem.optimum_columns
    if width is not None:
        columns = as_columns(problem.best_of_rank(width).product, problem.outputs)
    reduced = Reduced.of(problem, columns)
    if L == 1:
        value = float(np.linalg.eigvalsh(reduced.hessian)[-1])
        return MinimalSharpness(
            lower=value,
            upper=value,
            outputs=problem.outputs,
            depth=1,
            readout=None,
            value=value,
            narrowest=lambda: Network([reduced.outputs @ reduced.theta @ reduced.inputs.T]),
        )
    form = reduced.form(L)
    upper = balanced_top(reduced.theta, reduced.hessian, L)
    found = None
    if _fits(form.size, form.shape):
        upper = form.top(form.identities())
        found = solve(lambda _: form, np.zeros(0), upper)
    lower = 0.0 if found is None else found.lower

    def narrowest() -> Network:
        first, *others = form.start if found is None else found.weights
        others[-1] = reduced.outputs @ others[-1]
        return Network([first @ reduced.inputs.T, *others])

    return MinimalSharpness(
        lower=lower,
        upper=upper,
        outputs=problem.outputs,
        depth=L,
        readout=None,
        value=None if found is None else found.value,
        narrowest=narrowest,
    )


def _of_program(
    problem: Problem, net: Architecture, rank: int, *, biases: bool
) -> MinimalSharpness:
    """Return S_min of squared loss at the best product of this rank (X-34), with biases (X-38).

    Where the X-7 minimizer of that product has the sharpness of its lower bound, nothing is left to
    solve: without a bottleneck and with biases that do not matter, for white inputs, and for
    autoencoders.
    """
    L, part = net.depth, problem.truncation(rank)
    kept = part.left @ problem.spectrum.coordinates.T
    lower, t = flattest_minimizer(problem, net, kept.T)
    family, angles = least_squares_family(problem, rank, L, t)
    if angles and not is_white(problem):
        lower = _lower_of_ties(problem, net, part)

    def make(turn: np.ndarray) -> Form:
        inner = family(turn)
        return WithBiases(inner.start, inner) if biases else inner

    first, form = family(np.zeros(angles)), make(np.zeros(angles))
    upper = first.at_start()
    if isinstance(form, WithBiases):
        upper = max(upper, float(np.linalg.eigvalsh(form.block(form.identities()))[-1]))
    factors, value = form.identities(), upper
    if upper > lower * (1 + CLOSED):
        value = None
        if _fits(rank * (rank + len(first.dropped)), form.shape) and angles <= MOST_ANGLES:
            rng = np.random.default_rng(0)
            turns = [np.zeros(angles), *rng.normal(size=(STARTS if angles else 0, angles))]
            found = min((solve(make, turn, upper) for turn in turns), key=lambda each: each.value)
            form, factors, value, dual = found
            lower = lower if angles else max(lower, dual)
    value = value if value is None else max(value, lower)
    vectors = problem.spectrum.vectors

    def narrowest() -> Network:
        layers = form.weights(factors)
        layers[0] = layers[0] @ vectors.T
        if not biases:
            return Network(layers)
        means = problem.require_data("the minimizer with biases")[1].mean(axis=0)
        return Network(layers, biases=[*(np.zeros(len(W)) for W in layers[:-1]), means])

    return MinimalSharpness(
        lower=lower,
        upper=upper,
        outputs=problem.outputs,
        depth=L,
        readout=net.readout,
        value=value,
        narrowest=narrowest,
    )


def _lower_of_ties(problem: Problem, net: Architecture, part: Truncation) -> float:
    """Return a bound that holds whichever of the tied directions a product keeps.

    That of X-7 for what every product keeps, and 2L(λ s_r^{2L−2})^{1/L}, which tests X-7 with one
    tied direction.
    """
    L, eigenvalues = net.depth, problem.spectrum.eigenvalues
    tied = part.tied[:1] @ problem.spectrum.coordinates.T
    size = float(np.sum(tied**2 * eigenvalues))
    bound = 2 * L * float(eigenvalues[-1] * size ** (L - 1)) ** (1 / L)
    if len(part.kept):
        kept = part.kept @ problem.spectrum.coordinates.T
        bound = max(bound, flattest_minimizer(problem, net, kept.T)[0])
    return bound


def _fits(side: int, shape: tuple[int, int]) -> bool:
    """Return whether the program is solved within about a minute."""
    count, r = shape
    return side <= LARGEST_MATRIX and count * r * (r + 1) // 2 <= MOST_UNKNOWNS


def _rank(problem: Problem) -> int:
    """Return the rank of Θ*."""
    if problem.outputs == 1:
        return 1
    coordinates = problem.spectrum.coordinates
    values = np.linalg.svd(coordinates, compute_uv=False)
    return numerical_rank(values, max(coordinates.shape))


def _require_biases_covered(problem: Problem, net: Architecture) -> None:
    """Raise InputError unless X-38 covers the problem."""
    problem.require_squared_loss("the minimal sharpness with biases")
    if net.readout is not None:
        raise InputError(
            "readout is given together with biases=True; a network with biases has its last layer "
            "as the output. Pass readout=None."
        )
    X, _ = problem.require_data("the minimal sharpness with biases")
    means, sizes = np.abs(X.mean(axis=0)), np.sqrt(np.mean(X**2, axis=0))
    if np.any(means > CENTERED_INPUTS * sizes):
        column = int(np.argmax(means / np.maximum(sizes, np.finfo(float).tiny)))
        raise InputError(
            f"biases=True needs centered inputs, and column {column} of X has mean "
            f"{X[:, column].mean():.3g}; pass X − X.mean(axis=0) (the critical rate with biases is "
            "not known for other inputs)."
        )


def flattest_minimizer(
    problem: Problem, net: Architecture, coordinates: np.ndarray | None = None
) -> tuple[float, float]:
    """Return S_min of X-7 and the t that attains it; `coordinates` (n, q) replace those of Θ*.

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
    if coordinates is None:
        coordinates = problem.spectrum.coordinates
    ell, columns = _signal(problem.spectrum.eigenvalues, coordinates)
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


def _signal(eigenvalues: np.ndarray, coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ℓ_i/Λ and the coordinates of Θ*, (r, rank), up to a rotation of the outputs.

    Parts of Θ* below rounding change S_min by less than rounding, but would stall the search, so
    they are removed.
    """
    if coordinates.shape[1] > 1:
        left, values, _ = np.linalg.svd(coordinates, full_matrices=False)
        rank = numerical_rank(values, max(coordinates.shape))
        coordinates = left[:, :rank] * values[:rank]
    sizes = np.linalg.norm(coordinates, axis=1)
    share = sizes > np.finfo(float).eps * np.linalg.norm(sizes)
    return eigenvalues[share] / eigenvalues[0], coordinates[share]


def _top(matrix: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the largest eigenvalue and its eigenvector."""
    if len(matrix) == 1:
        return float(matrix[0, 0]), np.ones(1)
    values, vectors = np.linalg.eigh(matrix)
    return float(values[-1]), vectors[:, -1]
