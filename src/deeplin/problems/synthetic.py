"""The synthetic data sets of both papers and the talk, each from one seed.

Draws use NumPy in float64, so a seed gives the same data whatever precision JAX runs in; the FM
authors' own data (`marion_chizat`) are drawn as they drew them, in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike

from deeplin.errors import InputError, finite_array, positive_number, whole_number
from deeplin.problems.problem import Problem, as_map

__all__ = [
    "Synthetic",
    "flat_minima",
    "from_spectrum",
    "linear_attention",
    "marion_chizat",
    "matrix_completion",
    "relu_teacher",
    "separable",
    "spiked",
]


@dataclass(frozen=True, eq=False)
class Synthetic:
    """A training problem together with its known distribution."""

    problem: Problem
    """The training data."""
    test: Problem
    """Fresh data of the same kind, for generalization gaps."""
    truth: np.ndarray | tuple[np.ndarray, ...]
    """The truth behind the targets: w_true, Θ*, the teacher's weights or the separating
    direction."""
    spectrum: np.ndarray
    """Eigenvalues of the population second moment Σ (the inputs' axes are its eigenvectors)."""


def flat_minima(
    seed: int,
    *,
    samples: int = 50,
    dimension: int = 5,
    noise: float = 1.0,
    condition_number: float = 1.0,
) -> Synthetic:
    """Draw the FM data set: Gaussian X, y = Xw + ζ, scaled so that ‖w*‖ = 1.

    `samples < dimension` gives the underdetermined variant of FM-6, `noise=0` the noiseless one of
    FM-7. The test set has as many fresh points, scaled by the same factor. A `condition_number`
    above 1 gives the population a log-spaced spectrum.

    ```python
    import deeplin as dl
    problem = dl.problems.synthetic.flat_minima(seed=0).problem
    ```
    """
    n, d = whole_number("samples", samples), whole_number("dimension", dimension)
    positive_number("noise", noise, zero_allowed=True)
    if positive_number("condition_number", condition_number) < 1:
        raise InputError(f"condition_number is {condition_number:g}; pass at least 1.")
    rng = _generator(seed)
    spectrum = np.geomspace(1.0, 1.0 / condition_number, d)
    X = rng.normal(size=(n, d)) * np.sqrt(spectrum)
    truth = rng.normal(size=d)
    y = X @ truth + noise * rng.normal(size=n)
    X_test = rng.normal(size=(n, d)) * np.sqrt(spectrum)
    y_test = X_test @ truth + noise * rng.normal(size=n)
    norm = Problem.from_data(X, y).optimum_norm
    return Synthetic(
        Problem.from_data(X, y / norm),
        Problem.from_data(X_test, y_test / norm),
        truth / norm,
        spectrum,
    )


AUTHORS_DATA = {
    "linear": (0, 50, 5, 1.0),
    "underdetermined": (20, 15, 20, 1.0),
    "nonlinear": (0, 50, 5, 0.0),
}
"""Place in the authors' chain of keys, samples, dimension and noise of their data sets."""


def marion_chizat(name: Literal["linear", "underdetermined", "nonlinear"]) -> Synthetic:
    """Draw a data set of the FM authors again, as their public code does.

    `"linear"` is behind FM-1 to FM-5 (n = 50, d = 5), `"underdetermined"` behind FM-6 (n = 15,
    d = 20) and `"nonlinear"` behind FM-7 (n = 50, d = 5, no noise). Drawn and scaled to ‖w*‖ = 1
    in float32, as they did, then kept in float64; processors may differ in the last bits.

    ```python
    import deeplin as dl
    problem = dl.problems.synthetic.marion_chizat("linear").problem
    assert abs(problem.alignment - 0.932805) < 1e-6
    ```
    """
    if name not in AUTHORS_DATA:
        raise InputError(f"name is {name!r}; pass one of {', '.join(AUTHORS_DATA)}.")
    place, n, d, noise = AUTHORS_DATA[name]
    with jax.threefry_partitionable(False):
        keys = [marion_chizat_key(k, marion_chizat_key(place)) for k in range(5)]
        shapes = ((n, d), (n, d), (d,), (n,), (n,))
        drawn = zip(keys, shapes, strict=True)
        X, X_test, truth, *errors = (jax.random.normal(key, s, jnp.float32) for key, s in drawn)
        y, y_test = (
            inputs @ truth + jnp.float32(noise) * error
            for inputs, error in zip((X, X_test), errors, strict=True)
        )
        norm = jnp.linalg.norm(jnp.linalg.lstsq(X, y)[0])
        drawn = (X, y / norm, X_test, y_test / norm, truth / norm)
    X, y, X_test, y_test, truth = (np.asarray(array, np.float64) for array in drawn)
    test = Problem.from_data(X_test, y_test)
    return Synthetic(Problem.from_data(X, y), test, truth, np.ones(d))


def marion_chizat_key(place: int, first: Array | None = None) -> Array:
    """Return the key at `place` in the chain `key, sub = split(key)` of the FM authors.

    The chain starts at PRNGKey(0), or at `first`.

    It uses the older, non-partitionable form of the generator, as the authors did.
    """
    with jax.threefry_partitionable(False):
        key = sub = jax.random.PRNGKey(0) if first is None else first
        for _ in range(place + 1):
            key, sub = jax.random.split(key)
    return sub


def from_spectrum(
    seed: int,
    spectrum: ArrayLike,
    *,
    samples: int,
    outputs: int = 3,
    noise: float = 1.0,
    truth: Any = None,
) -> Synthetic:
    """Draw Gaussian inputs with this population spectrum, and Y = XΘ* + noise (BO).

    `truth` is Θ*, (q, d) or (d,), in the eigenbasis; without one it is drawn with ‖Θ*‖_F = 1 for
    this number of `outputs`.
    """
    eigenvalues = finite_array("spectrum", spectrum, (1,))
    if eigenvalues.min() < 0 or eigenvalues.max() <= 0:
        raise InputError(
            f"spectrum runs from {eigenvalues.min():g} to {eigenvalues.max():g}; pass eigenvalues "
            "that are at least 0, one of them above 0."
        )
    n, d = whole_number("samples", samples), len(eigenvalues)
    positive_number("noise", noise, zero_allowed=True)
    rng = _generator(seed)
    if truth is None:
        columns = rng.normal(size=(d, whole_number("outputs", outputs)))
        columns /= np.linalg.norm(columns)
        truth = as_map(columns)
    else:
        truth = finite_array("truth", truth, (1, 2))
        if truth.shape[-1] != d:
            raise InputError(
                f"truth has shape {truth.shape} and the spectrum {d} eigenvalues; pass ({d},) "
                f"or (q, {d})."
            )

    def draw() -> Problem:
        X = rng.normal(size=(n, d)) * np.sqrt(eigenvalues)
        clean = X @ truth.T
        return Problem.from_data(X, clean + noise * rng.normal(size=clean.shape))

    return Synthetic(draw(), draw(), truth, eigenvalues)


def spiked(
    seed: int,
    dimension: int,
    *,
    samples: int = 100,
    outputs: int = 3,
    spikes: int = 10,
    epsilon: float = 0.01,
    noise: float = 1.0,
) -> Synthetic:
    """Draw data with a (k, ε)-spike, k eigenvalues 1 and d−k eigenvalues ε (BO-D3.3).

    The defaults are those of BO-1.
    """
    d, k = whole_number("dimension", dimension), whole_number("spikes", spikes, minimum=0)
    if k > d:
        raise InputError(f"{k} spikes do not fit in {d} dimensions; pass spikes ≤ dimension.")
    tail = positive_number("epsilon", epsilon, zero_allowed=True)
    spectrum = np.where(np.arange(d) < k, 1.0, tail)
    return from_spectrum(seed, spectrum, samples=samples, outputs=outputs, noise=noise)


def relu_teacher(
    seed: int,
    *,
    samples: int = 500,
    dimension: int = 10,
    outputs: int = 3,
    teacher_width: int = 10,
    noise: float = 1.0,
    test_samples: int = 5000,
) -> Synthetic:
    """Draw targets of a one-hidden-layer ReLU teacher without biases, plus noise (BO-2, as run).

    Teacher entries are uniform in ±1/√fan-in; the test set is noise-free.
    """
    n, d = whole_number("samples", samples), whole_number("dimension", dimension)
    q, m = whole_number("outputs", outputs), whole_number("teacher_width", teacher_width)
    positive_number("noise", noise, zero_allowed=True)
    rng = _generator(seed)
    first = rng.uniform(-1, 1, size=(m, d)) / np.sqrt(d)
    last = rng.uniform(-1, 1, size=(q, m)) / np.sqrt(m)

    def draw(count: int, noise: float) -> Problem:
        X = rng.normal(size=(count, d))
        Y = np.maximum(X @ first.T, 0) @ last.T + noise * rng.normal(size=(count, q))
        return Problem.from_data(X, Y)

    train = draw(n, noise)
    test = draw(whole_number("test_samples", test_samples), 0.0)
    return Synthetic(train, test, (first, last), np.ones(d))


def separable(
    seed: int, *, samples: int = 50, dimension: int = 5, margin: float = 0.1
) -> Synthetic:
    """Draw separable labels ±1 with every point at least `margin` from the plane (Talk-log)."""
    n, d = whole_number("samples", samples), whole_number("dimension", dimension)
    gap = positive_number("margin", margin)
    rng = _generator(seed)
    direction = rng.normal(size=d)
    direction /= np.linalg.norm(direction)

    def draw() -> Problem:
        X = rng.normal(size=(n, d))
        sides = X @ direction
        labels = np.where(sides >= 0, 1.0, -1.0)
        # Push every point away from the plane by the margin: separable by construction.
        return Problem.from_data(X + gap * labels[:, None] * direction, labels)

    return Synthetic(draw(), draw(), direction, np.ones(d))


def linear_attention(covariance: ArrayLike, context: int) -> Problem:
    """Return in-context linear regression by linear attention as a problem on cubic features.

    A prompt has N pairs (x_i, wᵀx_i) and a query x_q, with w ~ N(0, I) and inputs ~ N(0, Λ). Linear
    attention with merged key and query predicts wᵀx_q by Σ_h v_h⟨U_h, β x_qᵀ⟩, β = (1/N)Σ_i y_ix_i:
    a two-layer linear network on z = vec(βx_qᵀ) with one hidden unit for each head. The problem has
    the population's moments E zzᵀ = C ⊗ Λ, with C = (1 − 1/N)Λ² + (tr(Λ)Λ + 2Λ²)/N,
    E zy = vec Λ² and E y² = tr Λ.

    Args:
        covariance: Λ, (D, D).
        context: the number N of pairs in a prompt.

    ```python
    import deeplin as dl, numpy as np
    problem = dl.problems.synthetic.linear_attention(np.diag([0.4, 0.3, 0.2, 0.1]), context=31)
    assert abs(problem.minimal_risk - 0.13599507) < 1e-8
    ```

    References:
        Zhang, Singh, Latham and Saxe (2025), *Training dynamics of in-context learning in linear
        attention*.
    """
    Lambda = finite_array("covariance", covariance, (2,))
    count = whole_number("context", context)
    if Lambda.shape[0] != Lambda.shape[1] or not np.allclose(Lambda, Lambda.T, rtol=1e-12, atol=0):
        raise InputError(f"covariance has shape {Lambda.shape}; pass a symmetric matrix.")
    square = Lambda @ Lambda
    C = (1 - 1 / count) * square + (np.trace(Lambda) * Lambda + 2 * square) / count
    moments = np.kron(C, Lambda), square.ravel(), np.trace(Lambda)
    return Problem.from_moments(*moments, samples=count)


@dataclass(frozen=True, eq=False)
class MatrixCompletion:
    """Entries of a matrix of low rank: `loss` and `error` are functions of a network."""

    truth: np.ndarray
    """The matrix, (q, d)."""
    observed: np.ndarray
    """Which entries are observed, (q, d)."""

    def loss(self, network: Any) -> Array:
        """Return the mean squared error of the product on the observed entries."""
        return self._mean_square(network.product, self.observed)

    def error(self, network: Any) -> Array:
        """Return the mean squared error of the product on the entries that are not observed."""
        return self._mean_square(network.product, ~self.observed)

    def _mean_square(self, product: Array, where: np.ndarray) -> Array:
        return jnp.sum(jnp.where(where, product - self.truth, 0.0) ** 2) / max(where.sum(), 1)


def matrix_completion(
    seed: int, outputs: int, inputs: int, *, rank: int, share: float = 0.5
) -> MatrixCompletion:
    """Draw a matrix of low rank of which a random share of the entries is observed.

    The matrix is UVᵀ/√rank with Gaussian U and V. Its `loss` is not a function of a covariance, so
    pass it to `gradient_descent` as a loss of your own and record the product.

    Args:
        seed: of the draw.
        outputs: rows of the matrix.
        inputs: columns of the matrix.
        rank: rank of the matrix.
        share: the share of observed entries, above 0 and at most 1.

    ```python
    import deeplin as dl, jax
    task = dl.problems.synthetic.matrix_completion(0, 6, 6, rank=1, share=0.6)
    network = dl.initialize.gaussian(jax.random.key(0), widths=(6, 6, 6), scale=0.1)
    record = {"product": lambda network: network.product, "error": task.error}
    run = dl.gradient_descent(task.loss, network, 0.5, 100, record=record)
    ```
    """
    q, d = whole_number("outputs", outputs), whole_number("inputs", inputs)
    r = whole_number("rank", rank, maximum=min(q, d))
    if positive_number("share", share) > 1:
        raise InputError(f"share is {share:g}; pass the observed share, above 0 and at most 1.")
    rng = _generator(seed)
    truth = rng.normal(size=(q, r)) @ rng.normal(size=(r, d)) / np.sqrt(r)
    observed = np.zeros(q * d, bool)
    observed[rng.permutation(q * d)[: max(1, round(share * q * d))]] = True
    return MatrixCompletion(truth, observed.reshape(q, d))


def _generator(seed: int) -> np.random.Generator:
    # Sweeps seed a data set by a 64-bit word of its coordinates.
    return np.random.default_rng(whole_number("seed", seed, minimum=0, maximum=2**64 - 1))
