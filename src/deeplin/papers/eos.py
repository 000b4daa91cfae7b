"""Descent and the edge of stability: EOS-life, EOS-flow, EOS-orbits and EOS-early.

One run below, at and above the critical rate; where the gradient flow from each iterate would end
(that its sharpness falls along descent is a theorem of Kreisler et al. 2023 for scalar networks);
how the modes of diag(10, 9.5, 9) begin to oscillate, one after the other; early sharpening, and how
much of it the smallest layers explain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from deeplin.dynamics import central_flow, gradient_descent
from deeplin.hessian import sharpness
from deeplin.networks import Network
from deeplin.papers.figures import Answers, Table, define_study
from deeplin.papers.setting import (
    ALL_DATA,
    FEW_DATA,
    Config,
    InSetting,
    Setting,
    data_name,
)
from deeplin.papers.statistics import mean_interval, number
from deeplin.plot_style import COLORS, INK, QUIET, reference_line, series
from deeplin.problems import Problem
from deeplin.sweep import run_key
from deeplin.theory import balanced_mode, mode_orbits, network_orbit
from deeplin.theory.minimizers import balanced_factors

PLACES = {0.7: "below", 1.0: "at", 1.1: "above"}
"""Rates in units of the critical one, by name."""
EARLY, SETTLING = 20, 10
"""Number of steps in which the sharpness first rises, and before the central flow is compared."""


@dataclass(frozen=True)
class Life(InSetting):
    """One start, trained at three rates on several data sets and recorded at every step."""

    scale: float
    repetition: int
    steps: int
    central_steps: int


def run_life(config: Life, factor: float, data_seed: int) -> pd.DataFrame:
    """Return all quantities of the run at every step, in units of the edge 2/η."""
    setting = config.at(data_seed)
    problem, rate = setting.data.problem, factor * setting.flattest.critical_learning_rate()
    one = [{"scale": config.scale, "repetition": config.repetition}]
    net = jax.tree.map(lambda leaf: leaf[0], setting.networks(config.seed, one, config.scale))
    names = ("gap", "eigenvalues", "flow_sharpness")
    run = gradient_descent(problem, net, rate, config.steps, record_every=1, record=names)
    records, edge = run.records, 2 / rate
    averaged = central_flow(problem, net, rate, config.central_steps).records
    orbit = network_orbit(problem, run.network, rate)
    low, high = (float(sharpness(problem, network).value) / edge for network in orbit.networks)
    values = enumerate(records["eigenvalues"].T / edge, start=1)
    return pd.DataFrame({"step": records["step"], "gap": records["gap"]}).assign(
        **{f"eigenvalue{index}": value for index, value in values},
        flow=records["flow_sharpness"] / edge,
        minimal=setting.flattest.exact / edge,
        central=pd.Series(averaged["sharpness"] / edge),
        modes=orbit.modes,
        multiplier=orbit.multiplier,
        orbit_found=orbit.converged,
        orbit_gap=np.mean(orbit.risks) - problem.minimal_risk,
        orbit_low=low,
        orbit_high=high,
    )


def _orbit_error(run: Table) -> float:
    """Return |mean gap of the last two steps over that of the orbit − 1|."""
    return abs(run["gap"].iloc[-2:].mean() / run["orbit_gap"].iloc[-1] - 1)


def _central_error(run: Table) -> float:
    """Return the median |mean of two consecutive sharpnesses over that of the central flow − 1|."""
    known = run.dropna(subset=["central"])
    pairs = known["eigenvalue1"].rolling(2).mean().shift(-1)
    return float((pairs / known["central"] - 1).abs().iloc[SETTLING:].median())


def life_answers(config: Life, table: Table) -> Answers:
    """Answer which stages a run has, over the data sets."""
    runs = [
        {
            "place": PLACES[float(factor)],
            "early": run["eigenvalue1"].iloc[1:EARLY].max() / run["eigenvalue1"].iloc[0],
            "end": run["flow"].iloc[-1] / max(1.0, run["minimal"].iloc[-1]),
            "central": _central_error(run),
            "orbit": _orbit_error(run) if factor > 1 else np.nan,
            "multiplier": run["multiplier"].iloc[-1],
        }
        for (factor, _), run in table.groupby(["factor", "data_seed"])
    ]
    found = pd.DataFrame(runs)
    by_place = found.groupby("place", sort=False)
    above = found[found["place"] == "above"]
    return {
        "sharpens": {"steps": EARLY, "early": by_place["early"].min()},
        "where it ends": {"ends": by_place["end"].max()},
        "central flow": {"error": by_place["central"].max(), "first": SETTLING},
        "orbit": {"error": above["orbit"], "multiplier": above["multiplier"]},
    }


def plot_life(config: Life, table: Table, ax: Axes, *, factor: float) -> None:
    """Plot top five eigenvalues, flow sharpness, central flow and orbit, over 2/η."""
    run, others = config.split(table[table["factor"] == factor])
    run = run.set_index("step")
    for index in range(5, 1, -1):
        label = "second to fifth eigenvalue" if index == 2 else None
        ax.plot(run[f"eigenvalue{index}"], color=QUIET, linewidth=0.7, label=label)
    ax.plot(run["eigenvalue1"], color=COLORS[0], linewidth=1, label="sharpness")
    ax.plot(run["flow"], color=COLORS[1], label="where the flow would end")
    if len(others):
        paths = others.pivot(index="step", columns="data_seed", values="flow")
        names = ["the same, other data sets"] + [None] * (paths.shape[1] - 1)
        style: dict[str, Any] = {"color": COLORS[1], "linewidth": 0.8, "alpha": 0.4, "zorder": 1.5}
        ax.plot(paths.index, paths, label=names, **style)
    ax.plot(run["central"], color=COLORS[2], linestyle="--", label="central flow")
    if factor > 1:
        for name, label in (("orbit_low", "orbit"), ("orbit_high", None)):
            height = run[name].iloc[-1]
            ax.axhline(height, color=COLORS[3], linestyle="-.", linewidth=1, label=label)
    reference_line(ax, 1.0, "2/η")
    flattest = run["minimal"].iloc[-1]
    if abs(flattest - 1) > 0.05:
        reference_line(ax, flattest, r"$S_{\mathrm{min}}$", color=INK, linestyle="--")
    ax.set_xscale("symlog", linthresh=20)
    ax.set_xlim(0, config.steps)
    ax.set_ylim(bottom=min(0, run["eigenvalue5"].min()))


LIFE = define_study(
    "eos-life",
    run_life,
    {"factor": tuple(PLACES), "data_seed": "data_seeds"},
    paper=Life(Setting(depth=3), 0.3, 3, 1000, 200, data_seeds=ALL_DATA),
    quick={"steps": 300, "central_steps": 30, "data_seeds": FEW_DATA},
    steps="steps",
)

LEAST = 1e-7
"""Smallest relative change that counts, a hundred times the accuracy of the flows."""


@dataclass(frozen=True)
class FlowEnds(InSetting):
    """Descent from many starts at fractions of the critical rate, recorded at every step."""

    scale: float
    factors: tuple[float, ...]
    """Learning rates, in units of the critical one."""
    steps: int
    repetitions: int


def run_flow_ends(config: FlowEnds, factor: float, data_seed: int) -> dict[str, np.ndarray]:
    """Return the sharpness at the end of the flow from every iterate, over the edge 2/η."""
    setting = config.at(data_seed)
    rate = factor * setting.flattest.critical_learning_rate()
    runs = [{"scale": config.scale, "repetition": k} for k in range(config.repetitions)]
    nets = setting.networks(config.seed, runs, config.scale)
    run = gradient_descent(
        setting.data.problem, nets, rate, config.steps,
        record_every=1, record=("flow_sharpness",), keep_weights=False,
    )  # fmt: skip
    ends = run.records["flow_sharpness"] * rate / 2
    return {
        "repetition": np.tile(np.arange(config.repetitions), len(ends)),
        "step": np.repeat(run.records["step"], config.repetitions),
        "status": np.tile(np.asarray(run.status), len(ends)),
        "end": ends.ravel(),
    }


def rises(table: Table, stride: int = 1) -> Table:
    """Return start, end, share of rising steps, and rise over fall, for each run."""
    rows, keys = [], ["factor", "data_seed", "repetition"]
    for key, run in table[table["status"] != "diverged"].groupby(keys):
        ends = run.sort_values("step")["end"].to_numpy()[::stride]
        change = np.diff(ends) / ends[:-1]
        up = change > LEAST
        fall = -change[change < 0].sum()
        rows.append(
            dict(zip(keys, key, strict=True))
            | {
                "first": ends[0],
                "last": ends[-1],
                "share": np.mean(up) if np.isfinite(ends).all() else np.nan,
                "regained": change[up].sum() / fall if fall > 0 else np.nan,
            }
        )
    return pd.DataFrame(rows)


def flow_answers(config: FlowEnds, table: Table) -> Answers:
    """Answer whether the theorem for scalar networks extends to matrices."""
    runs, second = rises(table), rises(table, stride=2)
    share, half = mean_interval(runs["share"].dropna())
    by = runs["factor"]
    return {
        "monotone": {
            "share": share,
            "half": half,
            "some": (runs["share"] > 0).mean(),
            "runs": runs,
            "second": (second["share"] > 0).mean(),
            "regained": runs["regained"].median(),
        },
        "over a run": {
            "sharper": (runs["last"] > runs["first"] * (1 + LEAST)).groupby(by).mean(),
            "most": max((runs["last"] / runs["first"] - 1).max(), 0),
            "below": (runs["last"] <= 1 + LEAST).groupby(by).mean(),
        },
    }


def plot_flow_ends(config: FlowEnds, table: Table, ax: Axes) -> None:
    """Plot every run, a color for each rate; medians are thick, other data sets dashed."""
    drawn, others = config.split(table[table["status"] != "diverged"])
    dashed: dict[str, Any] = {"linewidth": 0.9, "linestyle": "--"}
    for color, (_, runs) in zip(COLORS, others.groupby("factor"), strict=False):
        paths = runs.groupby(["data_seed", "step"])["end"].median().unstack("data_seed")
        ax.plot(paths.index, paths, color=color, alpha=0.6, **dashed)
    for color, (factor, runs) in zip(COLORS, drawn.groupby("factor"), strict=False):
        paths = runs.pivot(index="step", columns="repetition", values="end")
        ax.plot(paths.index, paths, color=color, linewidth=0.5, alpha=0.35)
        label = rf"$\eta = {number(factor)}\,\eta_c$"
        ax.plot(paths.median(axis=1), color=color, linewidth=2, label=label)
    ax.plot([], [], color=QUIET, label="other data sets", **dashed)
    reference_line(ax, 1.0, "2/η")
    ax.set_xscale("symlog", linthresh=10)
    ax.set_xlim(0, config.steps)


FLOW_ENDS = define_study(
    "eos-flow",
    run_flow_ends,
    {"factor": "factors", "data_seed": "data_seeds"},
    paper=FlowEnds(Setting(depth=5), 0.4, (0.3, 0.6, 0.9), 200, 40, data_seeds=ALL_DATA),
    quick={"steps": 60, "repetitions": 8, "data_seeds": FEW_DATA},
    runs="repetitions",
    steps="steps",
)

MARGIN = 1e-3
"""Relative distance from each threshold at which the modes are counted, on both sides."""


@dataclass(frozen=True)
class ModeOrbits(Config):
    """A diagonal target on white inputs with the loss ½‖Θ − S‖², and learning rates."""

    targets: tuple[float, ...]
    depth: int
    rates: tuple[float, ...]
    steps: int = 4000

    @property
    def thresholds(self) -> np.ndarray:
        """2/(Lσ^{2−2/L}) for each mode (X-12)."""
        return 2 / (self.depth * np.array(self.targets) ** (2 - 2 / self.depth))

    @property
    def all_rates(self) -> list[float]:
        """The rates, and those close to the thresholds."""
        near = [float(t) * (1 + side * MARGIN) for t in self.thresholds for side in (-1, 1)]
        return sorted({*self.rates, *near})


def run_orbits(config: ModeOrbits) -> list[dict[str, float]]:
    """Return one row for each rate and mode: descent from balanced weights, then Newton's orbit."""
    size, targets = len(config.targets), np.array(config.targets)
    inputs = np.sqrt(size / 2) * np.eye(size)  # Σ̂ = I/2: the risk is ½‖Θ − S‖²
    problem = Problem.from_data(inputs, inputs @ np.diag(targets))
    start = Network([np.diag(1.01 * targets ** (1 / config.depth))] * config.depth)
    rates = np.array(config.all_rates)
    run = gradient_descent(problem, start, rates, config.steps)
    rows = []
    for index, rate in enumerate(rates):
        weights = [np.asarray(weight)[index] for weight in run.network.weights]
        orbit = network_orbit(problem, Network(weights), float(rate))
        sides = [np.diag(np.asarray(network.product)) for network in orbit.networks]
        exact = mode_orbits(problem, config.depth, float(rate))
        for mode, known in enumerate(exact):
            rows.append(
                {
                    "rate": rate,
                    "mode": mode,
                    "target": targets[mode],
                    "amplitude": abs(sides[1][mode] - sides[0][mode]) / 2,
                    "exact": 0.0 if known is None else known.amplitude,
                    "modes": orbit.modes,
                    "expected": sum(other is not None for other in exact),
                    "multiplier": orbit.multiplier,
                    "residual": orbit.residual,
                }
            )
    return rows


