"""Public functions called with a wrong argument: one sentence, or Python's own TypeError."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from answers import raised

import deeplin as dl


def numpy_loss(tree):
    """A loss that JAX cannot trace."""
    return float(np.sum(np.asarray(jax.tree.leaves(tree)[0]) ** 2))


def check(rng: np.random.Generator, folder) -> str | None:
    """One call with one or two wrong arguments: a raw error, if one came."""
    calls = list(public_calls())
    name, function, arguments = calls[rng.integers(len(calls))]
    arguments = dict(arguments)
    for _ in range(rng.choice([1, 2], p=[0.8, 0.2])):
        place = list(arguments)[rng.integers(len(arguments))]
        values = wrong_values()
        arguments[place] = values[rng.integers(len(values))]
        wrong = f"{name}({place}={type(arguments[place]).__name__} {arguments[place]!s:.40})"
    try:
        function(**arguments)
    except dl.InputError as error:
        return None if len(str(error).splitlines()) == 1 else f"{wrong}: several lines: {error}"
    except TypeError:
        return None  # such as "'int' object is not iterable"
    except Exception as error:
        return f"{wrong}: {raised(error)}"
    return None


@functools.cache
def wrong_values() -> list:
    """Of every kind, except numbers so large that a correct answer would take for ever."""
    problem, network = _problem(), _network()
    return [
        *(None, "text", "", True, -1, 0, 0.5, 1e-300, np.nan, np.inf, -np.inf, 1j, 2**70),
        *(lambda *_: None, numpy_loss),
        *([], (), {}, {"a": 1}, [None], ["risk", "loss"], [[1.0], [1.0, 2.0]], [network, network]),
        *(np.array([]), np.array("x"), np.zeros((0, 3)), np.ones(3), np.ones((3, 3)), np.ones(7)),
        *(np.ones((2, 2, 2)), np.array([1, None]), np.full(3, np.nan), np.ones(3, complex)),
        *(jnp.ones(3), jnp.ones((2, 3)), jnp.int32(3), jax.random.key(0), jax.random.PRNGKey(1)),
        *(problem, network, {"w": jnp.ones(3)}, [{"w": jnp.ones(3)}] * 2, iter([]), range(3)),
    ]


@functools.cache
def _problem() -> dl.Problem:
    X = np.random.default_rng(0).normal(size=(9, 3))
    return dl.Problem.from_data(X, X[:, 0] + 0.1 * X[:, 1] ** 2)


@functools.cache
def _network() -> dl.Network:
    return dl.initialize.gaussian(jax.random.key(0), (3, 2, 1), 0.5)


@functools.cache
def _run():
    return dl.gradient_descent(_problem(), _network(), 0.05, 10, record_every=5)


def _loss(tree):
    return jnp.sum(tree["w"] ** 4)


@functools.cache
def public_calls() -> list:
    """Every public function with arguments that it takes."""
    problem, network, key = _problem(), _network(), jax.random.key(0)
    X, y = problem.require_data("a test")
    wide = dl.Problem.from_data(X[:2], X[:2, :1])
    trained = {"problem": problem, "nets": network, "learning_rate": 0.05, "steps": 5}
    trained |= {"momentum": 0.5, "record_every": 2, "record": ["risk"]}
    simulated = {"width": 50, "depth": 3, "alpha": 0.1, "beta": 1.0, "key": key}
    simulated |= {"learning_rate": 0.01, "loss_target": 1e-3, "max_steps": 20}
    of_spectrum = {"optimum": np.ones((3, 1)), "covariance": np.ones(3)}
    one = dl.initialize
    start = {"inputs": 3, "width": 4, "outputs": 1, "depth": 3}
    at = {"problem": problem, "depth": 3}
    return [
        ("Problem.from_data", dl.Problem.from_data, {"X": X, "y": y}),
        ("Problem.from_moments", dl.Problem.from_moments, _moments(problem)),
        ("Problem.from_chunks", dl.Problem.from_chunks, {"chunks": [(X, y)]}),
        (
            "Network",
            dl.Network,
            {"weights": network.weights, "readout": None, "activation": "relu"},
        ),
        ("gaussian", one.gaussian, {"key": key, "widths": (3, 2, 1), "scale": 0.5}),
        ("zero_layer", one.zero_layer, {"key": key, "widths": (3, 2, 1), "scale": 0.5}),
        (
            "residual",
            one.residual,
            {"key": key, "width": 3, "depth": 2, "scale": 0.1, "readout": X[0]},
        ),
        ("identity_middle", one.identity_middle, {"key": key, **start, "alpha": 0.1, "beta": 1.0}),
        ("gradient_descent", dl.gradient_descent, trained),
        ("gradient_flow", dl.gradient_flow, {"problem": problem, "network": network, "until": 0.1}),
        (
            "descent of a loss",
            dl.gradient_descent,
            trained | {"problem": lambda net: jnp.sum(net.product**2)},
        ),
        ("sharpness", dl.sharpness, {"problem": problem, "network": network, "method": "lanczos"}),
        ("sharpness of a loss", dl.sharpness, {"problem": _loss, "network": {"w": jnp.ones(3)}}),
        (
            "sharpness_along",
            dl.sharpness_along,
            {"problem": problem, "trajectory": _run().trajectory},
        ),
        ("reduce", dl.reduce, {"problem": wide, "network": network}),
        ("certify", dl.certify, {"problem": problem, "run": _run(), "only": ["FM-L1"]}),
        (
            "diagnose",
            dl.diagnose,
            {"problem": problem, "depth": [2, 3], "width": None, "seed": 0},
        ),
        ("simulate_wide", dl.simulate_wide, {"problem": wide, **simulated}),
        ("population_risk", dl.population_risk, {"theta": np.zeros((3, 1)), **of_spectrum}),
        ("save_run", dl.save_run, {"path": "/nowhere/run.npz", "problem": problem, "run": _run()}),
        ("load_run", dl.load_run, {"path": "/nowhere/run.npz"}),
        ("read_problem", dl.read_problem, {"source": "/nowhere/table.csv", "target": "y"}),
        ("from_arrays", dl.from_arrays, {"weights": [np.ones((2, 3)), np.ones((1, 2))]}),
        ("minimal_sharpness", dl.theory.minimal_sharpness, {**at, "readout": None}),
        ("critical_learning_rate", dl.theory.critical_learning_rate, at),
        ("balanced_sharpness", dl.theory.balanced_sharpness, at),
        ("flat_minima", dl.problems.synthetic.flat_minima, {"seed": 0, "samples": 9}),
        ("spiked", dl.problems.synthetic.spiked, {"seed": 0, "dimension": 9, "samples": 4}),
    ]


def _moments(problem: dl.Problem) -> dict:
    names = ("covariance", "cross_moment", "target_moment", "samples")
    return {name: getattr(problem, name) for name in names}
