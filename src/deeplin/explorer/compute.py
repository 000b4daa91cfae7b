"""From a state to numbers: the problem, the networks, their training and the theory about them.

Pure functions; results are kept in small caches, so that switching pages or comparing runs costs
nothing. Nothing here knows about the browser.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import jax
import numpy as np

from deeplin.checks import InputError
from deeplin.dynamics import gradient_descent, gradient_flow
from deeplin.dynamics.measure import applicable, measure
from deeplin.dynamics.objective import objective_of
from deeplin.dynamics.run import DIVERGED, Run
from deeplin.explorer.state import DATA, DESCENT, NETWORK, State
from deeplin.networks import Network
from deeplin.problems import Problem, synthetic
from deeplin.sharpness import sharpness_along
from deeplin.theory import balanced_sharpness, minimal_sharpness

MOST_WORK = 4e9
"""Weight updates (times samples for GELU) of one picture: some ten seconds of one core."""
MOST_RECORDS = 160
LAYERS = ("singular_values", "layer_norms", "alignment")
BACKEND = "shape-free"
"""A slider that changes the shape of a network cannot wait for a kernel to be compiled for it."""
FLOW_RECORDS, FLOW_STEPS, FLOW_FLOOR = 61, 20_000, 1e-11
MOST_NUMBERS = 4e6
"""Weights kept along all recorded steps of a picture."""


@dataclass(frozen=True)
class Theory:
    """The horizontal lines of the sharpness picture (linear networks only)."""

    lower: float
    exact: float
    upper: float
    balanced: float

    @property
    def critical_rate(self) -> float:
        """2/S_min (FM-crit, X-2)."""
        return 2 / self.exact


@dataclass(frozen=True, eq=False)
class Training:
    """Everything the training page shows; arrays are (records, runs) or (records, layers)."""

    run: Run
    rate: float
    step: np.ndarray
    series: dict[str, np.ndarray]
    """risk, gap, distance, sharpness of every run; NaN once a run has diverged."""
    layers: dict[str, np.ndarray]
    """singular_values, layer_norms, alignment of the first run."""
    theory: Theory | None


@dataclass(frozen=True, eq=False)
class Flow:
    """Gradient flow of the first run over the same stretch of time."""

    run: Run
    time: np.ndarray
    series: dict[str, np.ndarray]


def problem_of(state: State, upload: Problem | None = None) -> Problem:
    """The data: drawn from the seed, or the visitor's own."""
    if state.data == "file":
        if upload is None:
            raise InputError("no file has been read yet; choose a CSV file, or synthetic data.")
        return upload
    return _synthetic(state.data_seed, state.samples, state.dimension, state.condition, state.noise)


@lru_cache(maxsize=32)
def _synthetic(seed, samples, dimension, condition, noise) -> Problem:
    return synthetic.flat_minima(
        seed, samples=samples, dimension=dimension, condition_number=condition, noise=noise
    ).problem


def networks_of(state: State, problem: Problem, scales=None) -> Network:
    """The initial networks, one for each seed: run i of a state starts like run 0 of seed + i.

    With an array of `scales` there is one network for each of them, all from the first seed. Draws
    use NumPy: JAX would compile for every new shape.
    """
    seeds = state.seed + (np.arange(state.seeds) if scales is None else 0 * np.arange(len(scales)))
    scales = np.full(len(seeds), state.scale) if scales is None else np.asarray(scales)
    d, L = problem.dimension, state.depth
    residual = state.architecture == "residual"
    widths = [d] * (L + 1) if residual else [d, *[state.width] * (L - 1), 1]
    shapes = [(widths[k + 1], widths[k]) for k in range(L)]
    draws = [
        [rng.normal(size=shape) for shape in shapes] for rng in map(np.random.default_rng, seeds)
    ]
    layers = [np.stack([draw[k] for draw in draws]) for k in range(L)]
    factor = scales[:, None, None]
    if residual:
        noise = factor / np.sqrt(L * d)
        readout = np.tile(readout_of(state, problem), (len(seeds), 1))  # pyright: ignore
        return Network([np.eye(d) + noise * N for N in layers], readout)
    if state.initialisation == "rank_one" and state.architecture == "perceptron":
        return _balanced(layers, scales)
    weights = [factor * layer for layer in layers]
    if state.initialisation == "zero_layer" and state.architecture == "perceptron":
        weights[0] = np.zeros_like(weights[0])
    return Network(weights, activation="gelu" if state.architecture == "gelu" else "linear")


def _balanced(layers: list[np.ndarray], scales: np.ndarray) -> Network:
    """Rank-one, aligned layers of equal norm; product: scale times a random unit vector (X-3)."""
    directions = [
        layer[:, 0, :] / np.linalg.norm(layer[:, 0, :], axis=1)[:, None] for layer in layers
    ]
    directions.append(np.ones((len(scales), 1)))
    norm = scales[:, None, None] ** (1 / len(layers))
    pairs = zip(directions[1:], directions[:-1], strict=True)
    return Network([norm * upper[:, :, None] * lower[:, None, :] for upper, lower in pairs])


