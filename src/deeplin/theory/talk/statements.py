"""What the talk adds to the paper: residual form, and the contrast with logistic regression."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from deeplin.networks import Network, linear_risk
from deeplin.theory.context import Context
from deeplin.theory.registry import Check, statement
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
)
def residual_form(context: Context) -> Check:
    """Gradients with respect to V by automatic differentiation against those of W, at the end."""
    width = context.require_square()
    network = context.final_network
    branches = tuple(weight - jnp.eye(width) for weight in network.weights)
    measured = _branch_gradients(context.problem.quadratic, branches, network.readout)
    errors = []
    for k, gradient in enumerate(measured):
        closed = context.backward[k + 1][-1] @ np.swapaxes(context.forward[k][-1], -1, -2)
        errors.append(np.linalg.norm(np.asarray(gradient) - closed, axis=(-1, -2)))
    return Check(
        np.stack(errors, axis=-1)[None],
        0.0,
        scale=context.gradient_scale[-1:],
        hypotheses=context.stays_finite(),
    )


@statement(
    "Talk-log",
    title="logistic regression on separable data trains at any learning rate",
    kind="observation",
    reference="Talk, learning rate and sharpness (Wu et al. 2024)",
    formula=r"\tfrac1n\sum_i\log(1+e^{-y_ix_i^\top w_t}) \to 0\ \text{for every}\ \eta",
)
def logistic_contrast(context: Context) -> list[Check]:
    """The problem's inputs with the labels sign(Xw*): the loss falls at every rate tried."""
    context.require_vector()
    inputs, _ = context.problem.require_data("the logistic contrast")
    scores = inputs @ context.problem.optimum.reshape(-1)
    rows = np.flatnonzero(scores != 0)[:200]
    losses = logistic_descent(inputs[rows], np.sign(scores[rows]), RATES, steps=2000)
    return [
        Check(loss, np.log(2.0), f"{rate:g} × 2/smoothness")
        for rate, loss in zip(RATES, losses, strict=True)
    ]
