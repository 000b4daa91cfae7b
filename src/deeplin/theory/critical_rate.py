"""The critical learning rate, whatever the optimizer: the largest at which training can settle."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from deeplin.dynamics.update import check_momentum
from deeplin.errors import InputError, positive_number
from deeplin.problems import Problem
from deeplin.theory.architecture import architecture, stability_limit
from deeplin.theory.flattest_minimizer import (
    geometric_mean,
    layer_rates,
    minimal_sharpness,
)
from deeplin.theory.paths import parallel_sharpness, path_norms
from deeplin.theory.sam import effective_sharpness
from deeplin.theory.stochastic import minimal_stochastic_sharpness
from deeplin.theory.weight_decay import DecayedMinimum, decayed_minimum
from deeplin.validation import validated


@validated
def critical_learning_rate(
    problem: Problem,
    depth: int,
    readout: ArrayLike | None = None,
    *,
    momentum: float = 0.0,
    nesterov: bool = False,
    batch_size: int | None = None,
    weight_decay: float = 0.0,
    sam_radius: float = 0.0,
    paths: ArrayLike = 1,
) -> float:
    """The learning rate above which no (global) minimizer is stable: almost no start settles.

    For every convex loss of the problem (X-14, X-17):

    | optimizer | critical rate | result |
    |---|---|---|
    | gradient descent | 2/S_min | X-2, X-7 |
    | heavy ball β | (2+2β)/S_min | |
    | Nesterov β | (2+2β)/((1+2β)S_min) | |
    | weight decay λ | 2 (with momentum as above) over S_λ | X-9 |
    | batches of B rows, R_min = 0, one output | 2/S_min(B) | X-10 |
    | layer-wise rates | bounds their *geometric mean* | X-11 |
    | SAM, θ ← θ − η∇R(θ + ρ∇R(θ)) | 2 (with momentum as above) over S_min(1 + ρS_min) | X-23 |
    | m parallel paths | 2/S_min of `parallel_sharpness`; m^{1−2/L} times that of one | X-22 |
    | Adam, RMSProp | see `adam_critical_learning_rate` | X-24 |

    Weight decay means R + λΣ‖W_k‖_F². Mini-batches with momentum are exact at a given minimizer
    (`stochastic_sharpness`), but the flattest one is not known; with weight decay they do not
    settle at a constant rate. `paths` is the number of parallel paths, or the norms ‖p_h‖ of their
    read-outs. Batches ask for an optimum at which every φ_i' is 0.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    rate = dl.theory.critical_learning_rate(problem, depth=10, momentum=0.9)
    assert dl.theory.critical_learning_rate(problem, depth=10, batch_size=10) < rate
    ```
    """
    beta = check_momentum(momentum)
    decay = positive_number("weight_decay", weight_decay, zero_allowed=True)
    radius = positive_number("sam_radius", sam_radius, zero_allowed=True)
    several = np.ndim(paths) > 0 or paths != 1
    if several:
        _require_known_for_paths(decay, batch_size, readout, paths)
    if batch_size is not None and batch_size != problem.samples:
        _require_plain(beta, decay, radius)
        found = minimal_stochastic_sharpness(problem, depth, batch_size, readout)
        return found.critical_learning_rate
    if decay > 0:
        minimum = decayed_minimum(problem, depth, decay, readout)
        _require_certified(minimum)
        curvature = minimum.sharpness
    elif several:
        norm = architecture(problem, depth, readout, "the critical learning rate").norm
        curvature = parallel_sharpness(problem, depth, norm * path_norms(paths))
    else:
        curvature = minimal_sharpness(problem, depth, readout).exact
    return stability_limit(beta, nesterov=nesterov) / effective_sharpness(curvature, radius)


def layerwise_sharpness(
    problem: Problem, rates: ArrayLike, readout: ArrayLike | None = None
) -> float:
    """The smallest λ_max of the Hessian preconditioned by rates η_1 … η_L, over minimizers (X-11).

    It is (η_1⋯η_L)^{1/L} S_min: descent with these rates can settle exactly where it is at most 2
    (2+2β with momentum), so only the geometric mean of the rates matters. The network that
    attains it is `minimal_sharpness(problem, L).attaining(rates=rates)`.

    ```python
    import deeplin as dl, numpy as np
    X = np.random.default_rng(0).normal(size=(50, 5))
    problem = dl.Problem.from_data(X, X[:, 0])
    one, other = (dl.theory.layerwise_sharpness(problem, rates) for rates in ([4, 1], [1, 4]))
    assert np.isclose(one, other)
    ```
    """
    given = layer_rates(rates)
    minimal = minimal_sharpness(problem, len(given), readout)
    return geometric_mean(given) * minimal.exact


def _require_certified(minimum: DecayedMinimum) -> None:
    if not minimum.certified:
        raise InputError(
            f"weight_decay = {minimum.weight_decay:g} is so strong that the best network of depth "
            f"{minimum.depth} found for these targets is not certain to be the best there is: for "
            "several targets on inputs that are not white no closed form is known. Pass a smaller "
            "weight_decay, one column of Y, or use theory.decayed_minimum(problem, depth, "
            "weight_decay).critical_learning_rate(), the rate of the minimum found."
        )


def _require_known_for_paths(
    decay: float, batch_size: int | None, readout: ArrayLike | None, paths: ArrayLike
) -> None:
    if decay > 0 or batch_size is not None:
        raise InputError(
            "the critical rate of parallel paths is known for the full batch without weight "
            "decay; pass batch_size=None and weight_decay=0, or paths=1."
        )
    if readout is not None and np.ndim(paths) > 0:
        raise InputError("paths holds the norms of the read-outs; pass readout=None with it.")


def _require_plain(momentum: float, decay: float, radius: float) -> None:
    if radius > 0:
        raise InputError(
            f"mini-batch descent with sam_radius = {radius:g} is not covered; pass sam_radius=0 "
            "or batch_size=None."
        )
    if decay > 0:
        raise InputError(
            f"mini-batch descent with weight_decay = {decay:g} does not settle at a constant rate: "
            "its minimizer does not interpolate the data. Pass weight_decay=0 or batch_size=None."
        )
    if momentum > 0:
        raise InputError(
            f"the flattest minimizer for mini-batches with momentum = {momentum:g} is not known; "
            "pass momentum=0, or a minimizer of your choice to "
            "theory.stochastic_sharpness(problem, network, batch_size, momentum=...)."
        )
