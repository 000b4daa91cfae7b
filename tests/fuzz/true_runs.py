"""True runs on random problems, certified: no theorem may be violated.

Badly scaled columns, up to 200 layers, n < d, one input, width one, α = 0 or β = 0, starts drawn in
float32, runs that were interrupted or diverge, by flow and by descent. The shapes are few, so
that few programs are compiled; everything else is drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import deeplin as dl

MEMBERS = 4
"""Networks that descend together on one problem, each with its own start and rate."""


class Shape(NamedTuple):
    """What decides which programs are compiled."""

    samples: int
    widths: tuple[int, ...]
    dynamics: str
    wide: bool = False


SHAPES = (
    Shape(20, (5, 5, 1), "descent"),
    Shape(12, (4, 4, 4, 1), "descent"),
    Shape(6, (9, 4, 3, 2), "descent"),
    Shape(8, (1, 1, 1, 1), "descent"),
    Shape(15, (3, 1, 1, 1, 1, 1), "descent"),
    Shape(15, (3,) * 40 + (1,), "descent"),
    Shape(10, (2,) * 200 + (1,), "descent"),
    Shape(12, (4, 4, 4, 4), "descent"),
    Shape(12, (4, 4, 4, 1), "flow"),
    Shape(6, (9, 4, 2), "flow"),
    Shape(12, (4,) * 7, "flow"),
    Shape(10, (2,) * 12 + (1,), "flow"),
    Shape(5, (12, 40, 40, 1), "flow", wide=True),
    Shape(5, (12, 40, 40, 1), "descent", wide=True),
)
"""Numbers of samples, widths and dynamics; a wide network has middle layers of the identity."""


def check(rng: np.random.Generator, folder: object = None) -> str | None:
    """Certify the true runs of one random case; return the violated statements."""
    return complaint(certified(rng))


def complaint(table) -> str | None:
    """The violated statements of a certificate, and the sides of the first."""
    rows = table.violated[table.violated["kind"] != "erratum"]
    if rows.empty:
        return None
    row = rows.iloc[0]
    ids = ", ".join(dict.fromkeys(rows["id"]))
    return f"{ids} violated: {row.part}: {row.left:.9g} against {row.right:.9g}"


def certified(rng: np.random.Generator):
    """The certificate of the true runs of one random case."""
    shape = SHAPES[rng.integers(len(SHAPES))]
    problem, population = random_problem(rng, shape)
    start = random_start(rng, shape)
    if len(set(shape.widths)) == 1 and rng.random() < 0.4:
        problem, population = nearly_explained(rng, problem, start), None
    run = random_run(rng, shape, problem, start)
    return dl.certify(problem, run, population=population)


def nearly_explained(rng: np.random.Generator, problem: dl.Problem, start: dl.Network):
    """Well-conditioned data that the first start nearly explains (FM-T4, T5 and C3)."""
    first = start if start.batch is None else start[0]
    X = rng.normal(size=(problem.samples, problem.dimension))
    Y = np.asarray(first(X)).reshape(len(X), -1)
    Y = Y + 1e-12 * X @ rng.normal(size=(X.shape[1], Y.shape[1]))
    return dl.Problem.from_data(X, Y[:, 0] if Y.shape[1] == 1 else Y)


def random_problem(rng: np.random.Generator, shape: Shape):
    """Return a problem with cond(X) up to 1e6, and the population that it was drawn from."""
    n, d, q = shape.samples, shape.widths[0], shape.widths[-1]
    readout = len(set(shape.widths)) == 1 and len(shape.widths) > 5
    q = 1 if readout else q
    spread = 10 ** rng.uniform(-rng.choice([0, 2, 4, 6]), 0, size=d)
    spread *= 10 ** rng.uniform(-2, 2) / np.max(spread)
    truth = rng.normal(size=(d, q))
    match rng.integers(4):
        case 0:
            truth = truth / spread[:, None]
        case 1:
            truth = truth / np.max(spread)
    X = rng.normal(size=(n, d)) * spread
    signal = X @ truth
    size = rng.choice([0.0, 0.1, 1.0]) * max(float(np.std(signal)), 1e-3)
    Y = signal + size * rng.normal(size=(n, q))
    if rng.random() < 0.5:  # a target of the usual size
        factor = 10 ** rng.uniform(-1, 1) / np.std(Y)
        Y, truth = factor * Y, factor * truth
    problem = dl.Problem.from_data(X, Y[:, 0] if q == 1 else Y)
    if rng.random() < 0.2:
        problem = dl.Problem.from_chunks([(X, Y[:, 0] if q == 1 else Y)])
    if n >= d:
        return problem, None
    return problem, dl.Population(truth.T if q > 1 else truth[:, 0], spread**2)


def random_start(rng: np.random.Generator, shape: Shape):
    """Return a start of a flow, a batch of starts of descent; a readout for deep square layers."""
    keys = jax.random.key(int(rng.integers(2**31)))
    if shape.dynamics == "descent":
        keys = jax.random.split(keys, MEMBERS)
    widths, depth = shape.widths, len(shape.widths) - 1
    if shape.wide:
        alpha, beta = 10 ** rng.uniform(-3, 0.5, size=2) * rng.choice([[1, 1], [0, 1], [1, 0]])
        m = widths[1]
        return dl.initialize.identity_middle(
            keys, widths[0], m, widths[-1], depth, alpha / np.sqrt(m), beta / np.sqrt(m)
        )
    if len(set(widths)) == 1:
        readout = rng.normal(size=widths[0])
        net = dl.initialize.residual(keys, widths[0], depth, rng.choice([0.05, 0.3, 1.0]), readout)
        return net if depth > 4 else dl.Network(net.weights)
    size = rng.choice([1e-4, 0.01, 0.3, 1.0])
    if depth >= 8:
        size = rng.uniform(0.5, 1.2) / np.sqrt(max(widths))
    small = size == 1e-4 or rng.random() < 0.3
    maker = dl.initialize.zero_layer if small else dl.initialize.gaussian
    return maker(keys, widths, size)


def random_run(rng: np.random.Generator, shape: Shape, problem: dl.Problem, start: dl.Network):
    """Return the runs: settled, interrupted or diverged."""
    flow = shape.dynamics == "flow"
    if rng.random() < 0.3:  # the digits of a float32 draw
        start = jax.tree.map(lambda leaf: leaf.astype(jnp.float32).astype(jnp.float64), start)
    scale = 1 / problem.largest_eigenvalue
    if flow:
        until = scale * 10 ** rng.uniform(-1, 3)
        at = until * np.array([0.001, 0.01, 0.03, 0.1, 0.3, 1.0])
        return dl.gradient_flow(problem, start, until=until, at=at, record=("gap",), max_steps=3000)
    depth = len(shape.widths) - 1
    try:
        rate = float(dl.theory.critical_learning_rate(problem, depth))
    except dl.InputError:
        rate = scale
    rates = rate * 10 ** rng.uniform(-1.5, 0.5, size=MEMBERS)
    steps = int(rng.choice([1, 10, 300, 3000]))
    every = int(rng.choice([1, 7, 101])) if steps > 1 else 1
    options: dict = {"record_every": max(every, steps // 60), "record": ("gap",)}
    match rng.integers(8) if depth < 8 else None:  # each option is a program of its own
        case 0:
            options |= {"momentum": 0.9, "nesterov": bool(rng.integers(2))}
        case 1:
            options |= {"weight_decay": 0.1 * scale}
        case 2 if problem.inputs is not None:
            options |= {"batch_size": 2, "key": jax.random.key(int(rng.integers(2**31)))}
    return dl.gradient_descent(problem, start, rates, steps, **options)
