"""Plots of runs, rates, spectra and risks, in the style and sizes of the papers' figures.

Each function draws on `ax`, or on new axes of one column's width, and returns the axes:
`dl.plot.training(run).figure.savefig("run.pdf")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike
from scipy import stats

from deeplin import theory
from deeplin.dynamics import gradient_descent
from deeplin.dynamics.run import Run
from deeplin.errors import InputError, whole_number
from deeplin.hessian import HessianSpectrum, SpectralDensity
from deeplin.networks import initialize
from deeplin.plot_style import (
    COLORS,
    DIVERGED,
    INK,
    LIMIT,
    PAPER,
    QUIET,
    SIZE,
    THEORY,
    TRAINED,
    plain_numbers,
    reference_line,
    style,
)
from deeplin.problems import Population, Problem

__all__ = ["critical_rates", "double_descent", "phase", "spectrum", "sweep", "training"]

QUANTITIES = ("sharpness", "gap", "risk", "loss")
"""Quantities that `training` draws by default: the first one that was recorded."""
SETTLED = 1e-12
"""Relative gap below which `phase` uses one color."""
RUNS = (TRAINED, *COLORS[4:], DIVERGED, THEORY, LIMIT)
"""Colors of several runs; those without another meaning come first."""
Arguments = ParamSpec("Arguments")


def _styled(draw: Callable[Arguments, Axes]) -> Callable[Arguments, Axes]:
    """Draw in the style of the figures, independent of the user's settings."""

    @wraps(draw)
    def styled(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Axes:
        with style():
            return draw(*args, **kwargs)

    return styled


def _axes(ax: Axes | None) -> Axes:
    return plt.subplots(figsize=SIZE, layout="constrained")[1] if ax is None else ax


def _logarithmic(ax: Axes, values: np.ndarray) -> None:
    """Draw on a logarithmic axis where all finite values are positive."""
    finite = values[np.isfinite(values)]
    if finite.size and finite.min() > 0:
        ax.set_yscale("log")
        plain_numbers(ax.yaxis)


@_styled
def training(run: Run, quantity: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw a recorded quantity of every run against the step, or the time of a flow.

    The sharpness is drawn with the limit of stability of each constant rate, dashed: 2/η, or
    (2 + 2β)/η with momentum β.

    Args:
        run: a run, or a batch; up to six runs have their own colors, more are drawn thin.
        quantity: a name in `run.records`; by default sharpness, or else the gap or the risk.
        ax: axes to draw on.

    ```python
    import deeplin as dl, jax
    problem = dl.problems.synthetic.flat_minima(seed=0).problem
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5,) * 5 + (1,), scale=0.35)
    run = dl.gradient_descent(
        problem, net, [0.05, 0.1], 200, record_every=1, record=["sharpness"]
    )
    ax = dl.plot.training(run)
    ```
    """
    records = run.records
    known = [name for name in QUANTITIES if name in records]
    if quantity is None and not known:
        raise InputError("this run has no records; train it with record_every=1.")
    name = known[0] if quantity is None else quantity
    if name not in records:
        raise InputError(f"{name!r} was not recorded; recorded: {', '.join(records)}.")
    ax = _axes(ax)
    when = "time" if "time" in records else "step"
    values = records[name].reshape(len(records[when]), -1)
    if run.single and records[name].ndim > 1:
        labels = [f"{name} {index + 1}" for index in range(values.shape[1])]
        rates = np.full(values.shape[1], np.nan)
    elif records[name].ndim > 2:
        raise InputError(f"{name!r} has several values for each run; draw one run, run[k].")
    else:
        rate = np.nan if run.learning_rate is None else np.asarray(run.learning_rate, float)
        constant = np.ndim(rate) == 0 or (run.variant == "plain" and not run.single)
        rates = np.broadcast_to(rate if constant else np.nan, values.shape[1])
        labels = [f"η = {rate:.3g}" if rate == rate else "" for rate in rates]
    few = values.shape[1] <= len(RUNS)
    thin: dict[str, Any] = {} if few else {"linewidth": 0.6, "alpha": 0.5}
    limits = "limit of stability " + ("(2 + 2β)/η" if run.momentum else "2/η")
    drawn: set[str] = set()
    ended = np.broadcast_to(
        np.where(np.equal(run.status, "diverged"), run.steps, np.inf), len(labels)
    )
    for index, (column, label) in enumerate(zip(values.T, labels, strict=True)):
        color = RUNS[index] if few else TRAINED
        shown = f"_{label}" if label in drawn or not label else label
        if not few and label not in drawn:
            shown = f"{label}: {labels.count(label)} runs" if label else f"{len(labels)} runs"
        before = records[when] < ended[index]  # a diverged run repeats its last finite weights
        ax.plot(
            records[when][before],
            column[before],
            color=color,
            label=shown,
            zorder=3 - 0.01 * index,
            **thin,
        )
        if name == "sharpness" and np.isfinite(rates[index]) and label not in drawn:
            limit = (2 + 2 * run.momentum) / rates[index]
            seen = any(rate == rate for rate in rates[:index])
            name_once = f"_{limits}" if seen else limits
            ax.axhline(limit, color=color, linestyle="--", linewidth=0.9, label=name_once)
        drawn.add(label)
    ax.set(xlabel=when, ylabel=name.replace("_", " "))
    _logarithmic(ax, values)
    if ax.get_legend_handles_labels()[1]:
        ax.legend()
    return ax


@_styled
def critical_rates(
    problem: Problem, depth: Iterable[int] = range(2, 21), *, ax: Axes | None = None
) -> Axes:
    """Draw the critical learning rate 2/S_min (X-2, X-7) against depth.

    It also draws 2/S_bal (X-3), up to which small starts converge, and for least squares with one
    output the bracket of FM-T2.

    ```python
    import deeplin as dl
    ax = dl.plot.critical_rates(dl.problems.synthetic.flat_minima(seed=0).problem, range(2, 8))
    ```
    """
    ax = _axes(ax)
    depths = [whole_number("depth", L) for L in depth]
    minima = [theory.minimal_sharpness(problem, L) for L in depths]
    bracket = np.array([[2 / m.upper, 2 / m.lower] for m in minima])
    shade = {"color": THEORY, "alpha": 0.2, "linewidth": 0}
    ax.fill_between(depths, *bracket.T, label="bounds of FM-T2", **shade)
    ax.plot(depths, [2 / m.exact for m in minima], color=THEORY, label="$2/S_{min}$, critical")
    balanced = [2 / theory.balanced_sharpness(problem, L) for L in depths]
    ax.plot(depths, balanced, ":", color=THEORY, label="$2/S_{bal}$, small starts")
    ax.set(xlabel="depth", ylabel="learning rate", yscale="log")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    plain_numbers(ax.yaxis)
    ax.legend()
    return ax


@_styled
def spectrum(
    values: HessianSpectrum | SpectralDensity | Problem | ArrayLike,
    learning_rate: float | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw eigenvalues by their index, largest first; along a trajectory; or their density.

    Args:
        values: the result of `hessian_spectrum` (with its errors as bars; for a batch, such as
            `run.trajectory.stacked`, each eigenvalue against the record), of `spectral_density`, a
            problem (the eigenvalues of its Σ̂, or of H/2 for other losses), or eigenvalues.
        learning_rate: draws the limit of stability 2/η.
        ax: axes to draw on.

    ```python
    import deeplin as dl
    ax = dl.plot.spectrum(dl.problems.synthetic.flat_minima(seed=0).problem)
    ```
    """
    if isinstance(values, SpectralDensity):
        return _density(values, learning_rate, _axes(ax))
    if isinstance(values, HessianSpectrum) and values.values.ndim == 2:
        return _along(values, learning_rate, _axes(ax))
    errors = None
    if isinstance(values, HessianSpectrum):
        label, errors, found = "eigenvalue of the Hessian", values.errors, np.asarray(values.values)
    elif isinstance(values, Problem):
        label, found = "eigenvalue of Σ̂", np.linalg.eigvalsh(np.asarray(values.curvature) / 2)
    else:
        label, found = "eigenvalue", np.asarray(values, float)
    if found.ndim != 1 or not np.isfinite(found).all() or not found.size:
        raise InputError(
            f"values has shape {found.shape}; pass the finite eigenvalues of one matrix."
        )
    order = np.argsort(-found, kind="stable")
    spread = None if errors is None else np.broadcast_to(errors, found.shape)[order]
    ax = _axes(ax)
    index = np.arange(1, len(found) + 1)
    ax.errorbar(index, found[order], spread, fmt="o-", color=TRAINED, capsize=2)
    ax.set(xlabel="index", ylabel=label)
    _logarithmic(ax, found)
    if learning_rate is not None:
        reference_line(ax, 2 / learning_rate, "2/η", color=LIMIT)
    return ax


def _density(density: SpectralDensity, learning_rate: float | None, ax: Axes) -> Axes:
    """Draw a spectral density, each Ritz value widened to 1/100 of their range."""
    low, high = density.points.min(), density.points.max()
    width = max((high - low) / 100, 1e-12 * max(abs(low), abs(high), 1e-300))
    at = np.linspace(low - 4 * width, high + 4 * width, 800)
    ax.plot(at, density.at(at, width), color=TRAINED, label=f"density, smoothed by {width:.2g}")
    # Far below the least visible share there is nothing but the tails of the Gaussians.
    ax.set(xlabel="eigenvalue of the Hessian", ylabel="density", yscale="log")
    top = density.at(at, width).max()
    ax.set_ylim(1e-4 * top, 3 * top)
    if learning_rate is not None:
        ax.axvline(2 / learning_rate, color=LIMIT, linestyle="--", linewidth=1.0, label="2/η")
    ax.legend()
    return ax


def _along(spectrum: HessianSpectrum, learning_rate: float | None, ax: Axes) -> Axes:
    """Draw the eigenvalues of a batch of networks, such as a trajectory, against its index."""
    records = np.arange(len(spectrum.values))
    for k, (column, errors) in enumerate(
        zip(spectrum.values.T, spectrum.errors.T, strict=True), start=1
    ):
        color = RUNS[(k - 1) % len(RUNS)]
        ax.plot(records, column, color=color, label=f"eigenvalue {k}")
        shade = {"color": color, "alpha": 0.18, "linewidth": 0}
        ax.fill_between(records, column - errors, column + errors, **shade)
    ax.set(xlabel="record", ylabel="eigenvalue of the Hessian")
    _logarithmic(ax, spectrum.values)
    if learning_rate is not None:
        reference_line(ax, 2 / learning_rate, "2/η", color=LIMIT)
    ax.legend()
    return ax


@_styled
def sweep(
    table: pd.DataFrame, x: str, y: str, by: str | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw means over the rows of a table, such as that of `dl.sweep.grid`, with 95 % intervals.

    Rows with the same `x` (and `by`) are repetitions. The interval is that of Student's t; rows
    without a finite `y` are left out, and their number is in the legend.

    Args:
        table: a data frame.
        x: the column of the horizontal axis.
        y: the column that is averaged.
        by: a column with one curve for each of its values, at most six.
        ax: axes to draw on.

    ```python
    import deeplin as dl, pandas as pd
    table = pd.DataFrame({"rate": [0.1, 0.1, 0.2, 0.2], "sharpness": [9.0, 11.0, 8.0, 8.2]})
    ax = dl.plot.sweep(table, x="rate", y="sharpness")
    ```
    """
    missing = [name for name in (x, y, by) if name is not None and name not in table.columns]
    if missing:
        raise InputError(
            f"the table has no column {missing[0]!r}; its columns are {', '.join(table.columns)}."
        )
    groups = [(None, table)] if by is None else list(table.groupby(by, sort=True))
    if len(groups) > len(RUNS):
        raise InputError(
            f"{by!r} has {len(groups)} values; draw at most {len(RUNS)} curves, or pass fewer rows."
        )
    ax = _axes(ax)
    for (value, rows), color in zip(groups, RUNS, strict=False):
        finite = rows[np.isfinite(rows[y].astype(float))]
        points = finite.groupby(x, sort=True)[y].agg(["size", "mean", "std"])
        at = np.asarray(points.index)
        count, mean, deviation = (np.asarray(points[c], float) for c in ("size", "mean", "std"))
        factor = stats.t.ppf(0.975, np.maximum(count - 1, 1)) / np.sqrt(count)
        spread = np.nan_to_num(factor * deviation)  # one row has no interval
        name = "mean" if by is None else f"{by} = {value}"
        left = len(rows) - len(finite)
        label = f"{name} ({left} row{'s' * (left > 1)} not finite)" if left else name
        ax.errorbar(at, mean, spread, fmt="o-", color=color, capsize=2, label=label)
    ax.set(xlabel=x.replace("_", " "), ylabel=y.replace("_", " "))
    ax.legend(title="mean and 95 % interval")
    return ax


@_styled
def phase(
    problem: Problem,
    depth: Iterable[int] = range(2, 11),
    rates: ArrayLike | None = None,
    *,
    scale: float = 0.33,
    starts: int = 5,
    steps: int = 2000,
    key: Array | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Train networks of every depth at every rate, and draw where they end.

    The color is the median over `starts` Gaussian starts of the final gap, relative to that of
    predicting zero; where the median diverges, red. The green line is 2/S_min.

    Args:
        problem: least squares with one target.
        depth: consecutive depths.
        rates: learning rates, ascending; by default 40 around the critical ones.
        scale: standard deviation of the initial weights, of width d.
        starts: networks for each depth and rate.
        steps: steps of gradient descent.
        key: random key of the initial weights.
        ax: axes to draw on.

    ```python
    import deeplin as dl
    problem = dl.problems.synthetic.flat_minima(seed=0).problem
    ax = dl.plot.phase(problem, depth=(2, 3, 4), rates=[0.1, 0.3, 0.5], starts=2, steps=200)
    ```
    """
    depths = [whole_number("depth", L) for L in depth]
    critical = [theory.critical_learning_rate(problem, L) for L in depths]
    if rates is None:
        rates = np.geomspace(0.5 * min(critical), 1.5 * max(critical), 40)
    rates = np.asarray(rates, float)
    key = jax.random.key(0) if key is None else key
    ends = np.stack([_ends(problem, L, rates, scale, starts, steps, key) for L in depths], axis=1)
    ax = _axes(ax)
    colors = {"vmin": np.log10(SETTLED), "vmax": 0, "cmap": "cividis_r", "rasterized": True}
    mesh = ax.pcolormesh(depths, rates, np.log10(np.clip(ends, SETTLED, 1)), **colors)
    lost = np.ma.masked_where(np.isfinite(ends), np.ones_like(ends))
    ax.pcolormesh(depths, rates, lost, cmap=ListedColormap([DIVERGED]), rasterized=True)
    ax.plot(depths, critical, color=PAPER, linewidth=4)
    line: dict[str, Any] = {"markeredgecolor": PAPER, "label": "critical rate $2/S_{min}$"}
    ax.plot(depths, critical, "o-", color=THEORY, **line)
    ax.set(xlabel="depth", ylabel="learning rate", yscale="log", xticks=depths)
    plain_numbers(ax.yaxis)
    ax.figure.colorbar(mesh, ax=ax, label="log₁₀ of the median final gap (red: diverged)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)  # off the cells
    return ax


def _ends(
    problem: Problem,
    depth: int,
    rates: Float[np.ndarray, " rates"],
    scale: float,
    starts: int,
    steps: int,
    key: Array,
) -> Float[np.ndarray, " rates"]:
    """Return the median final gap at each rate over that of predicting zero; inf if diverged."""
    widths = (problem.dimension,) * depth + (problem.outputs,)
    keys = jax.random.split(jax.random.fold_in(key, depth), starts)
    nets = initialize.gaussian(keys, widths=widths, scale=scale)
    each = jax.tree.map(lambda leaf: np.repeat(leaf, len(rates), axis=0), nets)
    run = gradient_descent(problem, each, np.tile(rates, starts), steps)
    zero = problem.target_moment - problem.minimal_risk
    gaps = np.where(run.status == "diverged", np.inf, np.asarray(run.evidence["gap"]) / zero)
    return np.median(gaps.reshape(starts, -1), axis=0)


@_styled
def double_descent(
    population: Population,
    samples: int,
    dimensions: Iterable[int] | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw the expected excess risk of the minimum-norm solution against the features used.

    It also draws bias and variance, and the risk of predicting zero (dotted); the vertical line is
    d′ = n, where the risk is infinite.

    ```python
    import deeplin as dl, numpy as np
    population = dl.Population(np.ones(60) / 8, np.ones(60), noise=0.5)
    ax = dl.plot.double_descent(population, samples=20)
    ```
    """
    given = range(1, population.dimension + 1) if dimensions is None else dimensions
    table = theory.double_descent(population, samples, given).replace([np.inf, 0.0], np.nan)
    ax = _axes(ax)
    columns = {"excess_risk": "excess risk", "bias": "bias", "variance": "variance"}
    for (name, label), color in zip(columns.items(), (THEORY, *COLORS[4:]), strict=True):
        width = 1.5 if name == "excess_risk" else 1.0
        ax.plot(table["dimension"], table[name], color=color, label=label, linewidth=width)
    ax.axvline(samples, color=INK, linestyle="--", linewidth=1.0, label="d′ = n")
    zero = float(population.risk(np.zeros_like(population.optimum)))
    ax.axhline(zero, color=QUIET, linestyle=":", linewidth=1.0, label="predicting zero")
    ax.set(xlabel="features used, d′", ylabel="expected excess risk", yscale="log")
    ax.legend()
    return ax
