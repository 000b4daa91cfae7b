"""What sharpness says about risk: a start outside the data adds risk in proportion (X-35)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from deeplin.dynamics import Run
from deeplin.errors import InputError
from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.networks.network import host_arrays
from deeplin.networks.products import backward_products, product
from deeplin.problems import Population, Problem
from deeplin.problems.problem import as_map
from deeplin.theory.benign_overfitting import unseen_trace


@dataclass(frozen=True)
class AddedRisk:
    """What the start adds to the risk of each run, with the law of X-35 and its two bounds."""

    measured: Float[np.ndarray, " runs"]
    """Risk(Θ) − Risk(ΘP), P the projector on the row space of X."""
    law: Float[np.ndarray, " runs"]
    """σ²‖B_1‖_F² tr((I−P)Σ), the mean of `measured` given the other layers and W_1P."""
    by_sharpness: Float[np.ndarray, " runs"]
    """σ² rank(B_1) tr((I−P)Σ) S/(2Λ) ≥ `law` at minimizers."""
    by_rate: Float[np.ndarray, " runs"] | None
    """The same with S ≤ (2+2β)/η, for runs of full-batch descent that settle; else None."""
    scale: float
    """σ, the standard deviation of the entries of W_1(0), measured outside the data."""


def added_risk(problem: Problem, run: Run, population: Population) -> AddedRisk:
    """Return what the part of the start outside the data adds to the risk (X-35).

    W_1(I−P) never changes, and the other layers and W_1P do not depend on it. For W_1(0) with
    independent N(0, σ²) entries the part of Θ outside the data is therefore Gaussian given the
    rest, and adds σ²‖B_1‖_F² tr((I−P)Σ) to the risk in the mean, B_1 = W_L…W_2. At a minimizer of
    squared loss ‖B_1‖_F² ≤ rank(B_1) S/(2Λ), so flat minimizers and large learning rates bound it.
    It holds for any loss, depth, rates, momentum and batches; not with weight decay or Adam, which
    change W_1(I−P).

    Args:
        problem: the training data, with rank X < d.
        run: one run, or a batch of runs from starts of the same scale.
        population: where the data come from.

    Returns:
        `AddedRisk`, with one entry for each run; compare means over a batch.

    ```python
    import deeplin as dl, jax, numpy as np
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 20))
    problem = dl.Problem.from_data(X, X[:, 0])
    keys = jax.random.split(jax.random.key(0), 20)
    starts = dl.initialize.gaussian(keys, widths=(20, 10, 1), scale=0.3)
    run = dl.gradient_descent(problem, starts, learning_rate=0.02, steps=500)
    added = dl.theory.added_risk(problem, run, dl.Population(np.eye(20)[0], np.ones(20)))
    assert (added.law <= added.by_sharpness * 1.001).all()
    ```
    """
    population.require_fit(problem)
    if not isinstance(run.network, Network) or run.network.activation != "linear":
        raise InputError(
            "run is not of linear networks; pass a run of dl.gradient_descent on them."
        )
    if run.weight_decay or "optimizer" in run.variant:
        raise InputError(
            "the run used weight decay or an optimizer that changes the part of W_1 outside the "
            "data; pass a run of plain, momentum or mini-batch descent, or of the flow."
        )
    if problem.rank >= problem.dimension:
        raise InputError("the data span all inputs, so the start adds no risk; pass rank X < d.")
    net = run.network if run.network.batch is not None else run.network.with_batch()
    weights, readout = host_arrays(net)
    first = np.asarray(run.initial.weights[0])
    orthogonal = problem.spectrum.orthogonal_part
    unseen = orthogonal(np.swapaxes(first.reshape(-1, *first.shape[-2:]), -1, -2))
    free = first.shape[-2] * (problem.dimension - problem.rank)
    variance = float(np.mean(np.sum(unseen**2, axis=(-2, -1)))) / free
    suffix = np.asarray(backward_products(weights, readout)[1])
    columns = np.asarray(product(weights, readout))
    inside = columns - orthogonal(columns)
    measured = population.risk(as_map(columns)) - population.risk(as_map(inside))
    price = variance * unseen_trace(problem, population)
    rank = min(suffix.shape[-2:])
    found = sharpness(problem, net, method="exact")
    bound = rank * price / (2 * problem.largest_eigenvalue)
    by_rate = None
    if run.dynamics == "descent" and run.variant == "plain" and run.learning_rate is not None:
        limit = (2 + 2 * run.momentum) / np.asarray(run.learning_rate)
        by_rate = np.broadcast_to(bound * limit, np.shape(found.value))
    return AddedRisk(
        measured=np.atleast_1d(measured),
        law=price * np.sum(suffix**2, axis=(-2, -1)),
        by_sharpness=bound * np.atleast_1d(found.value),
        by_rate=by_rate,
        scale=float(np.sqrt(variance)),
    )
