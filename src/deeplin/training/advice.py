"""Learning rates for a given optimizer and loss, in closed form and from simulated training.

`TrainingSpec` describes the optimizer and the loss, `advise` computes the exact learning rates for
them, and `try_starts` finds by simulation a learning rate for a given kind of initialization.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike

from deeplin.dynamics import gradient_descent
from deeplin.errors import InputError, positive_number, seed_number, whole_number
from deeplin.execution import share_compiled_code
from deeplin.networks import Network
from deeplin.networks.initialize import FRAMEWORK_STARTS, default_width, framework_layers
from deeplin.problems import Problem
from deeplin.problems.losses import Loss
from deeplin.theory import (
    balanced_sharpness,
    critical_learning_rate,
    decayed_minimum,
    minimal_sharpness,
    stability_limit,
    stochastic_sharpness,
    stochastic_sharpness_bound,
)
from deeplin.theory.critical_rate import effective_sharpness
from deeplin.theory.minimizers import balanced_factors, balanced_network
from deeplin.theory.weight_decay import DecayedMinimum

REDUCTIONS = ("mean", "sum")
OPTIMIZER_NAMES = {
    "descent": "gradient descent",
    "sam": "SAM (ρ = {:g})",
    "adam": "Adam",
    "rmsprop": "RMSProp",
}
LOSS_NAMES = {
    "squared": "squared error",
    "logistic": "log-loss",
    "softmax": "log-loss",
    "poisson": "Poisson loss",
    "huber": "Huber loss",
}

ADVISED_FRACTION = 0.5
"""Fraction of the largest stable rate that is advised: the sharpness may be larger on the way."""
DEFAULT_ADAPTIVE_RATE = 1e-3
"""Learning rate advised for Adam and RMSProp, the usual default of Adam."""
INTERPOLATION_TOLERANCE = 1e-16
"""Largest R_min/R_0 at which data count as interpolated (residuals of 1e-8 of the targets)."""

TRIED_STARTS = (*FRAMEWORK_STARTS, "small")
TRIED_RATES = 8
"""Number of rates tried at once from each start."""
MAX_STARTS, MIN_STARTS = 16, 4
MAX_TRIAL_STEPS, MIN_TRIAL_STEPS = 300, 60
"""Bounds on the number of steps of a trial, enough for a rate that is too large to diverge."""
MAX_STEPS = 20_000
"""Most steps of the run that measures how many steps training takes."""
MAX_STEPS_ON_BATCHES = 3_000
"""The same on mini-batches with gradient noise at the solution, where longer runs gain little."""
WORK_BUDGET = 1e9
"""Weights times networks times steps of one call, about a second; limits starts and steps."""
RATE_REDUCTION, MAX_REDUCTIONS = 0.85, 18
"""Factor applied to the rate when one of the new starts diverges, and the most attempts."""
MAX_RATE_GRIDS = 4
"""Most grids of rates searched, each below the one before: down to 2^-32 of the critical rate."""
MAX_ADAPTIVE_RATE = 0.2
"""Largest rate tried for Adam and RMSProp; it is lowered until all starts learn."""
LEARNED_FRACTION = 0.01
"""A network has learned when at most this fraction of R_0 − R_min remains."""
SEPARABLE_LEARNED_FRACTION = 0.1
"""The same for separable classes, where the log-loss has no minimum and tends to 0."""


@dataclass(frozen=True)
class TrainingSpec:
    """Optimizer and loss, which together determine the stable learning rates.

    The loss is ‖Y − XΘᵀ‖² summed over the targets (the log-loss for classes) and averaged or
    summed over the samples of a batch (`reduction`), with or without a factor ½, plus
    `weight_decay` · Σ_k‖W_k‖_F².

    `optimizer` is "descent", "sam" (θ ← θ − η∇F(θ + ρ∇F(θ)), X-23), "adam" or "rmsprop" (with
    `beta1` for Adam, and `epsilon` added outside the square root; X-24).

    ```python
    from deeplin.training import TrainingSpec
    assert "momentum 0.9" in str(TrainingSpec(momentum=0.9))
    ```
    """

    momentum: float = 0.0
    nesterov: bool = False
    batch_size: int | None = None
    weight_decay: float = 0.0
    reduction: str = "mean"
    half: bool = False
    optimizer: str = "descent"
    rho: float = 0.05
    beta1: float = 0.9
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        if self.reduction not in REDUCTIONS:
            raise InputError(f"reduction is {self.reduction!r}; pass 'mean' or 'sum'.")
        if self.optimizer not in OPTIMIZER_NAMES:
            names = ", ".join(OPTIMIZER_NAMES)
            raise InputError(f"optimizer is {self.optimizer!r}; pass one of {names}.")
        positive_number("weight_decay", self.weight_decay, zero_allowed=True)
        positive_number("rho", self.rho, zero_allowed=True)
        positive_number("epsilon", self.epsilon)
        if not 0 <= positive_number("beta1", self.beta1, zero_allowed=True) < 1:
            raise InputError(f"beta1 is {self.beta1:g}; pass a number from 0 to below 1.")
        if self.nesterov and not self.momentum:
            raise InputError("nesterov needs momentum; pass momentum between 0 and 1 with it.")
        if self.momentum and self.adaptive:
            raise InputError(f"{self.optimizer} takes no momentum; pass momentum=0.")
        if self.batch_size is not None:
            whole_number("batch_size", self.batch_size)
            if self.optimizer == "sam":
                raise InputError("SAM on batches is not covered; pass batch_size=None.")

    @property
    def adaptive(self) -> bool:
        """Whether the optimizer is Adam or RMSProp, which divide by a root mean square."""
        return self.optimizer in ("adam", "rmsprop")

    def loss_factor(self, problem: Problem) -> float:
        """Return the ratio of the loss without weight decay to R, the mean loss without ½."""
        if self.half and problem.classes is not None:
            raise InputError("half is for squared errors; the log-loss has no factor ½.")
        samples = self.batches(problem) or problem.samples
        return (samples if self.reduction == "sum" else 1) * (0.5 if self.half else 1.0)

    def rate_factor(self, problem: Problem) -> float:
        """Return the ratio of a learning rate on R to the same rate on the loss; 1 for Adam."""
        return 1.0 if self.adaptive else self.loss_factor(problem)

    def decay(self, problem: Problem) -> float:
        """Return λ of the objective R + λΣ‖W_k‖² that is proportional to the loss."""
        return self.weight_decay / self.loss_factor(problem)

    def radius(self, problem: Problem) -> float:
        """Return ρ of SAM on R, or 0 for other optimizers."""
        return self.rho * self.loss_factor(problem) if self.optimizer == "sam" else 0.0

    def epsilon_on_risk(self, problem: Problem) -> float:
        """Return ε of Adam on R."""
        return self.epsilon / self.loss_factor(problem)

    def batches(self, problem: Problem) -> int | None:
        """Return the batch size, or None if each batch holds all samples."""
        full = self.batch_size is None or self.batch_size >= problem.samples
        return None if full else self.batch_size

    def settings(self, problem: Problem, seed: int | Array = 0) -> dict[str, Any]:
        """Return the keyword arguments of `gradient_descent` on R for this loss and optimizer.

        `seed`, a number or a key, determines the mini-batches.
        """
        decay = self.decay(problem)
        settings: dict[str, Any] = {"weight_decay": decay}
        if self.optimizer == "descent":
            settings |= {"momentum": self.momentum, "nesterov": self.nesterov}
        elif self.optimizer == "sam":
            made = _sam(self.radius(problem), decay, self.momentum, self.nesterov)
            settings |= {"optimizer": made}
        else:
            beta1 = self.beta1 if self.optimizer == "adam" else None
            settings |= {"optimizer": _adaptive(beta1, self.epsilon_on_risk(problem))}
        batch = self.batches(problem)
        if batch is not None:
            key = jax.random.key(seed) if isinstance(seed, int) else seed
            settings |= {"batch_size": batch, "key": key}
        return settings

    def described(self, loss: Loss = "squared") -> str:
        """Return a description of the optimizer and the loss."""
        kind = OPTIMIZER_NAMES[self.optimizer].format(self.rho)
        batches = f"{kind} on batches of {self.batch_size}"
        kind = f"full-batch {kind}" if self.batch_size is None else batches
        if self.momentum:
            kind += f" with {'Nesterov ' if self.nesterov else ''}momentum {self.momentum:g}"
        error = LOSS_NAMES.get(loss, "loss") if isinstance(loss, str) else "loss"
        plural = f"{error}es" if error.endswith("loss") else f"{error}s"
        error = f"mean {error}" if self.reduction == "mean" else f"sum of {plural}"
        factor = "half the" if self.half else "the"
        unit = " (no ½)" if loss == "squared" and not self.half else ""
        decay = f" plus {self.weight_decay:g}·Σ‖W‖²" if self.weight_decay else ""
        return f"{kind} on {factor} {error}{unit}{decay}"

    def __str__(self) -> str:
        return self.described()


Optimizer = TrainingSpec
"""Former name of `TrainingSpec`, needed to load estimators pickled by version 0.2."""


@lru_cache  # return the same object for equal settings: descent compiles once for each object
def _sam(radius: float, decay: float, momentum: float, nesterov: bool) -> Any:
    """Return a function from a rate to SAM, which takes the gradient of R + λΣ‖W‖² at θ + ρ∇."""
    import optax

    def ascended(gradient, state, params, *, grad_fn, **extra):
        away = jax.tree.map(lambda w, g: w + radius * g, params, gradient)
        return jax.tree.map(lambda g, w: g + 2 * decay * w, grad_fn(away), away), state

    init = optax.identity().init
    first = optax.GradientTransformationExtraArgs(init, ascended)  # pyright: ignore
    return lambda rate: optax.chain(first, optax.sgd(rate, momentum or None, nesterov))


@lru_cache
def _adaptive(beta1: float | None, epsilon: float) -> Any:
    """Return a function from a rate to Adam, or to RMSProp if `beta1` is None."""
    import optax

    if beta1 is None:
        return lambda rate: optax.rmsprop(rate, 0.99, epsilon, eps_in_sqrt=False)
    return lambda rate: optax.adam(rate, b1=beta1, eps=epsilon)


# --- rates in closed form ------------------------------------------------------------------------


@dataclass(frozen=True)
class Advice:
    """The advised and the critical learning rate of one depth, and the sharpness behind them."""

    depth: int
    learning_rate: float
    """Half of the largest rate at which plain descent is stable where small initializations end,
    times 1 − β with momentum; a common default for Adam and RMSProp."""
    critical_learning_rate: float
    """The rate above which no minimizer is stable (FM-crit, X-7, X-9, X-10, X-14, X-23, X-24); on
    batches with momentum, the exact limit at the solution where small starts end; NaN where none
    is known (a remark says why)."""
    lower: float
    minimal_sharpness: float
    """S_min (X-2, X-7, X-14, X-17), between the bounds `lower` and `upper` of FM-T2; NaN without a
    minimizer."""
    upper: float
    balanced_sharpness: float
    """S_bal (X-3), the sharpness where small initializations end."""
    certain: bool = True
    """Whether no run settles above the critical rate. On batches the critical rate is that of the
    mean square, which rare excursions dominate: a single run may settle above it."""
    settles: bool = True
    """Whether training can settle at a constant rate: on batches only if R_min = 0 (X-10), and
    never if the risk has no minimizer (X-16)."""
    remarks: tuple[str, ...] = ()
    """Remarks on this combination of data, optimizer and loss."""
    excess: float = 0.0
    """R − R_min at the solution that training approaches; positive only with weight decay."""


def advise(
    problem: Problem,
    depth: int,
    optimizer: TrainingSpec | None = None,
    *,
    readout: ArrayLike | None = None,
) -> Advice:
    """Return the learning rate for a network of this depth, in the units of the user's loss.

    Small initializations end near the balanced minimizer, which is stable up to (2+2β)/S_bal (X-3);
    with weight decay, at the global minimizer of sharpness S_λ (X-9, X-15). On batches the
    stability of the second moment counts, S_B (X-10). For SAM, S(1 + ρS) replaces S (X-23). The
    advised rate is half of the largest rate at which plain descent is stable there. With momentum β
    it is multiplied by 1 − β: each gradient then moves the weights by η/(1 − β) in total, and this
    effective step limits the rate on the way to the solution. `try_starts` measures the rate for
    starts that are not small, and for Adam (X-24).

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training import TrainingSpec, advise
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X @ np.ones(5))
    advice = advise(problem, depth=10, optimizer=TrainingSpec(momentum=0.9))
    assert advice.learning_rate < advice.critical_learning_rate
    ```
    """
    spec, L = optimizer or TrainingSpec(), whole_number("depth", depth)
    decay, batch = spec.decay(problem), spec.batches(problem)
    known = not decay or problem.loss != "softmax"
    minimum = decayed_minimum(problem, L, decay, readout) if decay and known else None
    lower = exact = upper = balanced = math.nan
    if problem.has_minimizer:
        flattest = minimal_sharpness(problem, L, readout)
        lower, exact, upper = flattest.lower, flattest.exact, flattest.upper
        balanced = balanced_sharpness(problem, L, readout)
    if minimum is not None:
        lowest = end = minimum.sharpness
    elif problem.has_minimizer:
        lowest, end = exact if known else math.nan, balanced
    else:
        lowest, end = math.nan, _sharpness_near_zero(problem, L)
    limit = stability_limit(spec.momentum, nesterov=spec.nesterov)
    critical = limit / effective_sharpness(lowest, spec.radius(problem))
    settles = minimum is not None or (problem.has_minimizer and known)
    if spec.adaptive:
        beta1 = spec.beta1 if spec.optimizer == "adam" else 0.0
        critical = spec.epsilon_on_risk(problem) * (2 + 2 * beta1) / ((1 - beta1) * lowest)
    remarks = (*_remarks_on_minimum(problem, minimum, known), *_remarks_on_optimizer(spec, settles))
    if batch is not None:
        settles = settles and minimum is None and problem.residual_share <= INTERPOLATION_TOLERANCE
        end, critical, more = _rates_on_batches(problem, L, batch, spec, minimum, readout, end)
        remarks += more
    elif spec.batch_size is not None and spec.batch_size > problem.samples:
        remarks += (f"A batch of {spec.batch_size} holds all {problem.samples} samples.",)
    pace = (1 - spec.momentum) * stability_limit()
    rate = float(np.fmin(ADVISED_FRACTION * pace / end, ADVISED_FRACTION * critical))
    factor = spec.rate_factor(problem)
    return Advice(
        L,
        DEFAULT_ADAPTIVE_RATE if spec.adaptive else rate / factor,
        critical / factor,
        lower,
        exact,
        upper,
        balanced,
        batch is None,
        settles,
        remarks,
        0.0 if minimum is None else max(minimum.risk - problem.minimal_risk, 0.0),
    )


def _sharpness_near_zero(problem: Problem, depth: int) -> float:
    """Return L·λ_max(∇²R(0)), the sharpness of L layers of norm one while predictions are small.

    It replaces S_bal where the risk has no minimizer; simulated starts correct it.
    """
    X, _ = problem.require_data("a rate for classes")
    curvature = 1 / 4 if problem.outputs == 1 else 1 / problem.outputs  # λ_max(φ'') at 0
    return depth * curvature * float(np.linalg.norm(X, 2)) ** 2 / problem.samples


def _rates_on_batches(
    problem: Problem,
    depth: int,
    batch: int,
    spec: TrainingSpec,
    minimum: DecayedMinimum | None,
    readout: ArrayLike | None,
    sharpness: float,
) -> tuple[float, float, tuple[str, ...]]:
    """Return S_B of plain descent where small starts end, the critical rate (or NaN), and remarks.

    S_B is exact for one output without weight decay and read-out (X-10), and a bound otherwise.
    `sharpness` is that of the full batch at the solution where small starts end.
    """
    remarks: tuple[str, ...] = ()
    if problem.loss != "squared" or spec.adaptive:
        remarks = (
            f"On batches with this {'loss' if problem.loss != 'squared' else 'optimizer'} no "
            "critical rate is known, and at a constant learning rate training fluctuates around "
            "the solution, the less the smaller the rate. Lower the rate towards the end.",
        )
        return sharpness, math.nan, remarks
    interpolated = problem.residual_share <= INTERPOLATION_TOLERANCE
    if minimum is not None or not interpolated:
        why = "With weight decay no minimum" if minimum is not None else "No linear map"
        remarks = (
            f"{why} fits these data exactly, so at a constant learning rate training on "
            "batches does not settle: it fluctuates around the solution, the less the smaller the "
            "rate. Lower the rate towards the end.",
        )
    if problem.outputs == 1 and minimum is None and readout is None:
        end = balanced_network(problem, depth)
        plain = stochastic_sharpness(problem, end, batch, linearized=not interpolated)
        limit = plain.critical_learning_rate
        if spec.nesterov:
            limit = math.nan
            remarks += ("On batches with Nesterov's momentum no critical rate is known.",)
        elif interpolated and not spec.momentum:
            limit = critical_learning_rate(problem, depth, batch_size=batch)
        elif spec.momentum:
            limit = stochastic_sharpness(
                problem, end, batch, momentum=spec.momentum, linearized=not interpolated
            ).critical_learning_rate
            remarks += (
                "On batches with momentum the critical rate is the exact limit of the mean square "
                "at the solution where small starts end; others may be stable at slightly larger "
                "rates.",
            )
        return plain.value, limit, remarks
    if minimum is None:
        product = problem.optimum.reshape(problem.dimension, -1)
        fixed = None if readout is None else np.asarray(readout)
        end, decay = balanced_factors(product, depth, readout=fixed), 0.0
    else:
        end, decay = minimum.network, minimum.weight_decay
    bound = stochastic_sharpness_bound(problem, end, batch, weight_decay=decay)
    remarks += (
        "On batches the exact rates are known for one target without weight decay and read-out. "
        "Here no critical rate is known; the rate to use keeps the mean square stable by a bound "
        "(the sharpest single sample).",
    )
    return bound, math.nan, remarks


def _remarks_on_minimum(
    problem: Problem, minimum: DecayedMinimum | None, known: bool
) -> tuple[str, ...]:
    """Return remarks on the solution that training approaches."""
    if not known:
        return ("With weight decay the critical rate of more than two classes is not known.",)
    if minimum is None and not problem.has_minimizer:
        return (
            "A hyperplane separates the classes (a linear program decides it), so that there is no "
            "solution: the loss tends to 0 as the weights grow without end, and the sharpness with "
            "it. No rate is critical: one that brings every row to its class can go on forever. "
            "With two layers or more a rate that is too large diverges before that. Weight decay "
            "gives a solution (--weight-decay).",
        )
    if minimum is not None and minimum.collapsed:
        return (
            "This weight decay is so strong that the best network is the zero network: nothing is "
            "learned. Use a smaller one.",
        )
    if minimum is not None and not minimum.certified:
        return (
            "The learning rates are those of the best network found with this weight decay; with "
            "several targets and so strong a weight decay it is not proved to be the best.",
        )
    return ()


def _remarks_on_optimizer(spec: TrainingSpec, settles: bool) -> tuple[str, ...]:
    """Return remarks on how far the critical rate of SAM or Adam is exact."""
    if not settles or spec.batch_size is not None:
        return ()
    if spec.adaptive:
        name = OPTIMIZER_NAMES[spec.optimizer]
        return (
            f"The critical rate of {name} is exact, but about its last steps only: above it "
            f"{name} comes close to a solution, leaves it again, and returns. Use the rate at "
            "which simulated starts learn; lower it towards the end.",
        )
    if spec.optimizer == "sam":
        return (
            "The critical rate is exact for SAM whose perturbation is ρ times the gradient; with "
            "the perturbation divided by its norm no constant rate settles.",
        )
    return ()


# --- rates from simulated starts -----------------------------------------------------------------


@dataclass(frozen=True)
class Trials:
    """Results of simulated training from several starts of one kind."""

    initialization: str
    depth: int
    width: int
    learning_rate: float
    """The rate to use, at which none of the starts diverges."""
    steps: int | None
    """Steps that the slowest of the starts that learned needed; None if no start learned."""
    starts: int
    learned: int
    """Number of starts that learned 99 % of what there is to explain within `most_steps`."""
    most_steps: int


def try_starts(
    problem: Problem,
    depth: int,
    initialization: str = "torch",
    optimizer: TrainingSpec | None = None,
    *,
    width: int | None = None,
    seed: int = 0,
    advice: Advice | None = None,
) -> Trials:
    """Find a learning rate that works from starts of this kind, by training some of them.

    All starts are trained at several rates at once, from the critical rate downward (above it
    nothing settles). The search ends at the largest rate at which all starts stay bounded, or at
    half of the critical rate. This rate is lowered until none of eight times as many new starts
    diverges (for Adam and RMSProp, until all of them learn); their longer runs measure the number
    of steps. `initialization` is `torch`, `xavier`, `he`, `orthogonal` (see
    `initialize.framework_layers`), or `small` (Gaussian, half of the solution's size in each
    layer).

    ```python
    import deeplin as dl, jax, numpy as np
    from deeplin.training import try_starts
    jax.config.update("jax_enable_x64", True)
    X = np.random.default_rng(0).normal(size=(50, 3))
    trials = try_starts(dl.Problem.from_data(X, X @ np.ones(3)), depth=3, initialization="xavier")
    assert trials.learned == trials.starts
    ```
    """
    spec = optimizer or TrainingSpec()
    known = advice or advise(problem, depth, spec)
    rows = problem.samples * problem.dimension if problem.loss != "squared" else 0
    m = default_width(problem) if width is None else whole_number("width", width)
    widths = (problem.dimension, *[m] * (known.depth - 1), problem.outputs)
    size = rows + sum(o * i for i, o in pairwise(widths))
    count = int(
        np.clip(WORK_BUDGET / (size * TRIED_RATES * MAX_TRIAL_STEPS), MIN_STARTS, MAX_STARTS)
    )
    steps = int(
        np.clip(WORK_BUDGET / (size * TRIED_RATES * count), MIN_TRIAL_STEPS, MAX_TRIAL_STEPS)
    )
    seed = seed_number(seed)
    rng = np.random.default_rng(seed)

    def draw(number: int) -> list[np.ndarray]:
        """Return this number of starts, stacked layer by layer."""
        layers = [_draw_layers(initialization, problem, rng, widths) for _ in range(number)]
        return [np.stack(layer) for layer in zip(*layers, strict=True)]

    starts = draw(count)
    settings = spec.settings(problem, seed)
    share_compiled_code()  # compilation takes longer than the trials
    factor = spec.rate_factor(problem)

    def bounded(rates: np.ndarray) -> np.ndarray:
        """Return for each rate whether the gap of no start grows by more than `zero_gap`."""
        nets = Network([np.repeat(layer, len(rates), axis=0) for layer in starts])
        run = gradient_descent(problem, nets, np.tile(rates, count) * factor, steps, **settings)
        gap = np.asarray(run.evidence["gap"]).reshape(count, len(rates))
        start_gap = problem.zero_gap + _gaps(problem, starts)
        return np.all((gap <= start_gap[:, None]) & np.isfinite(gap), axis=0)

    top = known.critical_learning_rate
    if spec.adaptive:
        top = MAX_ADAPTIVE_RATE
    elif not np.isfinite(top):
        top = 16 * known.learning_rate if not problem.has_minimizer else 4 * known.learning_rate
    rate = min(_largest_bounded(bounded, top), top / 2)
    # As many new starts as there were networks before, so that the compiled program is reused.
    starts = draw(count * TRIED_RATES)
    limit = MAX_STEPS if known.certain or known.settles else MAX_STEPS_ON_BATCHES
    longest = int(np.clip(WORK_BUDGET / (size * count * TRIED_RATES), MAX_TRIAL_STEPS, limit))
    part = LEARNED_FRACTION if problem.has_minimizer or known.excess else SEPARABLE_LEARNED_FRACTION
    goal = known.excess + part * (problem.zero_gap - known.excess)
    run, status = None, np.zeros(0, str)
    for reductions in range(MAX_REDUCTIONS):
        if reductions:
            rate *= RATE_REDUCTION
        rates = np.full(count * TRIED_RATES, rate * factor)
        run = gradient_descent(problem, Network(starts), rates, longest, gap=goal, **settings)
        status = np.asarray(run.status)
        if np.all(status == "converged") if spec.adaptive else np.all(status != "diverged"):
            break
    assert run is not None
    done = np.equal(status, "converged")
    taken = int(np.asarray(run.steps)[done].max()) if done.any() else None
    learned = int(done.sum())
    return Trials(
        initialization, known.depth, m, rate, taken, count * TRIED_RATES, learned, longest
    )


def _draw_layers(
    kind: str, problem: Problem, rng: np.random.Generator, widths: tuple[int, ...]
) -> list[np.ndarray]:
    if kind == "small":
        size = problem.optimum_norm if problem.has_minimizer else 1.0
        scale = 0.5 * size ** (1 / (len(widths) - 1)) / np.sqrt(widths[-2])
        return [scale * rng.normal(size=(o, i)) for i, o in pairwise(widths)]
    if kind not in FRAMEWORK_STARTS:
        raise InputError(f"init is {kind!r}; pass one of {', '.join(TRIED_STARTS)}.")
    return framework_layers(kind, rng, widths)


def _gaps(problem: Problem, starts: list[np.ndarray]) -> np.ndarray:
    """Return R − R_min of each start."""
    product = starts[0]
    for layer in starts[1:]:
        product = layer @ product
    return problem.gap(np.swapaxes(product, 1, 2))


def _largest_bounded(bounded, top: float) -> float:
    """Return the largest rate up to which `bounded` holds, on a grid of factors 2, then a finer."""
    for _ in range(MAX_RATE_GRIDS):
        rates = top * 2.0 ** -np.arange(TRIED_RATES)
        kept = _count_bounded_from_below(bounded(rates))
        if kept == TRIED_RATES:
            return float(rates[0])
        if kept:
            low = float(rates[TRIED_RATES - kept])
            finer = low * 2.0 ** (np.arange(TRIED_RATES, 0, -1) / (TRIED_RATES + 1))
            more = _count_bounded_from_below(bounded(finer))
            return float(finer[TRIED_RATES - more]) if more else low
        top = float(rates[-1]) / 2
    return top


def _count_bounded_from_below(good: np.ndarray) -> int:
    """Return how many rates are bounded before the first that is not, from the smallest (last) up.

    A bounded rate above an unbounded one is a coincidence and does not count.
    """
    return int(np.argmin(np.append(good[::-1], False)))
