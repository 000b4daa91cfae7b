"""Wide networks in reduced coordinates: their initial states and simulated runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Num

from deeplin.dynamics.reduction import in_coordinates
from deeplin.dynamics.run import CONVERGED, DIVERGED, Records, Run, outcome_of
from deeplin.errors import InputError, positive_number, whole_number
from deeplin.hessian import sharpness
from deeplin.networks import Network, Trajectory
from deeplin.networks.products import product, squared_distance
from deeplin.problems import Population, Problem, require_problem
from deeplin.problems.problem import as_columns, as_map

POWER_STEPS = 40
INSIDE, OUTSIDE = 0, 1
"""The two independent streams of random numbers that each key gives."""


@dataclass(frozen=True, eq=False)
class ReducedStart:
    """Reduced initial state of one wide network: layers of width r, and a random stream.

    With X = R Qᵀ and V an orthonormal basis of span(W_1(0)Q, W_L(0)ᵀ), the layers are
    (VᵀW_1Q, I, …, I, W_LV). The outside part N = VᵀW_1(0)(I − P_X) (r×d) is needed only for Θ_⊥ and
    is drawn again from the key whenever it is used, so that a batch does not store it.
    """

    problem: Problem
    words: np.ndarray
    full_width: int
    """m, the width of the full network, which is never formed."""
    alpha: float
    beta: float
    layers: tuple[np.ndarray, ...]

    @classmethod
    def draw(
        cls, problem: Problem, words: np.ndarray, *, width: int, depth: int, alpha, beta
    ) -> ReducedStart:
        """Draw the reduced state of BO-D2.3 at width m; the full state below m = rank(X) + q."""
        rank, q = problem.rank, problem.outputs
        random = _generator(words, INSIDE)
        if width >= rank + q:
            # The triangular factor of an m×r Gaussian matrix (Bartlett decomposition); its
            # orthonormal factor, the basis V, is not needed.
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
        """Return an estimate of λ_max(∇²R) from below, for identity middle layers (X-1).

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
        """Return N = VᵀW_1(0)(I − P_X), (r, d): α times a Gaussian matrix, projected."""
        return self.alpha * self.problem.spectrum.orthogonal_part(self._gaussian()).T

    def perpendicular(self, backward: np.ndarray) -> np.ndarray:
        """Return Θ_⊥ = NᵀV_1 (d×q) for backward products V_1 = A_2ᵀ…A_Lᵀ (r×q) (BO-L5.3)."""
        if self.alpha == 0:
            return np.zeros((self.problem.dimension, backward.shape[1]))
        return self.alpha * self.problem.spectrum.orthogonal_part(self._gaussian() @ backward)

    def _gaussian(self) -> np.ndarray:
        random = _generator(self.words, OUTSIDE)
        return random.standard_normal((self.problem.dimension, self.width))


def _generator(words: np.ndarray, stream: int) -> np.random.Generator:
    """Return a NumPy generator, which is faster than JAX on a CPU and needs no compilation."""
    return np.random.default_rng(np.random.SeedSequence(words.tolist(), spawn_key=(stream,)))


class Cases(NamedTuple):
    """The runs to be simulated, one entry for each."""

    starts: tuple[ReducedStart, ...]
    populations: tuple[Population | None, ...]
    single: bool
    rates: np.ndarray
    """Steps on the mean loss."""

    def one_or_all(self, values: Sequence[Any]) -> Any:
        """Return a plain value for one run, an array for a batch."""
        return values[0] if self.single else np.array(values)


def cases_of(problem, words, population, depth, **values) -> Cases:
    """Check the arguments and return one case for each run."""
    problems = [problem] if isinstance(problem, Problem) else list(problem)
    single = words.ndim == 1 and isinstance(problem, Problem)
    for given in problems:
        _check_interpolates(given)
    if len({(p.samples, p.dimension, p.outputs) for p in problems}) != 1:
        raise InputError("the problems differ in shape; pass problems of one shape in each call.")
    keys = np.atleast_2d(words)
    runs = max(len(problems), len(keys))
    L = whole_number("depth", depth, minimum=2)
    problems = spread("problem", problems, runs)
    keys = spread("key", list(keys), runs)
    populations = _populations(population, problems)
    each = {name: spread(name, given, runs) for name, given in values.items()}
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


def spread(name: str, values: Any, runs: int) -> list:
    """Return one value for each run, from one for all or one for each."""
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
    sources = spread("population", given, len(problems))
    for source, problem in zip(sources, problems, strict=True):
        source.require_fit(problem)
    return sources


def _check_interpolates(problem: Problem) -> None:
    """Raise InputError unless d > n and XXᵀ is invertible, so that Θ_min exists (BO-A5)."""
    require_problem(problem)
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


