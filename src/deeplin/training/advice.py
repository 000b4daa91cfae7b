"""Which learning rate to use, for the optimizer and the loss that the user has, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from deeplin.errors import whole_number
from deeplin.problems import Problem
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
from deeplin.training.spec import TrainingSpec

Optimizer = TrainingSpec
"""The name under which estimators pickled by version 0.2 find it."""
CAUTION = 0.5
"""Part of the largest stable rate that is advised: the way to the solution may be sharper."""
CUSTOMARY = 1e-3
"""The rate that most people begin with for Adam."""
INTERPOLATED = 1e-16
"""R_min/R_0 up to which the data count as interpolated (residuals of 1e-8 of the targets)."""


@dataclass(frozen=True)
class Advice:
    """A learning rate for small starts, the one above which nothing can settle, and why."""

    depth: int
    learning_rate: float
    """Half of the largest rate of plain descent that is stable where small initializations end,
    times 1 − β with momentum; for Adam and RMSProp the customary one."""
    critical_learning_rate: float
    """Above it no minimizer is stable (FM-crit, X-7, X-9, X-10, X-14, X-23, X-24); on batches with
    momentum the exact limit at the solution where small starts end; NaN where none is known (a
    remark says why)."""
    lower: float
    minimal_sharpness: float
    """S_min (X-2, X-7, X-14, X-17), with the bracket of FM-T2; NaN without a minimizer."""
    upper: float
    balanced_sharpness: float
    """S_bal (X-3): where small initializations end."""
    certain: bool = True
    """Whether no run settles above the critical rate. On batches it is that of the mean square,
    which rare excursions carry: a single run may settle above it."""
    settles: bool = True
    """Whether training can settle at a constant rate; on batches only where R_min = 0 (X-10), and
    never where the risk has no minimizer (X-16)."""
    remarks: tuple[str, ...] = ()
    """What the user should know about this combination."""
    excess: float = 0.0
    """R − R_min at the solution that training goes to, which weight decay keeps from the best."""


def advise(
    problem: Problem,
    depth: int,
    optimizer: TrainingSpec | None = None,
    *,
    readout: ArrayLike | None = None,
) -> Advice:
    """The learning rate for a network of this depth, in the units of the user's loss.

    Small initializations end near the balanced minimizer, stable up to (2+2β)/S_bal (X-3); with
    weight decay at the one global minimizer, S_λ (X-9, X-15); on batches the second moment decides,
    S_B (X-10); SAM has S(1 + ρS) in the place of S (X-23). Half of the rate that plain descent
    bears there is advised, and with momentum β the part 1 − β of it: a push then moves the weights
    η/(1 − β) in all, and on the way to the solution the pace decides, not the stability at its end.
    `trials.try_starts` measures the rate for starts that are not small, and for Adam (X-24).

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
    remarks = (*_about_minimum(problem, minimum, known), *_about_optimizer(spec, settles))
    if batch is not None:
        settles = settles and minimum is None and problem.residual_share <= INTERPOLATED
        at_end = _on_batches(problem, L, batch, spec, minimum, readout, end)
        end, remarks = at_end.plain, (*remarks, *at_end.remarks)
        critical = at_end.limit
        if settles and at_end.exact and not spec.momentum:
            critical = critical_learning_rate(problem, L, batch_size=batch)
    elif spec.batch_size is not None and spec.batch_size > problem.samples:
        remarks += (f"A batch of {spec.batch_size} holds all {problem.samples} samples.",)
    pace = (1 - spec.momentum) * stability_limit()
    rate = float(np.fmin(CAUTION * pace / end, CAUTION * critical))
    factor = spec.rate_factor(problem)
    return Advice(
        L,
        CUSTOMARY if spec.adaptive else rate / factor,
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
    """L·λ_max(∇²R(0)): a network of L layers of norm one where its predictions are still small.

    Stands in for S_bal where the risk has no minimizer; simulated starts correct it.
    """
    X, _ = problem.require_data("a rate for classes")
    bend = 1 / 4 if problem.outputs == 1 else 1 / problem.outputs  # λ_max(φ'') at 0
    return depth * bend * float(np.linalg.norm(X, 2)) ** 2 / problem.samples


class _AtEnd(NamedTuple):
    """Training on batches at the solution where small starts end."""

    plain: float
    """S_B of plain descent there, or a bound of it."""
    limit: float
    """Up to which rate the mean square is stable there, with this momentum."""
    exact: bool
    remarks: tuple[str, ...]


def _on_batches(
    problem: Problem,
    depth: int,
    batch: int,
    spec: TrainingSpec,
    minimum: DecayedMinimum | None,
    readout: ArrayLike | None,
    sharpness: float,
) -> _AtEnd:
    """Exact for one output without weight decay and read-out (X-10), a bound for all others.

    `sharpness` is that of the full batch at the solution where small starts end.
    """
    remarks: tuple[str, ...] = ()
    if problem.loss != "squared" or spec.adaptive:
        remarks = (
            f"On batches with this {'loss' if problem.loss != 'squared' else 'optimizer'} no "
            "critical rate is known, and at a constant learning rate training stays in a cloud "
            "about the solution that shrinks with the rate. Lower the rate towards the end.",
        )
        return _AtEnd(sharpness, math.nan, False, remarks)
    interpolated = problem.residual_share <= INTERPOLATED
    if minimum is not None or not interpolated:
        why = "With weight decay no minimum" if minimum is not None else "No linear map"
        remarks = (
            f"{why} fits these data exactly, so at a constant learning rate training on "
            "batches does not settle: it stays in a cloud about the solution that shrinks with the "
            "rate. Lower the rate towards the end.",
        )
    if problem.outputs == 1 and minimum is None and readout is None:
        end = balanced_network(problem, depth)
        plain = stochastic_sharpness(problem, end, batch, linearized=not interpolated)
        limit = plain.critical_learning_rate
        if spec.nesterov:
            limit = math.nan
            remarks += ("On batches with Nesterov's momentum no critical rate is known.",)
        elif spec.momentum:
            limit = stochastic_sharpness(
                problem, end, batch, momentum=spec.momentum, linearized=not interpolated
            ).critical_learning_rate
            remarks += (
                "On batches with momentum the critical rate is the exact limit of the mean square "
                "at the solution where small starts end; other solutions may bear a little more.",
            )
        return _AtEnd(plain.value, limit, True, remarks)
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
    return _AtEnd(bound, math.nan, False, remarks)


def _about_minimum(
    problem: Problem, minimum: DecayedMinimum | None, known: bool
) -> tuple[str, ...]:
    """What is to be said of the solution that training goes to."""
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


def _about_optimizer(spec: TrainingSpec, settles: bool) -> tuple[str, ...]:
    """What is exact about SAM and Adam, and what is not."""
    if not settles or spec.batch_size is not None:
        return ()
    if spec.adaptive:
        name = "Adam" if spec.optimizer == "adam" else "RMSProp"
        return (
            f"The critical rate of {name} is exact, but about its last steps only: above it "
            f"{name} comes close to a solution, is thrown out, and returns. The rate to use is the "
            "one simulated starts bear; lower it towards the end.",
        )
    if spec.optimizer == "sam":
        return (
            "The critical rate is exact for SAM whose perturbation is ρ times the gradient; with "
            "the perturbation divided by its norm no constant rate settles.",
        )
    return ()