def _crossings(config: ModeOrbits, table: Table) -> dict[str, float]:
    """Return where each mode was found to begin, over its threshold: the middle of a bracket."""
    found = {}
    by_rate = table.groupby("rate")["modes"].first()
    for count, threshold in enumerate(config.thresholds, start=1):
        below, above = by_rate[by_rate < count].index.max(), by_rate[by_rate >= count].index.min()
        found[f"σ = {number(config.targets[count - 1])}"] = (below + above) / 2 / threshold
    return found


def orbit_answers(config: ModeOrbits, table: Table) -> Answers:
    """Answer for thresholds, amplitudes and stability."""
    moving = table[table["exact"] > 0]
    by_rate = table.groupby("rate").first()
    alone, several = by_rate[by_rate["expected"] == 1], by_rate[by_rate["expected"] > 1]
    return {
        "thresholds": {
            "crossings": _crossings(config, table),
            "margin": MARGIN,
            "apart": (moving["amplitude"] / moving["exact"] - 1).abs().max(),
        },
        "stability": {
            "alone": alone["multiplier"],
            "lost": alone.index[alone["multiplier"] > 1].min(),
            "several": several["multiplier"],
        },
    }


def plot_amplitudes(config: ModeOrbits, table: Table, ax: Axes) -> None:
    """Plot amplitude of each mode against the rate: Newton's orbit (marks) and X-12 (lines)."""
    for index, target in enumerate(config.targets):
        rows, color = table[table["mode"] == index], COLORS[index]
        ax.plot(rows["rate"], rows["exact"], color=color, linewidth=1)
        marks = series(index, linestyle="none", label=rf"$\sigma = {number(target)}$")
        ax.plot(rows["rate"], rows["amplitude"], **marks)
        ax.axvline(config.thresholds[index], color=color, linestyle=":", linewidth=1)
    ax.plot([], [], color=INK, linewidth=1, label="X-12")
    ax.plot([], [], color=QUIET, linestyle=":", linewidth=1, label="threshold")


