"""How the sentences of BO about simulations are measured (see `quotes.toml`).

Limits stand here before the runs that they judge. Where the authors' step is unstable
(E-11) descent is judged as they ran it.
"""

from __future__ import annotations

from typing import Any

from deeplin.papers.bo_1 import WideSweep
from deeplin.papers.bo_2 import ReluSweep, main_runs
from deeplin.papers.bo_2_printed import OUTPUTS, TARGET, effect
from deeplin.papers.figures import Table
from deeplin.papers.quote import Part, exactly, mean_of, share_of
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
