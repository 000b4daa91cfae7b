"""What the talk adds to the paper: residual form, and the contrast with logistic regression."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from deeplin.certificates.context import Context
from deeplin.certificates.registry import Check, NotApplicable, statement
from deeplin.hessian import sharpness
from deeplin.networks import Network, linear_risk
from deeplin.theory.talk import logistic_descent

RATES = (1.0, 10.0, 100.0)
"""Learning rates of Talk-log, relative to 2/smoothness, the largest of the convex theory."""


def _residual_risk(quadratic, branches, readout):
    identity = jnp.eye(branches[0].shape[0])
    return linear_risk(quadratic, Network([identity + V for V in branches], readout))


_branch_gradients = jax.jit(jax.vmap(jax.grad(_residual_risk, argnums=1), in_axes=(None, 0, 0)))


@statement(
    "Talk-res",
    title="training the residual branches is training the layers",
    kind="observation",
    reference="Talk, linear residual networks",
    formula=r"h_{k+1} = h_k + V_{k+1}h_k,\quad \nabla_{V_k}R(I+V) = \nabla_{W_k}R(W),\ W = I+V",
    hypotheses=Context.stays_finite,
)
def residual_form(context: Context) -> Check:
    """Gradients with respect to V by automatic differentiation against those of W, at the end."""
    width = context.require_square()
    network = context.final_network
    branches = tuple(weight - jnp.eye(width) for weight in network.weights)
    measured = _branch_gradients(context.problem.quadratic, branches, network.readout)
    errors = []
    for k, gradient in enumerate(measured):
        closed = context.backward[k + 1][-1] @ context.forward[k][-1].mT
        errors.append(np.linalg.norm(np.asarray(gradient) - closed, axis=(-1, -2)))
    return Check(np.stack(errors, axis=-1)[None], 0.0, scale=context.gradient_scale[-1:])


@statement(
    "Talk-log",
    title="logistic regression on separable data trains at any learning rate",
    kind="observation",
    reference="Talk, learning rate and sharpness (Wu et al. 2024)",
    formula=r"\tfrac1n\sum_i\log(1+e^{-y_ix_i^\top w_t}) \to 0\ \text{for every}\ \eta",
)
def logistic_contrast(context: Context) -> list[Check]:
    """The problem's inputs with the labels sign(Xw*): below log 2, and falling on, at every rate.

    Four times the steps must lower the loss. By how much is not claimed: a large step can land so
    far down that 1/(γ²ηt) gets there only much later, and until then the loss falls slowly. Below
    1/(λ_max ηt), and so below the theory's bound (γ² ≤ λ_max), it may rest.
    """
    context.require_vector()
    inputs, _ = context.problem.require_data("the logistic contrast")
    scores = inputs @ context.problem.optimum.reshape(-1)
    rows = np.flatnonzero(scores != 0)[:200]
    data = inputs[rows], np.sign(scores[rows])
    early, late = (logistic_descent(*data, RATES, steps=steps) for steps in (500, 2000))
    names = [f"{rate:g} × 2/smoothness" for rate in RATES]
    return [
        *(Check(loss, np.log(2.0), name) for name, loss in zip(names, late, strict=True)),
        *(
            Check(loss, max(before, 1 / (8 * rate * 2000)), f"{name}, falling")
            for name, rate, loss, before in zip(names, RATES, late, early, strict=True)
        ),
    ]


RESOLVED = 1e-12
"""Θ − Θ* is known to some 1e-15 of Θ*: a gap below the square of this share of R_0 − R_min moves by
rounding alone."""


STEPS, POINTS = 4, 3
"""How many steps of a run Talk-descent evaluates, and at how many points of each."""


@statement(
    "Talk-descent",
    title="descent lemma: below 2/S one step lowers the risk",
    kind="lemma",
    reference="Talk, learning rate and sharpness",
    formula=r"R(W-\eta\nabla R)\le R(W)-\eta(1-\tfrac{\eta S}2)\|\nabla R\|^2,\quad "
    r"S=\max\text{ sharpness on the step}",
    hypotheses=Context.stays_finite,
)
def descent_lemma(context: Context) -> Check:
    """At some steps of a descent recorded one step after another, where η < 2/S."""
    taken = np.flatnonzero(context.consecutive.any(axis=1))
    if len(taken) == 0:
        raise NotApplicable("for plain descent with two records one step apart")
    after = taken[np.unique(np.linspace(0, len(taken) - 1, STEPS).astype(int))]
    largest = _sharpness_of_steps(context, after)
    rate = context.learning_rate
    squares = np.sum(context.gradient_squares[after - 1], axis=-1)
    promised = context.gap[after - 1] - rate * (1 - rate * largest / 2) * squares
    resolved = context.gap[after - 1] > RESOLVED**2 * context.problem.zero_gap
    where = context.consecutive[after] & (rate * largest < 2) & resolved
    scale = context.gap[after - 1] + rate * squares
    return Check(context.gap[after], promised, where=where, scale=scale)


def _sharpness_of_steps(context: Context, after: np.ndarray) -> np.ndarray:
    """The largest sharpness at some points of the step before each record, (steps, batch)."""
    shares = np.linspace(0, 1, POINTS)[:, None, None, None, None]
    between = [
        np.nan_to_num((1 - shares) * w[after - 1] + shares * w[after]) for w in context.weights
    ]
    flat = [np.asarray(w).reshape(-1, *w.shape[-2:]) for w in between]
    readout = context.readout
    if readout is not None:
        readout = np.tile(readout, (POINTS * len(after), 1))
    values = sharpness(context.problem, Network(flat, readout)).value
    return np.max(np.reshape(values, (POINTS, len(after), context.batch)), axis=0)