def plot_multipliers(config: ModeOrbits, table: Table, ax: Axes) -> None:
    """Plot largest multiplier of two steps in the whole network."""
    by_rate = table.groupby("rate").first()
    for count in range(len(config.targets) + 1):
        rows = by_rate[by_rate["modes"] == count]
        label = f"{count} modes oscillate" if count != 1 else "1 mode oscillates"
        if len(rows):
            ax.plot(rows["multiplier"], **series(count, linestyle="none", label=label))
    for threshold in config.thresholds:
        ax.axvline(threshold, color=QUIET, linestyle=":", linewidth=1)
    reference_line(ax, 1.0, "stable\nbelow")


GRID = tuple(round(0.0302 + 2e-4 * k, 6) for k in range(36))
ORBITS = define_study(
    "eos-orbits",
    run_orbits,
    {},
    paper=ModeOrbits((10.0, 9.5, 9.0), 3, GRID, steps=20_000),
    quick={"steps": 4000},
    runs="all_rates",
    steps="steps",
)

FACTOR, STEPS = 0.02, 6000
"""Learning rate, in units of the critical one: close to the flow; and steps of descent."""
HALF = 0.5
"""Fraction of the initial gap down to which training counts as early."""


@dataclass(frozen=True)
class EarlySharpening(InSetting):
    """Gaussian starts whose layers differ in size by a factor, in random order."""

    scales: tuple[float, ...]
    spreads: tuple[float, ...]
    repetitions: int