# --- what a simulation returns -------------------------------------------------------------------


class UnstableStep(UserWarning):
    """A simulated descent diverged; the text gives the stability number and a step that works."""


class Course(NamedTuple):
    """One wide network in reduced coordinates at each record, from the start to the end."""

    when: Num[np.ndarray, " records"]
    """Step of descent, or time of the flow dW/dt = −∇R."""
    layers: Sequence[tuple[np.ndarray, ...]]
    """Reduced layers at each record."""
    risk: Float[np.ndarray, " records"]
    """R = ‖Y − XΘ‖²/n."""
    path: Float[np.ndarray, " records"]
    """∫√ℒ dt along dW/dt = −∇ℒ, ℒ = ‖Y − XΘ‖² (BO); for descent the sum over its steps."""
    status: str
    steps: int


@dataclass(frozen=True, eq=False, repr=False)
class WideRun:
    """Trained wide networks: Θ of the full ones, and a `Run` of the reduced ones.

    `wide.run` holds the reduced networks, with the original inputs and the reduced width. They have
    the product Θ(t) of the wide network at all times and are trained by the same dynamics, so every
    statement about deep linear networks applies to them: `certify(problem, wide)`. What a `Run` has
    (`network`, `records`, `trajectory`, `evidence`, …) is also at hand here.
    """

    cases: Cases
    courses: Sequence[Course]
    """One for each run, all with the same number of records."""
    learning_rate: float | Float[np.ndarray, " runs"] | None = None
    """η on R; None for flow."""
    momentum: float = 0.0
    dynamics: str = "descent"

    def __getattr__(self, name: str) -> Any:
        """Return what the run of the reduced networks has under this name."""
        if name.startswith("_") or name == "run":
            raise AttributeError(name)
        return getattr(self.run, name)

    def __len__(self) -> int:
        """Return the number of runs, 1 for a single run."""
        return len(self.courses)

    def __getitem__(self, index: int) -> Run:
        """Return the reduced network of one run of a batch."""
        return self.run[index]

    @property
    def single(self) -> bool:
        """Whether it is one run rather than a batch."""
        return self.cases.single

    @property
    def status(self) -> Any:
        """`converged`, `diverged` or `stopped`, as for `Run`."""
        return self._each(lambda _, course: course.status)

    @property
    def steps(self) -> Any:
        """Steps taken."""
        return self._each(lambda _, course: course.steps)

    @property
    def time(self) -> Any:
        """Where a flow ended; None for descent."""
        if self.dynamics != "flow":
            return None
        return self._each(lambda _, course: float(course.when[-1]))

    # --- the trained map ---------------------------------------------------------------------

    @cached_property
    def theta_perp(self) -> Float[np.ndarray, "*runs q d"] | Float[np.ndarray, "*runs d"]:
        """(I − P_X)Θ, in the shape of `theta` (BO-L5.3)."""
        return self._maps(lambda start, ends: start.perpendicular(product(ends[1:])))

    @cached_property
    def theta(self) -> Float[np.ndarray, "*runs q d"] | Float[np.ndarray, "*runs d"]:
        """W_L … W_1 of the full network, (q, d), or (d,) for one output."""
        inside = self._maps(  # P_XΘ = Q A_1ᵀV_1
            lambda start, ends: start.problem.spectrum.vectors @ product(ends)
        )
        return inside + self.theta_perp

    @cached_property
    def interpolant(self) -> Float[np.ndarray, "*runs q d"] | Float[np.ndarray, "*runs d"]:
        """Θ_min, the minimum-norm interpolant (BO-D2.5)."""
        return self._each(lambda start, _: np.ascontiguousarray(start.problem.optimum))

    @cached_property
    def distance(self) -> float | Float[np.ndarray, " runs"]:
        """‖Θ − Θ_min‖_F², squared."""
        axes = None if self.single else tuple(range(1, self.theta.ndim))
        return np.sum((self.theta - self.interpolant) ** 2, axis=axes)

    @cached_property
    def expected_distance(self) -> float | Float[np.ndarray, " runs"]:
        """α²(d−n)‖U‖², the mean of ‖Θ_⊥‖² given the trained U = W_2ᵀ…W_Lᵀ (X-25).

        Its mean over runs is that of `distance` at interpolation, without the variance of the
        random directions orthogonal to the data.
        """

        def expected(start: ReducedStart, course: Course) -> float:
            free = start.problem.dimension - start.problem.rank
            return start.alpha**2 * free * float(np.sum(product(course.layers[-1][1:]) ** 2))

        return self._each(expected)

    @cached_property
    def risk(self) -> float | Float[np.ndarray, " runs"] | None:
        """Tr((Θ−Θ*)ᵀΣ(Θ−Θ*)), exact (BO-risk); None unless a population was passed."""
        return self._risks(lambda source, theta, _: float(source.risk(as_map(theta))))

    @cached_property
    def added_risk(self) -> float | Float[np.ndarray, " runs"] | None:
        """Tr(Θ_⊥ᵀΣΘ_⊥), what Θ_⊥ always adds to the risk; None unless a population was passed."""
        return self._risks(lambda source, _, part: float(np.sum(part * source.apply(part))))

    @cached_property
    def cross_term(self) -> float | Float[np.ndarray, " runs"] | None:
        """2Tr((P_XΘ−Θ*)ᵀΣΘ_⊥): mean 0 over the start (X-25), negative where Θ_⊥ helps (X-33).

        Risk(Θ) = Risk(P_XΘ) + `added_risk` + `cross_term`, and P_XΘ = Θ_min at interpolation. None
        unless a population was passed.
        """

        def cross(source: Population, theta: np.ndarray, part: np.ndarray) -> float:
            return 2 * float(np.sum((theta - part - source.optimum_columns) * source.apply(part)))

        return self._risks(cross)

    def _risks(self, quantity: Callable[[Population, np.ndarray, np.ndarray], float]) -> Any:
        """Return a quantity of the population, Θ and Θ_⊥ (d×q) for each run."""
        values = []
        for run, source in enumerate(self.cases.populations):
            if source is None:
                return None
            theta, perpendicular = (
                as_columns(maps if self.single else maps[run], source.outputs)
                for maps in (self.theta, self.theta_perp)
            )
            values.append(quantity(source, theta, perpendicular))
        return self.cases.one_or_all(values)

    @property
    def starts(self) -> tuple[ReducedStart, ...]:
        """The reduced initial state of each run."""
        return self.cases.starts

    # --- how it got there --------------------------------------------------------------------

    @property
    def loss(self) -> float | Float[np.ndarray, " runs"]:
        """Mean squared error over the n·q entries at the end, as the BO authors count it."""
        return self._each(lambda _, course: float(course.risk[-1]) / self._outputs)

    @property
    def path(self) -> float | Float[np.ndarray, " runs"]:
        """∫√ℒ dt in the time of BO (BO-L4.5, BO-L5.5)."""
        return self._each(lambda _, course: float(course.path[-1]))

    @cached_property
    def stability(self) -> float | Float[np.ndarray, " runs"]:
        """η·λ_max(∇²R) at the start; descent is stable there below 2 + 2β.

        λ_max is over the directions in which the network can move, computed on first use.
        """
        rates = np.atleast_1d(np.asarray(self.learning_rate, float))
        values = []
        for rate, start in zip(rates, self.starts, strict=True):
            problem = in_coordinates(start.problem, start.problem.spectrum.vectors)
            largest = sharpness(problem, Network(start.layers), method="lanczos").value
            values.append(float(rate * largest))
        return self.cases.one_or_all(values)

    @property
    def message(self) -> str:
        """Advice if not every run converged; empty otherwise."""
        status = np.atleast_1d(np.asarray(self.status))
        parts = []
        lost = np.flatnonzero(status == DIVERGED)
        if len(lost):
            parts.append(f"{len(lost)} of {len(status)} run(s) diverged: {self._instability(lost)}")
        unfinished = ~np.isin(status, (CONVERGED, DIVERGED))
        if np.any(unfinished):
            loss = float(np.max(np.atleast_1d(self.loss)[unfinished]))
            parts.append(
                f"{np.sum(unfinished)} of {len(status)} run(s) stopped at a loss of up to "
                f"{loss:.3g}; raise max_steps or loss_target."
            )
        return " ".join(parts)

    def _instability(self, lost: np.ndarray) -> str:
        """Return the stability number of diverged runs, and what to pass instead."""
        sharpest = max(self.starts[run].curvature() for run in lost) / self._outputs
        rate = self._outputs * np.max(np.atleast_1d(np.asarray(self.learning_rate))[lost])
        limit = 2 + 2 * self.momentum
        number = f"η·λ_max is about {rate * sharpest:.3g} at the start"
        if rate * sharpest < limit:
            return (
                f"{number}, stable there (below {limit:.3g}), but the sharpness grew in training; "
                f"pass learning_rate below {rate / 2:.2g}."
            )
        return (
            f"{number} and descent is stable below {limit:.3g}; pass learning_rate below "
            f"{limit / sharpest:.2g}."
        )

    def __repr__(self) -> str:
        widths = sorted({start.width for start in self.starts})
        note = f"; {self.message}" if self.message else ""
        outcome = outcome_of(self.status)
        return f"WideRun({outcome} by {self.dynamics}; reduced width {widths}{note})"

    # --- as a run of networks ----------------------------------------------------------------

    @cached_property
    def run(self) -> Run:
        """The run of the reduced networks.

        Its records: `step` or `time`, `risk` (R), `loss` (R/q), `path` (∫√ℒ), `perpendicular`
        (‖Θ_⊥‖), `distance`, and the operator norms of the layers that carry the product,
        `layer_norms` (…, L), with `bound` = Π_k max(1, ‖W_k‖_2) (BO-D2.4). A run that stopped
        earlier repeats its end. Its evidence: `risk` and `path` at the end, and what the wide
        network was, `width`, `alpha` and `beta`.
        """
        networks = [self._networks(k) for k in range(len(self.courses[0].when))]
        widths = {start.full_width for start in self.starts}
        evidence = {
            "risk": self._each(lambda _, course: float(course.risk[-1])),
            "path": self.path,
            "width": widths.pop() if len(widths) == 1 else self._each(lambda s, _: s.full_width),
            "alpha": self._each(lambda start, _: start.alpha),
            "beta": self._each(lambda start, _: start.beta),
        }
        return Run(
            networks[-1],
            networks[0],
            self.status,
            self.steps,
            self._records(),
            Trajectory.of(networks, batched=not self.single),
            self.learning_rate,
            self.momentum,
            evidence | ({} if self.time is None else {"time": self.time}),
            self.dynamics,
        )

    def as_run(self, index: int = 0) -> Run:
        """Return the reduced network of one run as a plain `Run`."""
        return self.run if self.single else self.run[index]

    def _records(self) -> Records:
        """Return the quantities at each record, (records,) or (records, runs)."""
        runs = [
            {"risk": course.risk, "loss": course.risk / self._outputs, "path": course.path}
            | _measured(start, course.layers)
            for start, course in zip(self.starts, self.courses, strict=True)
        ]
        columns = {name: np.stack([r[name] for r in runs], axis=1) for name in runs[0]}
        if self.single:
            columns = {name: values[:, 0] for name, values in columns.items()}
        when = np.max([course.when for course in self.courses], axis=0)
        return Records({"time" if self.dynamics == "flow" else "step": when} | columns)

    # --- inside ------------------------------------------------------------------------------

    @property
    def _outputs(self) -> int:
        return self.starts[0].problem.outputs

    def _each(self, quantity: Callable[[ReducedStart, Course], Any]) -> Any:
        """Return a quantity of each run."""
        pairs = zip(self.starts, self.courses, strict=True)
        return self.cases.one_or_all([quantity(start, course) for start, course in pairs])

    def _maps(self, quantity: Callable[[ReducedStart, tuple[np.ndarray, ...]], np.ndarray]) -> Any:
        """Return the linear map of the columns for each run and its last layers."""
        return self._each(
            lambda start, course: np.ascontiguousarray(as_map(quantity(start, course.layers[-1])))
        )

    def _networks(self, record: int) -> Network:
        """Return reduced layers with the original inputs: W̃_1 = A_1Qᵀ + N, the others unchanged.

        Layers of smaller width are padded with zeros, which training preserves.
        """
        members = []
        for start, outside, course in zip(self.starts, self._outside, self.courses, strict=True):
            first, *others = course.layers[record]
            members.append((first @ start.problem.spectrum.vectors.T + outside, *others))
        if self.single:
            return Network(members[0])
        stacked = []
        for layers in zip(*members, strict=True):
            stacked.append(np.zeros((len(layers), *np.max([w.shape for w in layers], axis=0))))
            for whole, layer in zip(stacked[-1], layers, strict=True):
                whole[: len(layer), : layer.shape[1]] = layer
        return Network(stacked)

    @cached_property
    def _outside(self) -> list[np.ndarray]:
        return [start.outside() for start in self.starts]


def _measured(
    start: ReducedStart, records: Sequence[tuple[np.ndarray, ...]]
) -> dict[str, np.ndarray]:
    """Return the quantities of one run at each record that need its layers."""
    outside = start.outside()
    gram = outside @ outside.T
    rows = []
    for layers in records:
        backward = product(layers[1:])
        difference = layers[0].T @ backward - start.problem.spectrum.coordinates
        perpendicular = max(np.sum(backward * (gram @ backward)), 0.0)
        first = np.linalg.norm(layers[0] @ layers[0].T + gram, 2) ** 0.5
        norms = [first, *(np.linalg.norm(layer, 2) for layer in layers[1:])]
        rows.append(
            {
                "perpendicular": np.sqrt(perpendicular),
                "distance": squared_distance(difference) + perpendicular,
                "layer_norms": np.array(norms),
                "bound": np.prod(np.maximum(norms, 1.0)),
            }
        )
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
