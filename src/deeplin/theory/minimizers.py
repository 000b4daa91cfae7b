"""Flattest and balanced minimizers (FM Section 3; X-2, X-3, X-7, X-8, X-18).

This module has the flattest minimizer, with the bracket of FM-T2 and its exact value; the balanced
minimizer, to which small initializations converge; the minimizer of smallest trace; and brackets of
the first two that are best possible for given Λ, a and L. For white data the minimal sharpness is
due to Mulayoff & Michaeli 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from deeplin.dynamics.optimizer import stability_limit
from deeplin.errors import InputError, finite_array, require_size, whole_number
from deeplin.networks import Network
from deeplin.problems import Problem, require_problem
from deeplin.problems.best_of_rank import Truncation
from deeplin.problems.factorizations import numerical_rank
from deeplin.problems.generalized_linear import GeneralizedLinearProblem
from deeplin.problems.problem import as_columns, as_map
from deeplin.theory.gauge import (
    Form,
    Reduced,
    WithBiases,
    balanced_top,
    least,
    least_squares_family,
    solve,
)
from deeplin.theory.roots import largest_eigenvalue_of_update, root

CLOSED = 1e-11
"""Relative difference of two bounds up to which they count as equal."""
LARGEST_MATRIX = 1000
"""Largest matrix that the program of X-17, X-34 and X-38 factorizes at every step."""
MOST_UNKNOWNS = 2000
"""Largest number of entries of its P_k."""
MOST_ANGLES = 12
"""Largest number of angles between tied directions (X-34)."""
STARTS = 3
"""Random starts of the search over these angles."""
CENTERED_INPUTS = 1e-8
"""Mean of an input, relative to its size, up to which it counts as centered (X-38)."""


class Architecture(NamedTuple):
    """L layers, and the fixed read-out p or None where the last layer is the output."""

    depth: int
    readout: Float[np.ndarray, " m"] | None

    @property
    def norm(self) -> float:
        """‖p‖, 1 without a read-out."""
        return readout_norm(self.readout)


def readout_norm(readout: Float[np.ndarray, " m"] | None) -> float:
    """Return ‖p‖, or 1 without a read-out."""
    return 1.0 if readout is None else float(np.linalg.norm(readout))


def architecture(
    problem: Problem, depth: int, readout: ArrayLike | None, quantity: str, *, signal: bool = True
) -> Architecture:
    """Check that `quantity` is defined for this problem, depth and read-out.

    Without `signal`, problems may have a zero minimizer, or none.
    """
    require_problem(problem)
    L = whole_number("depth", depth)
    if signal:
        problem.require_signal(quantity)
    if readout is None:
        return Architecture(L, None)
    problem.require_single_target(f"{quantity} of a network with a read-out")
    p = finite_array("readout", readout, (1,))
    require_size("readout", p)
    if not np.any(p):
        raise InputError("readout is zero; pass a vector p ≠ 0.")
    return Architecture(L, p)


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


def aligned_network(
    rows: Float[np.ndarray, "k d"],
    scale: float | Float[np.ndarray, " k"],
    columns: Float[np.ndarray, "q k"],
    depth: int,
    readout: Float[np.ndarray, " m"] | None = None,
) -> Network:
    """Return W_1 = rows, W_2 … W_{L−1} = diag(scale) and W_L = columns.

    With a read-out p its direction takes the place of `columns`' one output; for L = 1, W_1 is
    their product.
    """
    if readout is not None:
        columns = np.outer(readout / np.linalg.norm(readout), columns[0])
    if depth == 1:
        return Network([columns @ rows], readout=readout)
    middle = np.diag(np.broadcast_to(scale, len(rows)))
    return Network([rows, *[middle] * (depth - 2), columns], readout=readout)


def padded(network: Network, width: int | None) -> Network:
    """Return the same map with hidden layers of this width, by default that of the inputs."""
    layers = [np.asarray(weight) for weight in network.weights]
    rank = max([len(layer) for layer in layers[:-1]], default=0)
    hidden = require_width(width or max(layers[0].shape[1], rank), rank, len(layers))
    for k, layer in enumerate(layers):
        rows = hidden if k < len(layers) - 1 else len(layer)
        columns = hidden if k > 0 else layer.shape[1]
        layers[k] = np.pad(layer, ((0, rows - len(layer)), (0, columns - layer.shape[1])))
    if network.biases is None:
        return Network(layers, readout=network.readout)
    pairs = zip(map(np.asarray, network.biases), layers, strict=True)
    biases = [np.pad(bias, (0, len(layer) - len(bias))) for bias, layer in pairs]
    return Network(layers, biases=biases)


def require_width(hidden: int, rank: int, depth: int) -> int:
    """Return a hidden width at which a map of this rank is possible."""
    width = whole_number("width", hidden)
    if depth > 1 and width < rank:
        raise InputError(
            f"the hidden layers have width {width}, but the solution has rank {rank}: no such "
            f"network is a minimizer. Pass a width of at least {rank}; "
            f"minimal_sharpness(problem, depth, width={width}) has the flattest network of that "
            "width."
        )
    return width


def is_white(problem: Problem) -> bool:
    """Return whether Σ̂ = cI on its range, up to a relative spread of 1e-9."""
    high, low = problem.largest_eigenvalue, problem.smallest_eigenvalue
    return high - low <= 1e-9 * high


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
    return balanced_factors(problem.optimum_columns, depth, width)


def balanced_factors(
    product: Float[np.ndarray, "d q"],
    depth: int,
    width: int | None = None,
    readout: Float[np.ndarray, " m"] | None = None,
) -> Network:
    """Return L layers of equal singular values with this product and the least Σ‖W_k‖_F² (X-9)."""
    L = whole_number("depth", depth)
    right, values, left = np.linalg.svd(product / readout_norm(readout), full_matrices=False)
    rank = max(numerical_rank(values, max(product.shape)), 1)  # 0 of a collapsed network
    share = values[:rank] ** (1 / L)
    first, last = share[:, None] * right[:, :rank].T, left[:rank].T
    network = aligned_network(first, share, last * share if L > 1 else last, L, readout)
    return padded(network, max(product.shape) if width is None else width)


def balanced_sharpness(
    problem: Problem,
    depth: int,
    readout: ArrayLike | None = None,
    *,
    at: ArrayLike | None = None,
) -> float:
    """Return S_bal, the sharpness at the end of the flow from a vanishing initialization (X-3).

    One target: λ_max(2‖w*‖^{2−2/L}‖p‖^{2/L}(Σ̂ + (L−1)Σ̂^{1/2}ŵŵᵀΣ̂^{1/2})), ŵ = w*/‖w*‖. For several
    the Hessian at balanced weights acts on D (d×q) as D ↦ 2 Σ_k (ΘΘᵀ)^{(k−1)/L} Σ̂ D (ΘᵀΘ)^{(L−k)/L}
    (X-1), which falls apart along the right singular vectors of Θ: for each singular value s_j,
    λ_max(2 Σ̂^{1/2} [Σ_k s_j^{2(L−k)/L} (ΘΘᵀ)^{(k−1)/L}] Σ̂^{1/2}). Other convex losses have H/2 in
    the place of Σ̂ (X-14, X-17), at the minimizer of least norm.

    Args:
        problem: the data and the loss.
        depth: L.
        readout: p, the fixed last vector of a network with one output.
        at: another product than Θ*, (q, d), or (d,) for one output. At a product that is no
            minimizer this is the Gauss-Newton part of the sharpness of balanced layers, with the
            curvature of the loss there. From balanced rank-one layers the flow stays balanced, so
            the formula follows it: for white inputs 2L‖w‖^{2−2/L}, which grows with ‖w‖.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    end = dl.theory.balanced_sharpness(problem, 3)
    assert end >= dl.theory.minimal_sharpness(problem, 3).exact
    assert dl.theory.balanced_sharpness(problem, 3, at=problem.optimum / 2) < end
    ```
    """
    quantity = "the balanced sharpness"
    net = architecture(problem, depth, readout, quantity, signal=at is None)
    columns = problem.optimum_columns if at is None else _columns_at(problem, at)
    one = problem.outputs == 1
    if isinstance(problem, GeneralizedLinearProblem) and (at is not None or not one):
        if at is None:
            reduced = Reduced.of(problem, columns)
            return balanced_top(reduced.theta, reduced.hessian, net.depth)
        top = balanced_top(columns.T, problem.curvature_at(as_map(columns)), net.depth)
        return net.norm ** (2 / net.depth) * top
    if not one:
        return max(_of_singular_values(problem, columns, net.depth))
    alone = balanced_sharpness_at(problem, columns.T, net.depth)
    return net.norm ** (2 / net.depth) * float(alone[0])


def _columns_at(problem: Problem, at: ArrayLike) -> Float[np.ndarray, "d q"]:
    """Return a product that a caller passes as columns."""
    d, q = problem.dimension, problem.outputs
    theta = finite_array("at", at, (1, 2))
    if theta.shape == (q, d) or (q == 1 and theta.shape == (d,)):
        return theta.reshape(q, d).T
    wanted = f"({d},)" if q == 1 else f"({q}, {d})"
    raise InputError(f"at has shape {theta.shape}; pass a product of shape {wanted}.")


def balanced_sharpness_at(
    problem: Problem, products: Float[np.ndarray, "batch d"], depth: int
) -> Float[np.ndarray, " batch"]:
    """Return S_bal (X-3) of one target at products w, such as the minimizers of a singular Σ̂."""
    eigenvalues, vectors, _ = problem.spectrum
    sizes = np.linalg.norm(products, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = (products @ vectors / sizes[:, None]) ** 2
    update = (depth - 1) * eigenvalues * np.nan_to_num(squares)
    return 2 * sizes ** (2 - 2 / depth) * largest_eigenvalue_of_update(eigenvalues, update)


def _of_singular_values(problem: Problem, columns: Float[np.ndarray, "d q"], L: int) -> list[float]:
    """Return the largest eigenvalue for each singular value of Θ, zero included."""
    eigenvalues, vectors, _ = problem.spectrum
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    sizes = np.zeros(columns.shape[1])
    sizes[: len(values)] = values
    root = np.sqrt(eigenvalues)[:, None] * (vectors.T @ left)
    tops = []
    for s in np.unique(sizes):
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
    layers: tuple[np.ndarray, ...] | None = field(default=None, repr=False)
    """Softmax (X-17): the layers that the program found, which replace ν, U and S."""

    @cached_property
    def minimizer(self) -> Network:
        """A minimizer with this trace, as wide as its inputs in every layer."""
        return self.attaining()

    def attaining(self, hidden: int | None = None) -> Network:
        """Return W_1 = a S^{-1/2}UᵀΘ*, W_L = b U S^{1/2}, and c times the identity between them.

        With T = exact/2L the scales a² = ν tr Σ̂/T, b² = qν/T and c² = ν²/T make all L terms equal.
        """
        if self.layers is not None:
            return padded(Network(self.layers), hidden)
        L, nu, share = self.depth, self.nuclear_norm, self.exact / (2 * self.depth)
        roots = np.sqrt(self.values)
        rows = self.left.T @ self.optimum.T
        norm = readout_norm(self.readout)
        if L == 1:
            return aligned_network(rows / norm, 1.0, self.left, L, self.readout)
        outputs = len(self.left) * norm**2
        a, b, c = np.sqrt([nu * self.input_power / share, nu * outputs / share, nu**2 / share])
        first, last = a * rows / roots[:, None], b / norm * self.left * roots
        return padded(aligned_network(first, c, last, L, self.readout), hidden)


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
        return _trace_of_softmax(problem, L)
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
        optimum=problem.optimum_columns,
        left=left[:rank].T,
        values=values[:rank],
        readout=net.readout,
    )


def _trace_of_softmax(problem: GeneralizedLinearProblem, depth: int) -> MinimalTrace:
    """Return the least tr QD(P), the program of X-17 with the trace in the place of λ_max."""
    reduced = Reduced.of(problem, problem.optimum_columns)
    if depth == 1:
        exact, layers = float(np.trace(reduced.hessian)), [reduced.theta]
    else:
        form = reduced.form(depth)
        exact, factors = least(form.moments(np.eye(form.size)), form.identities())
        layers = form.weights(factors)
    layers[0] = layers[0] @ reduced.inputs.T
    layers[-1] = reduced.outputs @ layers[-1]
    return MinimalTrace(
        exact=exact,
        nuclear_norm=float("nan"),
        depth=depth,
        input_power=float("nan"),
        optimum=problem.optimum_columns,
        left=reduced.outputs,
        values=np.full(reduced.outputs.shape[1], np.nan),
        readout=None,
        layers=tuple(layers),
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
    low, high = dl.theory.bounds.sharpness_brackets(problem, depth=10).minimal
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