def run_early(
    config: EarlySharpening, scale: float, spread: float, data_seed: int
) -> dict[str, np.ndarray]:
    """Return how much the sharpness grew, and how much with only some of the layers trained."""
    setting = config.at(data_seed)
    problem, depth = setting.data.problem, setting.depth
    members = np.arange(config.repetitions)
    runs = [{"scale": scale, "spread": spread, "repetition": int(k)} for k in members]
    start = _spread(config, setting.networks(config.seed, runs, scale), spread)
    rate = np.full(len(runs), FACTOR * setting.flattest.critical_learning_rate())
    run = gradient_descent(problem, start, rate, STEPS, record_every=11, record=("gap",))
    gaps = run.records["gap"]
    reached = gaps <= HALF * gaps[0]
    late = np.where(reached.any(axis=0), reached.argmax(axis=0), len(gaps) - 1)
    assert run.trajectory is not None  # recorded
    after = [np.asarray(layer)[late, members] for layer in run.trajectory.weights]
    before = [np.asarray(layer) for layer in start.weights]
    sizes = np.stack([np.linalg.norm(layer, axis=(1, 2)) for layer in before])
    small = np.argsort(np.argsort(sizes, axis=0), axis=0) < depth // 2  # (layers, runs)
    first = _sharpness(problem, before)

    def growth(trained: np.ndarray) -> np.ndarray:
        chosen = zip(trained, after, before, strict=True)
        mixed = [np.where(mine[:, None, None], a, b) for mine, a, b in chosen]
        return np.log(_sharpness(problem, mixed) / first)

    return {
        "repetition": members,
        "halved": reached.any(axis=0),
        "growth": growth(np.ones_like(small)),
        "small": growth(small),
        "large": growth(~small),
    }


