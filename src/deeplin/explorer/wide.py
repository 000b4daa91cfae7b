"""The page of wide networks: benign overfitting at any width, exactly (X-4, X-5)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache

import jax
import numpy as np
import pandas as pd
from bokeh.layouts import column

from deeplin.checks import InputError
from deeplin.dynamics import UnstableStep, WideRun, simulate_wide
from deeplin.dynamics.run import DIVERGED
from deeplin.dynamics.width_free import ReducedStart, key_words
from deeplin.explorer import plots
from deeplin.explorer.state import WIDE, State
from deeplin.explorer.tab import Stage, Tab, grid, text
from deeplin.problems import Population, Problem, synthetic
from deeplin.theory.benign_overfitting import (
    RiskBound,
    RiskSplit,
    interpolation_bound,
    risk_split,
)
from deeplin.theory.benign_overfitting.effective_ranks import effective_index, effective_ranks

RECORDS = 400
NEAR = 1e-4
"""Squared distance to Θ_min, relative to its square, that counts as being there."""
MOST_WORK = 3e9
"""Steps times weights of the reduced network: some ten seconds."""


@dataclass(frozen=True, eq=False)
class Wide:
    """A trained wide network with its risk taken apart."""

    run: WideRun
    learning_rate: float
    population: Population
    split: RiskSplit
    interpolant_risk: float
    bound: RiskBound | None
    """BO-T3.1 at c = 1; None where no tail is flat enough."""
    index: float
    """k of BO-D2.2."""


def wide(state: State, _upload: Problem | None = None) -> Wide:
    """Train the wide network of the state."""
    return _wide(state.only(*WIDE))


@lru_cache(maxsize=8)
def _wide(state: State) -> Wide:
    data = synthetic.from_spectrum(
        state.wide_seed,
        spectrum_of(state),
        samples=state.wide_samples,
        outputs=state.wide_outputs,
        noise=state.wide_noise,
    )
    check_work(state)
    population = Population(np.asarray(data.truth), data.spectrum, noise=state.wide_noise)
    key = jax.random.key(state.wide_seed)
    start = ReducedStart.draw(
        data.problem,
        key_words(key),
        width=state.wide_width,
        depth=state.wide_depth,
        alpha=state.alpha,
        beta=state.beta,
    )
    rate = state.wide_rate * stable_limit(start, state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnstableStep)  # the page says so in words
        run = simulate_wide(
            data.problem,
            state.wide_width,
            state.wide_depth,
            state.alpha,
            state.beta,
            key,
            learning_rate=rate,
            max_steps=state.wide_steps,
            population=population,
            record_every=max(1, state.wide_steps // RECORDS),
        )
    split = risk_split(data.problem, population, run.theta)
    index = effective_index(data.spectrum, state.wide_samples)
    perpendicular = float(np.linalg.norm(run.theta_perp))
    bound = None
    if np.isfinite(index):
        bound = interpolation_bound(population, state.wide_samples, perpendicular)
    return Wide(run, rate, population, split, population.risk(data.problem.optimum), bound, index)


def spectrum_of(state: State) -> np.ndarray:
    """The population's eigenvalues: k spikes and a flat tail, or a power law."""
    d = state.wide_dimension
    if state.wide_samples >= d:
        raise InputError(
            f"there are {state.wide_samples} samples for {d} inputs; benign overfitting is about "
            "fewer samples than inputs."
        )
    if state.spectrum == "power":
        return np.arange(1, d + 1) ** -state.exponent
    return np.where(np.arange(d) < state.spikes, 1.0, state.epsilon)


def check_work(state: State) -> None:
    """Raise when there is nothing to see, or when it would keep the machine busy for long."""
    if state.alpha == 0 and state.beta == 0:
        raise InputError(
            "every gradient vanishes at this start (α = 0 with β = 0); make one of them positive."
        )
    reduced = min(state.wide_width, state.wide_samples + state.wide_outputs)
    work = float(state.wide_steps) * state.wide_depth * reduced**2
    if work > MOST_WORK:
        raise InputError(
            f"this picture needs {work:.1e} weight updates, more than {MOST_WORK:.0e}; choose "
            "fewer steps, samples or layers."
        )


def stable_limit(start: ReducedStart, state: State) -> float:
    """The learning rate on the mean loss at which descent becomes unstable at the start."""
    return 2 * state.wide_outputs / start.curvature()


