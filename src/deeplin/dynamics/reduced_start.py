"""The initial states of wide networks, drawn without forming any m-wide matrix (X-5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deeplin.errors import InputError, positive_number, whole_number
from deeplin.problems import Population, Problem

POWER_STEPS = 40
INSIDE, OUTSIDE = 0, 1
"""The two independent streams of random numbers that each key gives."""


@dataclass(frozen=True, eq=False)
class ReducedStart:
    """What the training of one wide network depends on: layers of width r, and a random stream.

    With X = R Qᵀ and V an orthonormal basis of span(W_1(0)Q, W_L(0)ᵀ), the layers are
    (VᵀW_1Q, I, …, I, W_LV). The outside part N = VᵀW_1(0)(I − P_X) (r×d) is needed only for Θ_⊥
    and is drawn again from the key whenever asked for, so that a batch does not hold it.
    """

    problem: Problem
    words: np.ndarray
    full_width: int
    """m, the width of the network that is never formed."""
    alpha: float
    beta: float
    layers: tuple[np.ndarray, ...]

    @classmethod
    def draw(
        cls, problem: Problem, words: np.ndarray, *, width: int, depth: int, alpha, beta
    ) -> ReducedStart:
        """The reduced state of BO-D2.3 at width m; below m = rank(X) + q it is the full one."""
        rank, q = problem.rank, problem.outputs
        random = _generator(words, INSIDE)
        if width >= rank + q:
            # The triangular factor of an m×r Gaussian matrix (Bartlett): rows of its orthonormal
            # factor, the basis V, never matter.
            factor = np.triu(random.standard_normal((rank + q, rank + q)), 1)
            factor[np.diag_indices_from(factor)] = np.sqrt(
                random.chisquare(width - np.arange(rank + q, dtype=np.float64))
            )
        else:
            factor = random.standard_normal((width, rank + q))
        middle = (np.eye(len(factor)),) * (depth - 2)
        layers = (alpha * factor[:, :rank], *middle, beta * factor[:, rank:].T)
        return cls(problem, words, width, alpha, beta, layers)

    @property
    def width(self) -> int:
        """r = min(m, rank(X) + q)."""
        return len(self.layers[0])

    def curvature(self) -> float:
        """About λ_max of ∇²R: its Gauss-Newton part for identity middle layers (X-1), from below.

        2λ_max(bΛ + ((L−2)b + 1)Λ^{1/2}A_1ᵀA_1Λ^{1/2}) with b = ‖A_L‖_2², by power iterations on the
        ρ×ρ matrix: three digits in under a millisecond. The exact value is `WideRun.stability`.
        """
        eigenvalues = self.problem.spectrum.eigenvalues
        scaled = self.layers[0] * np.sqrt(eigenvalues)
        b = np.linalg.norm(self.layers[-1], 2) ** 2
        weight = (len(self.layers) - 2) * b + 1
        vector, length = np.ones_like(eigenvalues), 0.0
        for _ in range(POWER_STEPS):
            vector = vector / np.linalg.norm(vector)
            image = np.einsum("ji,j->i", scaled, np.einsum("ji,i->j", scaled, vector))
            vector = b * eigenvalues * vector + weight * image
            length = np.linalg.norm(vector)
        return 2 * float(length)

    def outside(self) -> np.ndarray:
        """N = VᵀW_1(0)(I − P_X), r×d: α times a Gaussian matrix without its part on the data."""
        return self.alpha * self.problem.spectrum.beside(self._gaussian()).T

    def perpendicular(self, backward: np.ndarray) -> np.ndarray:
        """Θ_⊥ = NᵀV_1 (d×q) for backward products V_1 = A_2ᵀ…A_Lᵀ (r×q) (BO-L5.3)."""
        if self.alpha == 0:
            return np.zeros((self.problem.dimension, backward.shape[1]))
        return self.alpha * self.problem.spectrum.beside(self._gaussian() @ backward)

    def _gaussian(self) -> np.ndarray:
        random = _generator(self.words, OUTSIDE)
        return random.standard_normal((self.problem.dimension, self.width))


def _generator(words: np.ndarray, stream: int) -> np.random.Generator:
    """NumPy draws normals faster than JAX on a CPU, and nothing has to compile."""
    return np.random.default_rng(np.random.SeedSequence(words.tolist(), spawn_key=(stream,)))


class Cases(NamedTuple):
    """The runs to be simulated, one entry for each."""

    starts: tuple[ReducedStart, ...]
    populations: tuple[Population | None, ...]
    single: bool
    rates: np.ndarray
    """Steps on the mean loss."""

    def one_or_all(self, values: Sequence[Any]) -> Any:
        """A plain value for one run, an array for a batch."""
        return values[0] if self.single else np.array(values)

    def spread(self, name: str, values: Any) -> list:
        """One value for each run, of one for all or one for each."""
        return _spread(name, values, len(self.starts))


def cases_of(problem, words, population, depth, **values) -> Cases:
    """One case for each run, after checking what was passed."""
    problems = [problem] if isinstance(problem, Problem) else list(problem)
    single = words.ndim == 1 and isinstance(problem, Problem)
    for given in problems:
        _check_interpolates(given)
    if len({(p.samples, p.dimension, p.outputs) for p in problems}) != 1:
        raise InputError("the problems differ in shape; pass problems of one shape in each call.")
    keys = np.atleast_2d(words)
    runs = max(len(problems), len(keys))
    L = whole_number("depth", depth, minimum=2)
    problems = _spread("problem", problems, runs)
    keys = _spread("key", list(keys), runs)
    populations = _populations(population, problems)
    each = {name: _spread(name, given, runs) for name, given in values.items()}
    widths = [whole_number("width", m) for m in each["width"]]
    alphas, betas = (
        [positive_number(name, v, zero_allowed=True) for v in each[name]]
        for name in ("alpha", "beta")
    )
    rates = [positive_number("learning_rate", v) for v in each["learning_rate"]]
    starts = tuple(
        ReducedStart.draw(p, k, width=m, depth=L, alpha=a, beta=b)
        for p, k, m, a, b in zip(problems, keys, widths, alphas, betas, strict=True)
    )
    return Cases(starts, tuple(populations), single, np.array(rates))


def _spread(name: str, values: Any, runs: int) -> list:
    """One value for each run."""
    listed = values if isinstance(values, list) else np.atleast_1d(values).tolist()
    if len(listed) not in (1, runs):
        raise InputError(
            f"{name} holds {len(listed)} values for {runs} run(s); pass one, or one for each run."
        )
    return listed if len(listed) == runs else listed * runs


def _populations(population, problems: list[Problem]) -> list[Population | None]:
    if population is None:
        return [None] * len(problems)
    given = [population] if isinstance(population, Population) else list(population)
    spread = _spread("population", given, len(problems))
    for source, problem in zip(spread, problems, strict=True):
        source.require_fit(problem)
    return spread


def _check_interpolates(problem: Problem) -> None:
    """d > n and XXᵀ invertible: only then is there a minimum-norm interpolant (BO-A5)."""
    n, d = problem.samples, problem.dimension
    if d <= n:
        raise InputError(
            f"the problem has {d} inputs and {n} samples; interpolation of arbitrary targets needs "
            "more inputs than samples. Pass fewer samples, or use gradient_descent."
        )
    if problem.rank < n:
        raise InputError(
            f"XXᵀ is singular: the {n} rows of X have rank {problem.rank}. Remove repeated or "
            "dependent rows."
        )
