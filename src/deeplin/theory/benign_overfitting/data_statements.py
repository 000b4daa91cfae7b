"""Benign overfitting: the population, the data and their assumptions (BO Section 2)."""

from __future__ import annotations

import numpy as np

from deeplin.problems.population import Factored
from deeplin.theory.benign_overfitting.effective_ranks import (
    effective_index,
    effective_ranks,
    spike,
)
from deeplin.theory.context import Context
from deeplin.theory.registry import Check, NotApplicable, statement, value


def with_constant(context: Context, left, right, **details) -> Check:
    """left ≤ c·right, judged with the caller's c, else the smallest c with which it holds."""
    c = context.interpolation.constants.c
    if c is not None:
        return Check(left, c * np.asarray(right), f"with c = {c:g}", **details)
    with np.errstate(divide="ignore", invalid="ignore"):
        smallest = np.asarray(left) / np.asarray(right)
    table = np.broadcast_to(smallest, np.broadcast_shapes(smallest.shape, (1, 1)))
    possible = np.isfinite(table).all(axis=(0, *range(2, table.ndim)))
    details["hypotheses"] = {"some constant c suffices": possible} | details.get("hypotheses", {})
    return Check(smallest, smallest, "smallest c", equality=True, **details)


@statement(
    "BO-D2.1",
    title="effective ranks of the population",
    kind="definition",
    reference="BO, Definition 2.1",
    formula=r"s_j=\sum_{i>j}\lambda_i,\; r_j=s_j/\lambda_{j+1},\; R_j=s_j^2/\sum_{i>j}\lambda_i^2",
)
def ranks(context: Context) -> list[Check]:
    """r_j ≤ R_j ≤ r_j² for every j with a nonzero tail, which any spectrum must satisfy."""
    population = context.interpolation.require_population()
    found = effective_ranks(population.spectrum)
    small, large = found.small[None, None], found.large[None, None]
    return [Check(small, large, "r_j ≤ R_j"), Check(large, small**2, "R_j ≤ r_j²")]


@statement(
    "BO-D2.2",
    title="where the tail of the spectrum begins",
    kind="definition",
    reference="BO, Definition 2.2",
    formula=r"k=\min\{j\ge0: r_j\ge bn\}",
)
def tail_index(context: Context) -> Check:
    """k, for the caller's b."""
    return value(finite_index(context), "k")


def finite_index(context: Context) -> float:
    """k (BO-D2.2), where it is finite."""
    population, b = context.interpolation.require_population(), context.interpolation.constants.b
    k = effective_index(population.spectrum, context.problem.samples, b)
    if np.isinf(k):
        raise NotApplicable(f"no effective rank r_j reaches bn (b = {b:g}): k is infinite")
    return k


def _only_a_distribution(id: str, title: str, formula: str) -> None:
    """Register an assumption that no finite data set can confirm or refute."""

    @statement(id, title=title, kind="assumption", reference="BO, Section 2.2", formula=formula)
    def unverifiable(context: Context) -> Check:
        raise NotApplicable(f"an assumption about the distribution: {title}")


_only_a_distribution("BO-A1", "samples are drawn i.i.d.", r"(x_i,y_i)\ \text{i.i.d.}")
_only_a_distribution("BO-A2", "inputs and targets have mean zero", r"E[x]=0,\;E[y]=0")
_only_a_distribution(
    "BO-A3", "inputs are Σ^{1/2}u with independent sub-Gaussian components", r"x=\Sigma^{1/2}u"
)
_only_a_distribution(
    "BO-A4",
    "noise is sub-Gaussian given the input",
    r"E[e^{\langle\mu,\,y-x\Theta^*\rangle}\mid x]\le e^{c_y\|\mu\|^2/2}",
)