class WideTab(Tab):
    """Training curves, the spectrum with its effective ranks, and the parts of the risk."""

    def __init__(self, open_run):
        super().__init__(open_run)
        self.path = plots.source("step", "loss", "distance", "perpendicular")
        self.spectrum = plots.source("j", "value", "ranks")
        self.index = plots.source("x", "y")
        self.parts = plots.source("name", "value", "colour")
        self.numbers = text("numbers")
        figures = [self._training(), self._distance(), self._spectrum(), self._parts()]
        self.layout = column(grid(*figures, least=400), self.numbers, sizing_mode="stretch_width")

    def stages(self, _state: State) -> list[Stage]:
        """One stage."""
        return [wide]

    def show(self, state: State, result: Wide) -> str:
        """Show a trained wide network."""
        self.shown = result
        records = result.run.records
        names = ("step", "loss", "distance", "perpendicular")
        plots.fill(self.path, {name: plots.shown(records[name], "linear") for name in names})
        spectrum = result.population.spectrum
        j = np.arange(1, len(spectrum) + 1)
        ranks = effective_ranks(spectrum).small
        plots.fill(
            self.spectrum,
            {"j": j, "value": plots.shown(spectrum, "log"), "ranks": plots.shown(ranks, "log")},
        )
        finite = np.isfinite(result.index)
        place = [result.index + 1] * 2 if finite else []
        plots.fill(self.index, {"x": place, "y": [spectrum[-1], ranks.max()] if finite else []})
        parts = _parts(result)
        plots.fill(
            self.parts,
            {
                "name": list(parts),
                "value": list(parts.values()),
                "colour": [plots.BLUE, plots.GREEN, plots.GREY, plots.ORANGE, plots.RED],
            },
        )
        self.numbers.text = _numbers(state, result)
        return _words(state, result)

    def table(self) -> pd.DataFrame:
        """The records of the training."""
        return self.shown.run.records.table()

    def _training(self):
        plot = plots.picture("Training loss (mean square)", "wide_loss", y_axis_type="log")
        plot.line("step", "loss", source=self.path, color=plots.BLUE, line_width=2)
        plot.xaxis.axis_label = "steps"
        return plot

    def _distance(self):
        plot = plots.picture("‖Θ − Θ_min‖² and ‖Θ_⊥‖", "wide_distance", y_axis_type="log")
        plot.line(
            "step", "distance", source=self.path, color=plots.BLUE, line_width=2,
            legend_label="‖Θ − Θ_min‖²",
        )  # fmt: skip
        plot.line(
            "step", "perpendicular", source=self.path, color=plots.ORANGE, line_width=2,
            legend_label="‖Θ_⊥‖",
        )  # fmt: skip
        plot.xaxis.axis_label = "steps"
        plots.legend_below(plot)
        return plot

    def _spectrum(self):
        plot = plots.picture(
            "Spectrum λ_j and effective ranks", "wide_spectrum",
            x_axis_type="log", y_axis_type="log",
        )  # fmt: skip
        plot.line(
            "j", "value", source=self.spectrum, color=plots.BLUE, line_width=2, legend_label="λ_j"
        )
        plot.line(
            "j",
            "ranks",
            source=self.spectrum,
            color=plots.GREEN,
            line_width=2,
            legend_label="r_{j−1}",
        )
        plot.line(
            "x", "y", source=self.index, color=plots.RED, line_dash="dashed", legend_label="k"
        )
        plots.legend_below(plot)
        plot.xaxis.axis_label = "j"
        return plot

    def _parts(self):
        names = list(PARTS)
        plot = plots.picture("Excess risk and its parts", "wide_parts", y_range=names[::-1])
        plot.hbar("name", right="value", height=0.7, source=self.parts, color="colour")
        plot.x_range.start = 0  # pyright: ignore
        return plot


PARTS = ("trained network", "min-norm interpolant", "bias", "noise fitted", "due to Θ_⊥ (Ξ)")


def _parts(result: Wide) -> dict[str, float]:
    split = result.split
    values = (split.total, result.interpolant_risk, split.bias, split.noise, split.xi)
    return {name: float(value) for name, value in zip(PARTS, values, strict=True)}


def _words(state: State, result: Wide) -> str:
    run = result.run
    rate = f"η = {result.learning_rate:.2g}"
    if run.status == DIVERGED:
        return (
            f'<p class="bad"><b>Diverged at step {run.steps} with {rate}.</b> '
            "Choose a smaller share of the stable limit.</p>"
        )
    ratio = result.split.total / result.interpolant_risk
    near = run.distance < NEAR * np.sum(run.interpolant**2)
    where = "at the minimum-norm interpolant" if near else "away from the minimum-norm interpolant"
    fitted = (
        f"Interpolates after {run.steps} steps"
        if run.status == "converged"
        else f"Loss {run.loss:.2g} after {run.steps} steps"
    )
    level = "good" if run.status == "converged" else "warn"
    return (
        f'<p class="{level}"><b>{fitted} ({rate}); ends {where}.</b> '
        f"Excess risk {result.split.total:.3g}, {ratio:.3g} times that of the interpolant; "
        f"a network of {state.wide_depth} layers of width {state.wide_width:,} simulated exactly "
        f"by one of width {run.outcomes[0].start.width}.</p>"
    )


def _numbers(state: State, result: Wide) -> str:
    run, bound = result.run, result.bound
    ranks = effective_ranks(result.population.spectrum)
    rows = {
        "Squared distance to Θ_min": f"{run.distance:.4g}",
        "‖Θ_⊥‖": f"{np.linalg.norm(run.theta_perp):.4g}",
        "Conditional variance σ²q·Tr C (any interpolating network)": f"{result.split.variance:.4g}",
        "BO-L4.2: risk ≤": f"{result.split.total:.4g} ≤ {result.split.bound:.4g}",
        "k (BO-D2.2)": "∞: no flat tail" if bound is None else f"{result.index:.0f}",
    }
    if bound is not None:
        k = int(result.index)
        rows |= {
            "s_k, r_k, R_k": ", ".join(f"{column[k]:.4g}" for column in ranks),
            "BO-T3.1 at c = 1: bias + variance + Ξ": (
                f"{bound.bias:.3g} + {bound.variance:.3g} + {bound.xi:.3g} = {bound.total:.3g}"
            ),
            "Smallest c for which it holds": f"{result.split.total / bound.total:.3g}",
        }
    body = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows.items())
    return f"<table>{body}</table>"
