"""Benign overfitting: the population, the data and their assumptions (BO Section 2)."""

from __future__ import annotations

import numpy as np

from deeplin.certificates.interpolation import CertificateContext
from deeplin.certificates.registry import Check, NotApplicable, by_construction, statement, value
from deeplin.problems.population import Factored
from deeplin.theory.benign_overfitting import noise_cost
from deeplin.theory.effective_rank import effective_ranks


@statement(
    "BO-D2.1",
    title="effective ranks of the population",
    formula=r"s_j=\sum_{i>j}\lambda_i,\; r_j=s_j/\lambda_{j+1},\; R_j=s_j^2/\sum_{i>j}\lambda_i^2",
)
def ranks(context: CertificateContext) -> list[Check]:
    """r_j ≤ R_j ≤ r_j² for every j with a nonzero tail, which any spectrum must satisfy."""
    population = context.require_population()
    found = effective_ranks(population.spectrum)
    small, large = found.small[None, None], found.large[None, None]
    return [Check(small, large, "r_j ≤ R_j"), Check(large, small**2, "R_j ≤ r_j²")]


@statement(
    "BO-D2.2", title="where the tail of the spectrum begins", formula=r"k=\min\{j\ge0: r_j\ge bn\}"
)
def tail_index(context: CertificateContext) -> Check:
    """k, for the caller's b."""
    return value(context.require_tail().k, "k")


def _only_a_distribution(id: str, title: str, formula: str) -> None:
    """Register an assumption that no finite data set can confirm or refute."""

    @statement(id, title=title, kind="assumption", reference="BO, Section 2.2", formula=formula)
    def unverifiable(context: CertificateContext) -> Check:
        if context.population is not None and context.population.drawn:
            return by_construction()
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
    reference="BO, Section 2.2",
    formula=r"\mathrm{rank}\,X(I-vv^\top)=n,\quad d>n,\quad XX^\top\ \text{invertible}",
)
def full_rank(context: CertificateContext) -> list[Check]:
    """d > n and rank X = n; given the population, no eigenvector of Σ lies in the span of the rows.

    X(I − vvᵀ) loses rank exactly if v is in that span, ‖P_Xv‖ = 1. As "almost surely" means one
    eigenvector at a time, the eigenvectors are a fixed basis, not every vector of an eigenspace.
    """
    problem = context.problem
    checks = [
        Check(problem.samples + 1.0, problem.dimension, "d > n"),
        Check(float(problem.samples), problem.rank, "rank X = n", equality=True),
    ]
    population = context.population
    if population is not None:
        inside, vectors = problem.spectrum.vectors, _eigenvectors(population.covariance)
        inside = inside if vectors is None else vectors.T @ inside
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
    "BO-D2.5", title="minimum-norm interpolant", formula=r"\Theta_{\min}=X^\top(XX^\top)^{-1}Y"
)
def interpolant(context: CertificateContext) -> Check:
    """It interpolates: XΘ_min = Y."""
    context.require_wide_data()
    X, Y = context.problem.require_data("the minimum-norm interpolant")
    residual = np.linalg.norm(X @ context.problem.optimum.reshape(len(X.T), -1) - Y)
    return Check(residual, 0.0, scale=np.linalg.norm(Y))


@statement("BO-L4.3", title="operator norm of the data", formula=r"\|X\|_2\le c\sqrt{\lambda_1 n}")
def input_norm(context: CertificateContext) -> Check:
    """The measured constant."""
    largest = context.require_population().spectrum[0]
    return context.with_constant(context.input_norm, np.sqrt(largest * context.problem.samples))


@statement("BO-L5.6", title="Frobenius norm of the data", formula=r"\|X\|_F\le c\sqrt{n s_0}")
def input_frobenius(context: CertificateContext) -> Check:
    """The measured constant."""
    total = np.sum(context.require_population().spectrum)
    return context.with_constant(context.input_frobenius, np.sqrt(total * context.problem.samples))


@statement(
    "BO-L5.7", title="norm of the targets", formula=r"\|Y\|_F\le c(\|X\|_2\|\Theta^*\|+\sqrt{qn})"
)
def target_norm(context: CertificateContext) -> Check:
    """The measured constant."""
    problem = context.problem
    truth = np.linalg.norm(context.require_population().optimum)
    noise = np.sqrt(problem.outputs * problem.samples)
    return context.with_constant(context.target_norm, context.input_norm * truth + noise)


@statement(
    "BO-sigma-min",
    title="smallest singular value of the data",
    kind="lemma",
    reference="BO, proof of Theorem 3.2 (Bartlett et al. 2020)",
    formula=r"\sigma_{\min}(X)\ge\sqrt{s_k}/c",
)
def smallest_singular_value(context: CertificateContext) -> Check:
    """√s_k ≤ c σ_min(X): the measured constant."""
    context.require_wide_data()
    return context.with_constant(np.sqrt(context.require_tail().sum), context.smallest_singular)


@statement(
    "BO-trace",
    title="what fitting the noise costs",
    kind="lemma",
    reference="BO, proof of Theorem 3.1 (Bartlett et al. 2020, Lemma 11)",
    formula=r"\mathrm{Tr}(C)\le c(k/n+n/R_k)",
)
def noise_trace(context: CertificateContext) -> Check:
    """The measured constant."""
    population = context.require_population()
    context.require_wide_data()
    n, k, _, rank = context.require_tail()
    return context.with_constant(noise_cost(context.problem, population), k / n + n / rank)


@statement(
    "BO-D3.3",
    title="(k, ε)-spike",
    formula=r"r_0=k+\varepsilon(d-k),\quad s_k=\varepsilon(d-k),\quad R_k=d-k",
)
def spiked(context: CertificateContext) -> list[Check]:
    """Its effective ranks in closed form."""
    population = context.require_population()
    k, epsilon = context.require_spike()
    found, tail = effective_ranks(population.spectrum), population.dimension - k
    checks = [
        Check(found.small[0], k + epsilon * tail, "r_0", equality=True),
        Check(found.tail_sums[k], epsilon * tail, "s_k", equality=True),
    ]
    if epsilon > 0:
        checks.append(Check(found.large[k], float(tail), "R_k", equality=True))
    return checks