@statement(
    "BO-A5",
    title="X keeps rank n without any one eigenvector of Σ",
    kind="assumption",
    reference="BO, Section 2.2",
    formula=r"\mathrm{rank}\,X(I-vv^\top)=n,\quad d>n,\quad XX^\top\ \text{invertible}",
)
def full_rank(context: Context) -> list[Check]:
    """d > n and rank X = n; given the population, no eigenvector of Σ lies in the span of the rows.

    X(I − vvᵀ) loses rank exactly if v is in that span, ‖P_Xv‖ = 1. As "almost surely" means one
    eigenvector at a time, the eigenvectors are a fixed basis, not every vector of an eigenspace.
    """
    problem = context.problem
    checks = [
        Check(problem.samples + 1.0, problem.dimension, "d > n"),
        Check(float(problem.samples), problem.rank, "rank X = n", equality=True),
    ]
    population = context.interpolation.population
    if population is not None:
        vectors = _eigenvectors(population.covariance)
        inside = (
            problem.spectrum.vectors if vectors is None else vectors.T @ problem.spectrum.vectors
        )
        share = float(np.max(np.sum(inside**2, axis=1)))
        checks.append(Check(share, 1 - 1e-9, "no eigenvector among the rows"))
    return checks


def _eigenvectors(covariance) -> np.ndarray | None:
    """Eigenvectors of Σ; None for the coordinate axes."""
    if isinstance(covariance, Factored):
        left, _, _ = np.linalg.svd(covariance.factor, full_matrices=False)
        if np.ptp(covariance.diagonal) > 0:
            raise NotApplicable("for a factor plus a constant diagonal, whose eigenvectors show")
        return left
    return None if covariance.ndim == 1 else np.linalg.eigh(covariance)[1]


@statement(
    "BO-D2.5",
    title="minimum-norm interpolant",
    kind="definition",
    reference="BO, Definition 2.5",
    formula=r"\Theta_{\min}=X^\top(XX^\top)^{-1}Y",
)
def interpolant(context: Context) -> Check:
    """It interpolates: XΘ_min = Y."""
    context.interpolation.require_wide_data()
    X, Y = context.problem.require_data("the minimum-norm interpolant")
    residual = np.linalg.norm(X @ context.problem.optimum.reshape(len(X.T), -1) - Y)
    return Check(residual, 0.0, scale=np.linalg.norm(Y))


@statement(
    "BO-L4.3",
    title="operator norm of the data",
    kind="lemma",
    reference="BO, Lemma 4.3",
    formula=r"\|X\|_2\le c\sqrt{\lambda_1 n}",
)
def input_norm(context: Context) -> Check:
    """The measured constant."""
    view = context.interpolation
    largest = view.require_population().spectrum[0]
    return with_constant(context, view.input_norm, np.sqrt(largest * context.problem.samples))


@statement(
    "BO-L5.6",
    title="Frobenius norm of the data",
    kind="lemma",
    reference="BO, Lemma 5.6",
    formula=r"\|X\|_F\le c\sqrt{n s_0}",
)
def input_frobenius(context: Context) -> Check:
    """The measured constant."""
    view = context.interpolation
    total = np.sum(view.require_population().spectrum)
    return with_constant(context, view.input_frobenius, np.sqrt(total * context.problem.samples))


@statement(
    "BO-L5.7",
    title="norm of the targets",
    kind="lemma",
    reference="BO, Lemma 5.7",
    formula=r"\|Y\|_F\le c(\|X\|_2\|\Theta^*\|+\sqrt{qn})",
)
def target_norm(context: Context) -> Check:
    """The measured constant."""
    view, problem = context.interpolation, context.problem
    truth = np.linalg.norm(view.require_population().optimum)
    noise = np.sqrt(problem.outputs * problem.samples)
    return with_constant(context, view.target_norm, view.input_norm * truth + noise)


@statement(
    "BO-D3.3",
    title="(k, ε)-spike",
    kind="definition",
    reference="BO, Definition 3.3",
    formula=r"r_0=k+\varepsilon(d-k),\quad s_k=\varepsilon(d-k),\quad R_k=d-k",
)
def spiked(context: Context) -> list[Check]:
    """Its effective ranks in closed form."""
    population = context.interpolation.require_population()
    k, epsilon = require_spike(population.spectrum)
    found, tail = effective_ranks(population.spectrum), population.dimension - k
    checks = [
        Check(found.small[0], k + epsilon * tail, "r_0", equality=True),
        Check(found.tail_sums[k], epsilon * tail, "s_k", equality=True),
    ]
    if epsilon > 0:
        checks.append(Check(found.large[k], float(tail), "R_k", equality=True))
    return checks


def require_spike(spectrum: np.ndarray) -> tuple[int, float]:
    """(k, ε), where the population is a spike."""
    found = spike(spectrum)
    if found is None:
        raise NotApplicable("for a (k, ε)-spike: k eigenvalues 1, all others ε < 1")
    return found
