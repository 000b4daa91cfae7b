"""Which learning rate to use, for the optimizer and the loss that the user has, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

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
from deeplin.theory.flattest_minimizer import MinimalSharpness
from deeplin.theory.minimizers import balanced_factors, balanced_network
from deeplin.theory.weight_decay import DecayedMinimum
from deeplin.training.spec import TrainingSpec

Optimizer = TrainingSpec
"""The name under which estimators pickled by version 0.2 look it up."""
CAUTION = 0.5
"""Part of the largest stable rate that is advised: the way to the solution may be sharper."""
INTERPOLATED = 1e-16
"""R_min/R_0 up to which the data count as interpolated (residuals of 1e-8 of the targets)."""


@dataclass(frozen=True)
class Advice:
    """A learning rate for small starts, the one above which nothing can settle, and why."""

    depth: int
    learning_rate: float
    """Half of the largest rate of plain descent that is stable where small initializations end,
    times 1 − β with momentum."""
    critical_learning_rate: float
    """Above it no minimizer is stable (FM-crit, X-7, X-9, X-10); on batches with momentum the exact
    limit at the solution where small starts end; NaN where none is known (a remark says why)."""
    flattest: MinimalSharpness = field(repr=False)
    """S_min with its bracket (X-2, X-7)."""
    balanced_sharpness: float
    """S_bal (X-3): where small initializations end."""
    certain: bool = True
    """Whether no run settles above the critical rate. On batches it is that of the mean square,
    which rare excursions carry: a single run may settle above it."""
    settles: bool = True
    """Whether training can settle at a constant rate; on batches only where R_min = 0 (X-10)."""
    remarks: tuple[str, ...] = ()
    """What the user should know about this combination."""


def advise(
    problem: Problem,
    depth: int,
    optimizer: TrainingSpec | None = None,
    *,
    readout: ArrayLike | None = None,
) -> Advice:
    """The learning rate for a network of this depth, in the units of the user's loss.

    Small initializations end near the balanced minimizer, stable up to (2+2β)/S_bal (X-3); with
    weight decay at the one global minimizer, S_λ (X-9); on batches the second moment decides, S_B
    (X-10). Half of the rate that plain descent bears there is advised, and with momentum β the part
    1 − β of it: a push then moves the weights η/(1 − β) in all, and on the way to the solution
    the pace decides, not the stability at its end. `trials.try_starts` measures the rate for starts
    that are not small.

    ```python
    import deeplin as dl, numpy as np
    from deeplin.training import TrainingSpec, advise
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X @ np.ones(5))
    advice = advise(problem, depth=10, optimizer=TrainingSpec(momentum=0.9))
    assert advice.learning_rate < advice.critical_learning_rate
    ```
    """
    spec = optimizer or TrainingSpec()
    factor, decay = spec.loss_factor(problem), spec.decay(problem)
    minimum = decayed_minimum(problem, depth, decay, readout) if decay > 0 else None
    limit = stability_limit(spec.momentum, nesterov=spec.nesterov)
    flattest = minimal_sharpness(problem, depth, readout)
    balanced = balanced_sharpness(problem, depth, readout)
    lowest, end = (flattest.exact, balanced) if minimum is None else (minimum.sharpness,) * 2
    critical, remarks = limit / lowest, _about_decay(minimum)
    batch = spec.batches(problem)
    settles = batch is None or (minimum is None and _interpolated(problem))
    if batch is not None:
        at_end = _on_batches(problem, depth, batch, spec, minimum, readout)
        end, remarks = at_end.plain, (*remarks, *at_end.remarks)
        critical = at_end.limit
        if settles and at_end.exact and not spec.momentum:
            critical = critical_learning_rate(problem, depth, batch_size=batch)
    elif spec.batch_size is not None and spec.batch_size > problem.samples:
        remarks += (f"A batch of {spec.batch_size} holds all {problem.samples} samples.",)
    rate = CAUTION * (1 - spec.momentum) * stability_limit() / end
    return Advice(
        flattest.depth,
        float(np.fmin(rate, CAUTION * critical)) / factor,
        critical / factor,
        flattest,
        balanced,
        batch is None,
        settles,
        remarks,
    )


def _interpolated(problem: Problem) -> bool:
    return problem.minimal_risk <= INTERPOLATED * problem.target_moment


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
) -> _AtEnd:
    """Exact for one output without weight decay and read-out (X-10), a bound for all others."""
    remarks: tuple[str, ...] = ()
    interpolated = _interpolated(problem)
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


def _about_decay(minimum: DecayedMinimum | None) -> tuple[str, ...]:
    if minimum is None:
        return ()
    if minimum.collapsed:
        return (
            "This weight decay is so strong that the best network is the zero network: nothing is "
            "learned. Use a smaller one.",
        )
    if not minimum.certified:
        return (
            "The learning rates are those of the best network found with this weight decay; with "
            "several targets and so strong a weight decay it is not proved to be the best.",
        )
    return ()