def _spread(config: EarlySharpening, nets: Network, spread: float) -> Network:
    """Return the layers times spread^(−½…½), in a random order for each run.

    The product keeps its size.
    """
    depth = len(nets.weights)
    powers = spread ** np.linspace(-0.5, 0.5, depth)
    orders = [
        jax.random.permutation(run_key(config.seed, part="order", repetition=k), depth)
        for k in range(config.repetitions)
    ]
    factors = powers[np.stack([np.asarray(order) for order in orders])]
    layers = enumerate(nets.weights)
    return Network([np.asarray(w) * factors[:, k, None, None] for k, w in layers], nets.readout)


def _sharpness(problem: Problem, weights: list[np.ndarray]) -> np.ndarray:
    return np.asarray(sharpness(problem, Network(weights)).value)


GROUPS = ["scale", "spread"]


def shares(table: Table) -> Table:
    """Return, by start and data set, the share of runs that sharpen and median shares of growth."""
    runs = table[table["halved"]]
    grown = runs["growth"] > 0
    explained = {half: (runs[half] / runs["growth"]).where(grown) for half in ("small", "large")}
    rows = runs.assign(grown=grown, **explained).groupby([*GROUPS, "data_seed"])
    found = rows[["small", "large"]].median().assign(grown=rows["grown"].mean())
    return found.assign(runs=rows.size(), growing=rows["grown"].sum())


def early_answers(config: EarlySharpening, table: Table, white: Table) -> Answers:
    """Answer whether the sharpness grows early, which layers carry it, and how on white inputs."""
    found = shares(table)
    by = found.groupby(GROUPS)
    off = (white["sharpness"] / white["exact"] - 1).abs()
    return {
        "sharpens early": {"grown": by["grown"].mean(), "runs": found["runs"].sum()},
        "which layers": {half: by[half].median() for half in ("small", "large")},
        "exact curve": {"off": off.groupby(white["share"]).max()},
    }


def plot_shares(config: EarlySharpening, table: Table, ax: Axes) -> None:
    """Plot growth with half of the layers trained against the whole growth, a mark a run."""
    drawn, _ = config.split(table[table["halved"]])
    for index, (group, rows) in enumerate(drawn.groupby(GROUPS)):
        marks = series(index, linestyle="none")
        ax.plot(rows["growth"], rows["small"], label=_name(group), **marks)
        ax.plot(rows["growth"], rows["large"], markerfacecolor="none", **marks)
    _name_halves(ax)
    ax.axline((0, 0), slope=1, color=QUIET, linestyle=":", linewidth=1)


