"""What BO says about simulations, sentence by sentence, and how each is measured.

Readings and limits stand here before the runs that judge them. Where the authors' step is unstable
(E-11) descent is judged as they ran it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deeplin.papers import bo_1, bo_2
from deeplin.papers.bo_1 import WideSweep
from deeplin.papers.bo_2 import ReluSweep, main_runs
from deeplin.papers.bo_2_printed import OUTPUTS, TARGET, effect
from deeplin.papers.figure import Study, Table
from deeplin.papers.question import number
from deeplin.papers.quote import Part, Quote, exactly, mean_of, share_of
from deeplin.papers.statistics import slope_interval

CLOSE = 0.1
"""*Close*, *small*: a tenth."""
SIGNIFICANT = 0.05
"""*Largely unaffected*, *no significant increase*: a twentieth of the risk."""


def descent(table: Table) -> Any:
    """The runs as the authors made them."""
    return table[table["dynamics"] == "descent"]


def grows(table: Table, scale: str) -> list[Part]:
    """Increase of the risk over the range along the regression line of each draw, relative."""
    found = []
    for d, runs in descent(table).groupby("dimension"):
        rises = [
            slope_interval(one[scale] ** 2, one["risk"])[0]
            * one[scale].max() ** 2
            / one["interpolant_risk"].iloc[0]
            for _, one in runs.dropna(subset=["risk"]).groupby("repetition")
        ]
        letter = "α" if scale == "alpha" else "β"
        found.append(mean_of(f"with {letter}², d = {d}", rises, lower=1e-12))
    return found


def grows_with_first(config: WideSweep, table: Table) -> list[Part]:
    """With α²."""
    return grows(table, "alpha")


def grows_with_last(config: WideSweep, table: Table) -> list[Part]:
    """With β²."""
    return grows(table, "beta")


def grows_with_either(config: WideSweep, first: Table, last: Table) -> list[Part]:
    """With α² and with β²."""
    return grows(first, "alpha") + grows(last, "beta")


def zero_start(table: Table, scale: str) -> Any:
    """Descent from the zero function, with distance over ‖Θ_min‖² and risk over that of Θ_min."""
    runs = descent(table)
    zero = runs[runs[scale] == 0]
    return zero.assign(
        near=zero["distance"] / zero["interpolant_norm"] ** 2,
        extra=zero["risk"] / zero["interpolant_risk"] - 1,
    )


def approaches(config: WideSweep, first: Table, last: Table) -> list[Part]:
    """Squared distance to Θ_min at the zero function, over ‖Θ_min‖²."""
    return [
        mean_of(f"{letter} = 0, d = {d}", runs["near"], upper=0.01)
        for letter, scale, table in (("α", "alpha", first), ("β", "beta", last))
        for d, runs in zero_start(table, scale).groupby("dimension")
    ]


def close_at_zero(config: WideSweep, first: Table, last: Table) -> list[Part]:
    """At the zero function: squared distance over ‖Θ_min‖², and added risk over that of Θ_min."""
    return [
        part
        for letter, scale, table in (("α", "alpha", first), ("β", "beta", last))
        for d, runs in zero_start(table, scale).groupby("dimension")
        for part in (
            mean_of(f"distance, {letter} = 0, d = {d}", runs["near"], upper=CLOSE),
            mean_of(f"added risk, {letter} = 0, d = {d}", runs["extra"], upper=CLOSE),
        )
    ]


def larger_outside(config: WideSweep, first: Table, last: Table) -> list[Part]:
    """At the largest variance: added risk, and the share of the distance outside the data."""
    found = []
    for letter, scale, table in (("α", "alpha", first), ("β", "beta", last)):
        runs = descent(table)
        runs = runs[runs[scale] == runs[scale].max()].dropna(subset=["risk"])
        for d, cell in runs.groupby("dimension"):
            added = cell["risk"] - cell["interpolant_risk"]
            found.append(mean_of(f"added risk, {letter}, d = {d}", added, lower=1e-12))
            outside = cell["beside"] / cell["distance"]
            found.append(mean_of(f"outside, {letter}, d = {d}", outside, lower=1 - CLOSE))
    return found


def gets_closer(config: WideSweep, table: Table) -> list[Part]:
    """Squared distance to Θ_min at β = 0 over that at the largest β, on the same draws."""
    runs = descent(table)
    ends = [runs[runs["beta"] == end].set_index(["dimension", "repetition"])["distance"]
            for end in (runs["beta"].min(), runs["beta"].max())]  # fmt: skip
    ratio = (ends[0] / ends[1]).dropna()
    return [mean_of(f"d = {d}", cell, upper=1.0) for d, cell in ratio.groupby("dimension")]


def no_benefit(config: WideSweep, first: Table, last: Table) -> list[Part]:
    """Smallest mean added risk of a cell, relative to that of Θ_min."""
    found = []
    for letter, table in (("α", first), ("β", last)):
        runs = descent(table).dropna(subset=["risk"])
        added = runs["risk"] / runs["interpolant_risk"] - 1
        means = added.groupby([runs["dimension"], runs["alpha"], runs["beta"]]).mean()
        found.append(exactly(f"{letter} swept", means.min(), lower=-0.01))
    return found


def small_scale_close(config: WideSweep, table: Table) -> list[Part]:
    """At α = 1e-4: squared distance over ‖Θ_min‖², and added risk over that of Θ_min."""
    small = min(alpha for alpha in config.alphas if alpha > 0)
    runs = descent(table)
    runs = runs[runs["alpha"] == small].dropna(subset=["risk"])
    near = runs["distance"] / runs["interpolant_norm"] ** 2
    extra = runs["risk"] / runs["interpolant_risk"] - 1
    return [
        part
        for d, cell in runs.groupby("dimension")
        for part in (
            mean_of(f"distance, d = {d}", near[cell.index], upper=CLOSE),
            mean_of(f"added risk, d = {d}", extra[cell.index], upper=CLOSE),
        )
    ]


def trained_to_target(config: WideSweep, table: Table) -> list[Part]:
    """Share of the linear networks whose mean loss ends below 1e-7 within 10⁵ steps."""
    runs = descent(table)
    return [
        share_of(f"d = {d}", cell["loss"] <= TARGET, lower=1.0)
        for d, cell in runs.groupby("dimension")
    ]


def relu_first(config: ReluSweep, first: Table) -> list[Part]:
    """Relative change of the risk from the smallest nonzero α to the largest, by data set."""
    return [mean_of("with α", effect(main_runs(config, first), "alpha"), lower=1e-12)]


def relu_last(config: ReluSweep, last: Table) -> list[Part]:
    """The same for β."""
    change = effect(main_runs(config, last), "beta")
    return [mean_of("with β", change, -SIGNIFICANT, SIGNIFICANT)]


def relu_both(config: ReluSweep, first: Table, last: Table) -> list[Part]:
    """Grows with α, does not with β."""
    return relu_first(config, first) + relu_last(config, last)


def asymmetry(config: ReluSweep, first: Table, last: Table) -> list[Part]:
    """Change with α less that with β, by data set."""
    alpha = effect(main_runs(config, first), "alpha")
    beta = effect(main_runs(config, last), "beta")
    return [mean_of("α less β", (alpha - beta).dropna(), lower=1e-12)]


def relu_trained(config: ReluSweep, first: Table, last: Table) -> list[Part]:
    """Smallest training loss reached, as the mean over the n·q entries."""
    return [
        exactly(f"{letter} swept", (main_runs(config, table)["loss"] / OUTPUTS).min(), upper=TARGET)
        for letter, table in (("α", first), ("β", last))
    ]


def bo(
    name: str,
    place: str,
    panel: str,
    text: str,
    reading: str,
    measure: Callable[..., Sequence[Part]],
    *studies: Study,
    why: str = "",
) -> Quote:
    """A quote of BO."""
    return Quote(f"BO: {name}", "BO", place, text, reading, panel, studies, measure, why)


FIRST, LAST = bo_1.FIRST_LAYER, bo_1.LAST_LAYER
RELU = (bo_2.FIRST_LAYER, bo_2.LAST_LAYER)
GROWS = (
    "Ours: at every d the increase along the regression line of each draw, averaged over the draws, "
    "is positive beyond its 95% interval."
)
RELU_GROWS = (
    "Ours: among networks that train (α > 0), the relative increase from the smallest to the "
    "largest value, averaged over the data sets, is positive beyond its 95% interval. At α = 0 all "
    "gradients vanish (E-10), so that point is no trained network."
)
RELU_FLAT = (
    f"Ours: the relative change from the smallest nonzero β to the largest is within "
    f"{number(SIGNIFICANT)}, with its 95% interval."
)

BO_QUOTES = (
    bo(
        "risk grows with the first layer",
        "Section 1, on Figure 1",
        "BO-1-top",
        "Figure 1 contains plots from simulation experiments where the excess risk of a deep "
        "linear model increases with the scale of the initialization of the first layer",
        GROWS,
        grows_with_first,
        FIRST,
    ),
    bo(
        "risk grows with the last layer",
        "Section 1, on Figure 1",
        "BO-1-bottom",
        "A similar effect is also seen when the first layer is initialized at a unit scale, and "
        "the scale of the initialization of the last layer varies.",
        GROWS,
        grows_with_last,
        LAST,
    ),
    bo(
        "approaches the interpolant",
        "Section 1, on Figure 1",
        "BO-1-bottom-right",
        "In both cases, we also see that as the function computed by the network at initialization "
        "approaches the zero function, the trained model approaches the minimum ℓ2-norm "
        "interpolant.",
        "Ours: at the zero function (α = 0, β = 0) the mean squared distance to Θ_min is at most a "
        "hundredth of ‖Θ_min‖².",
        approaches,
        FIRST,
        LAST,
        why="From a zero last layer the network ends a distance from Θ_min that does not vanish "
        "(E-4); it shrinks like 1/m with the width (X-27), so it is a small part of ‖Θ_min‖² at "
        "these widths.",
    ),
    bo(
        "close at small variance",
        "Figure 1, caption",
        "BO-1-top-right",
        "We find that as predicted by our theory, when the initialization variance of either the "
        "first layer (α2) or the last layer (β2) is close to zero, the final solution is close to "
        "the minimum ℓ2-norm interpolator and suffers small excess risk.",
        "Ours: at zero variance the mean squared distance is at most a tenth of ‖Θ_min‖², and the "
        "mean risk at most a tenth above that of Θ_min.",
        close_at_zero,
        FIRST,
        LAST,
    ),
    bo(
        "larger outside the data",
        "Figure 1, caption",
        "BO-1-top",
        "While when the initialization variance is large, that is, when the network is initialized "
        "away from the origin, the excess risk is larger due to the component of the final "
        "solution outside the span of the data.",
        "Ours: at the largest variance the added risk is positive beyond its 95% interval, and "
        "nine tenths of the squared distance to Θ_min lie outside the span of the data.",
        larger_outside,
        FIRST,
        LAST,
    ),
    bo(
        "larger at a large scale",
        "Section 7",
        "BO-1-bottom",
        "In line with our theoretical upper bounds, we find that for deep linear networks as the "
        "initialization scale of either the first layer (α) or the last layer (β) is large, the "
        "excess risk of the model is larger (see Figure 1).",
        GROWS,
        grows_with_either,
        FIRST,
        LAST,
    ),
    bo(
        "closer as the last layer shrinks",
        "Section 3, after Theorem 3.2",
        "BO-1-bottom-right",
        "Recall from the simulation in Figure 1 that as the initialization of the last layer β "
        "approaches 0, the model produced by gradient descent gets closer to the minimum ℓ2-norm "
        "interpolant.",
        "Ours: the squared distance to Θ_min at β = 0 is below that at the largest β, on the same "
        "draws.",
        gets_closer,
        LAST,
    ),
    bo(
        "no benefit of random initialization",
        "Section 1",
        "BO-1-top",
        "in our simulations, we see no benefit with random initialization",
        "Ours: no cell has a mean risk more than a hundredth below that of Θ_min.",
        no_benefit,
        FIRST,
        LAST,
    ),
    bo(
        "small scale, every dimension",
        "Figure 3, caption",
        "BO-3-distance",
        "In line with our theory, we find that when the initialization scale is small, final "
        "solution is close to the minimum ℓ2-norm interpolator and the resulting excess risk is "
        "small.",
        "Ours: at α = 10⁻⁴ and every d the mean squared distance is at most a tenth of ‖Θ_min‖², "
        "and the mean risk at most a tenth above that of Θ_min.",
        small_scale_close,
        bo_1.DIMENSION,
    ),
    bo(
        "linear networks trained to 1e-7",
        "Section 7, setup",
        "BO-3-risk",
        "All of the models are trained on the squared loss with full-batch gradient descent with "
        "step-size 10−4, until the training loss is smaller than 10−7.",
        "Ours: every network ends below it, as the mean over the n·q entries, within the 10⁵ steps "
        "of the authors' code.",
        trained_to_target,
        bo_1.DIMENSION,
    ),
    bo(
        "ReLU: grows with the first layer only",
        "Section 1, on Figure 2",
        "BO-2-left",
        "As in the linear case the excess risk increases with the scale of the initialization of "
        "the first layer, but we do not see a significant increase in excess risk with the scale "
        "of the initialization of the last layer.",
        f"{RELU_GROWS} {RELU_FLAT}",
        relu_both,
        *RELU,
    ),
    bo(
        "ReLU: smaller for smaller α",
        "Figure 2, caption",
        "BO-2-left",
        "When we scale α2, similar to deep linear models we find that risk is smaller for smaller "
        "values of α2.",
        RELU_GROWS,
        relu_first,
        RELU[0],
    ),
    bo(
        "ReLU: not so for β",
        "Figure 2, caption",
        "BO-2-right",
        "However, this is not the case when we scale β2.",
        RELU_FLAT,
        relu_last,
        RELU[1],
    ),
    bo(
        "ReLU: asymmetry",
        "Figure 2, caption",
        "BO-2-right",
        "This highlights a surprising asymmetry in the role played by the initialization scales of "
        "the different layers in ReLU networks.",
        "Ours: the relative change with α less that with β, averaged over the data sets, is "
        "positive beyond its 95% interval.",
        asymmetry,
        *RELU,
    ),
    bo(
        "ReLU: asymmetry, text",
        "Section 7",
        "BO-2-right",
        "In deep ReLU networks (see Figure 2), we find an asymmetry in the roles of α and β. The "
        "excess risk increases when we increase α, but is largely unaffected by the scale of the "
        "initialization of the final layer β.",
        f"{RELU_GROWS} {RELU_FLAT}",
        relu_both,
        *RELU,
    ),
    bo(
        "ReLU: trained to 1e-7",
        "Section 7, setup",
        "BO-2-left",
        "Again, all of the models are trained on the squared loss with full-batch gradient descent "
        "with step-size 10−4, until the training loss is smaller than 10−7.",
        "Ours: the smallest loss reached after the authors' 10⁵ steps, as the mean over the n·q "
        "entries.",
        relu_trained,
        *RELU,
        why="The authors' logs end at a training loss of 2.1 to 3.3 after 10⁵ steps (E-10); ours "
        "ends there, too. Our question of BO-2-printed trains to 1e-7 by another solver.",
    ),
)