def readout_of(state: State, problem: Problem) -> np.ndarray | None:
    """The fixed read-out p of the residual network: a random unit vector of the data seed."""
    if state.architecture != "residual":
        return None
    vector = np.random.default_rng([state.data_seed, 1]).normal(size=problem.dimension)
    return vector / np.linalg.norm(vector)


def theory_of(state: State, problem: Problem) -> Theory | None:
    """S_min with its bracket and S_bal; None for a network they say nothing about."""
    if state.architecture == "gelu":
        return None
    readout = readout_of(state, problem)
    flattest = minimal_sharpness(problem, state.depth, readout)
    balanced = balanced_sharpness(problem, state.depth, readout)
    return Theory(flattest.lower, flattest.exact, flattest.upper, balanced)


def critical_rate(state: State, upload: Problem | None = None) -> float | None:
    """2/S_min of the state, or None where there is none (GELU)."""
    theory = theory_of(state, problem_of(state, upload))
    return None if theory is None else theory.critical_rate


def check_work(state: State, problem: Problem, networks: int) -> None:
    """Raise when a picture would keep the machine busy for long."""
    width = problem.dimension if state.architecture == "residual" else state.width
    weights = state.depth * width * max(width, problem.dimension)
    rows = problem.samples if state.architecture == "gelu" else 1
    work = float(state.steps) * networks * weights * rows
    if work > MOST_WORK:
        raise InputError(
            f"this picture needs {work:.1e} weight updates, more than {MOST_WORK:.0e}; choose "
            "fewer steps, fewer runs, or a smaller network."
        )


def train(state: State, upload: Problem | None = None) -> Training:
    """Train every seed of the state and measure the whole trajectory."""
    return _train(state.only(*DATA, *NETWORK, *DESCENT), upload)


@lru_cache(maxsize=8)
def _train(state: State, upload: Problem | None) -> Training:
    problem = problem_of(state, upload)
    check_work(state, problem, state.seeds)
    theory = theory_of(state, problem)
    nets = networks_of(state, problem)
    run = gradient_descent(
        problem, nets, state.learning_rate, state.steps,
        record_every=record_every(state, nets), record=recorded(state), backend=BACKEND,
    )  # fmt: skip
    step = run.records["step"]
    ended = np.where(np.asarray(run.status) == DIVERGED, np.asarray(run.steps), np.inf)
    alive = step[:, None] < ended[None, :]
    curves = curves_of(problem, run)
    series = {name: np.where(alive, values, np.nan) for name, values in curves.items()}
    first = jax.tree.map(lambda leaf: np.asarray(leaf)[:, 0], run.trajectory)
    objective = objective_of(problem, nets)
    names = [name for name in LAYERS if name in applicable(objective, nets)]
    layers = measure(objective, first, first, names)
    return Training(run, state.learning_rate, step, series, layers, theory)


def recorded(state: State) -> tuple[str, ...]:
    """What a dynamics has to measure as it goes; the rest is measured on the recorded weights."""
    return ("risk",) if state.architecture == "gelu" else ()


def curves_of(problem: Problem, run: Run) -> dict[str, np.ndarray]:
    """risk, sharpness and for linear networks gap and distance."""
    path = run.trajectory
    assert path is not None
    if path.activation == "linear":  # all records at once
        curves = measure(objective_of(problem, path), path, path, ("risk", "gap", "distance"))
    else:
        curves = {"risk": run.records["risk"]}
    return curves | {"sharpness": np.asarray(sharpness_along(problem, path).value)}


def record_every(state: State, nets: Network) -> int:
    """Steps between records: odd, so that an oscillation of period two stays visible."""
    numbers = sum(weight.size for weight in nets.weights)
    records = int(np.clip(MOST_NUMBERS / numbers, 16, MOST_RECORDS))
    return -(-state.steps // records) | 1


def flow(state: State, upload: Problem | None = None) -> Flow:
    """Gradient flow of the first seed until time η·steps."""
    return _flow(state.only(*DATA, *NETWORK, *DESCENT).change(seeds=1), upload)


@lru_cache(maxsize=8)
def _flow(state: State, upload: Problem | None) -> Flow:
    problem = problem_of(state, upload)
    times = np.linspace(0, state.learning_rate * state.steps, FLOW_RECORDS)
    run = gradient_flow(
        problem, networks_of(state, problem), until=times[-1], at=times,
        record=recorded(state), max_steps=FLOW_STEPS,
    )  # fmt: skip
    series = curves_of(problem, run)
    if "gap" in series:  # below the solver's tolerance there is only its noise to see
        clear = series["gap"] > FLOW_FLOOR * series["gap"][0]
        series |= {name: np.where(clear, series[name], np.nan) for name in ("gap", "distance")}
    return Flow(run, run.records["time"], series)