def _name(group: Any) -> str:
    """Return the name of a start, by its scale and the spread of its layers."""
    return "scale {}, layers apart by {}".format(*map(number, group))


def _name_halves(ax: Axes) -> None:
    for label, face in (("smaller half trained", QUIET), ("larger half trained", "none")):
        ax.plot([], [], "o", color=QUIET, markerfacecolor=face, label=label)


def plot_on_data_sets(
    config: EarlySharpening, table: Table, ax: Axes, *, columns: Sequence[str]
) -> None:
    """Plot columns of `shares` on every data set; that of the larger half of the layers is open."""
    places = {seed: place for place, seed in enumerate(config.data_seeds)}
    for index, (group, rows) in enumerate(shares(table).groupby(GROUPS)):
        place = rows.index.get_level_values("data_seed").map(places) + 0.15 * (index - 1.5)
        label = _name(group)
        for column in columns:
            face = {"markerfacecolor": "none"} if column == "large" else {}
            marks = series(index, linestyle="none", label=label, **face)
            ax.plot(place, rows[column], **marks)
            label = None
    ax.set_xticks([*places.values()], [data_name(seed) for seed in places])
    if "large" in columns:
        _name_halves(ax)


EARLY_SHARPENING = define_study(
    "eos-early",
    run_early,
    {"scale": "scales", "spread": "spreads", "data_seed": "data_seeds"},
    paper=EarlySharpening(Setting(depth=4), (0.2, 0.35), (2.0, 4.0), 200, data_seeds=ALL_DATA),
    quick={"repetitions": 20, "data_seeds": FEW_DATA},
    runs="repetitions",
)

SIZE = 2.0
"""Target of the white problem."""


@dataclass(frozen=True)
class White(Config):
    """Descent from balanced weights whose product has some share of the target."""

    depth: int
    shares: tuple[float, ...] = (0.3, 0.03)


def white_problem(dimension: int = 5) -> Problem:
    """Return a problem with Σ̂ = I and a target of norm SIZE without noise."""
    inputs = np.sqrt(dimension) * np.eye(dimension)
    return Problem.from_data(inputs, inputs @ np.full(dimension, SIZE / np.sqrt(dimension)))


def run_white(config: White, share: float, problem: Problem | None = None) -> dict[str, np.ndarray]:
    """Return the sharpness along descent from balanced weights on white inputs, and its exact path.

    A rotation and a change of units map every such problem with one output to every other, so
    `sharpness / exact` is the same for all.
    """
    problem, depth = problem or white_problem(), config.depth
    size = problem.optimum_norm
    direction = np.asarray(problem.optimum).reshape(-1, 1) / size
    rate = 0.01 / (2 * depth * size ** (2 - 2 / depth))
    start = balanced_factors(share * size * direction, depth, width=len(direction))
    run = gradient_descent(problem, start, rate, 3000, record_every=100, record=("risk",))
    assert run.trajectory is not None  # recorded
    times = rate * run.records["step"]
    path = balanced_mode(times, target=size, start=share * size, depth=depth)
    ideal = [balanced_factors(s * direction, depth, width=len(direction)) for s in path]
    layers: Any = zip(*(net.weights for net in ideal), strict=True)
    # each by itself: followed along the run, the eigenvector of a symmetric start is kept where
    # one of another symmetry overtakes
    return {
        "time": times,
        "sharpness": np.asarray(sharpness(problem, Network(run.trajectory.weights)).value),
        "exact": np.asarray(sharpness(problem, Network([np.stack(w) for w in layers])).value),
    }


def plot_white(config: White, white: Table, ax: Axes) -> None:
    """Plot sharpness of descent (marks) and of the exact path (lines)."""
    for index, (share, rows) in enumerate(white.groupby("share")):
        ax.plot(rows["time"], rows["exact"], color=COLORS[index], linewidth=1)
        marks = series(index, linestyle="none", label=f"from {number(share)} of the target")
        ax.plot(rows["time"], rows["sharpness"], **marks)
    reference_line(ax, 2 * config.depth * SIZE ** (2 - 2 / config.depth), r"$S_{\mathrm{bal}}$")


WHITE = define_study("eos-white", run_white, {"share": "shares"}, paper=White(depth=4), quick={})
