"""What the page computes is what the library computes, on random problems passed in."""

from itertools import pairwise

import jax
import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

import deeplin as dl

pytestmark = pytest.mark.browser
DESCENT = 1e-8
"""Same arithmetic in another order: hundreds of steps keep eight digits."""
SHARPNESS = 1e-6
UNIFORM = """async ([seed, stream, count]) => {
  const { Random } = await import("/random.js");
  const random = new Random(seed, stream);
  return Array.from({ length: count }, () => random.uniform());
}"""
SHAPES = {
    "one output": (20, [4, 5, 5, 1]),
    "three outputs": (30, [5, 4, 6, 3]),
    "ten layers": (50, [5] * 10 + [1]),
    "fewer samples than inputs": (6, [8, 3, 4, 2]),
    "one layer": (12, [3, 2]),
}


def random_case(seed, samples, widths, scale=0.5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, widths[0]))
    truth = rng.normal(size=(widths[0], widths[-1])) / 2
    Y = X @ truth + 0.3 * rng.normal(size=(samples, widths[-1]))
    return X, Y, [scale * rng.normal(size=(m, n)) for n, m in pairwise(widths)]


def question(X, Y, weights, **more):
    y = Y[:, 0] if Y.shape[1] == 1 else Y
    return {"X": X.tolist(), "y": y.tolist(), "weights": [W.tolist() for W in weights], **more}


def problem_of(X, Y):
    return dl.Problem.from_data(X, Y[:, 0] if Y.shape[1] == 1 else Y)


def dense_sharpness(problem, network):
    return float(np.asarray(dl.sharpness(problem, network, method="dense").value))


def assert_same(theirs, ours, **tolerances):
    for left, right in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(left, right, **tolerances)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_descent_is_the_librarys(ask, shape, momentum):
    samples, widths = SHAPES[shape]
    X, Y, weights = random_case(len(shape), samples, widths, scale=0.4)
    options = {"learning_rate": 0.03, "steps": 60, "record_every": 7, "momentum": momentum}
    found = ask("train", question(X, Y, weights, **options))
    problem, network = problem_of(X, Y), dl.Network(weights)
    run = dl.gradient_descent(problem, network, 0.03, 60, record_every=7, momentum=momentum)
    assert found["step"] == run.records["step"].tolist()
    np.testing.assert_allclose(found["risk"], run.records["risk"], rtol=DESCENT)
    np.testing.assert_allclose(found["distance"], run.records["distance"], rtol=DESCENT)
    assert_same(found["weights"], run.network.weights, rtol=DESCENT, atol=1e-12)
    for record in (0, 3, -1):
        layers = [np.asarray(layer)[record] for layer in run.trajectory.weights]
        exact = dense_sharpness(problem, dl.Network(layers))
        assert found["sharpness"][record] == pytest.approx(exact, rel=SHARPNESS)


def test_read_out_is_part_of_the_network(ask):
    X, Y, _ = random_case(3, 15, [4, 1])
    rng = np.random.default_rng(1)
    weights = [np.eye(4) + 0.2 * rng.normal(size=(4, 4)) for _ in range(3)]
    readout = rng.normal(size=4)
    options = {"learning_rate": 0.01, "steps": 40, "record_every": 40}
    found = ask("train", question(X, Y, weights, readout=readout.tolist(), **options))
    problem = problem_of(X, Y)
    run = dl.gradient_descent(
        problem, dl.Network(weights, readout=readout), 0.01, 40, record_every=40
    )
    np.testing.assert_allclose(found["risk"], run.records["risk"], rtol=DESCENT)
    exact = dense_sharpness(problem, run.network)
    assert found["sharpness"][-1] == pytest.approx(exact, rel=SHARPNESS)


def test_flow_is_the_librarys(ask):
    X, Y, weights = random_case(5, 25, [4, 5, 5, 2])
    times = [0.0, 0.1, 0.5, 2.0]
    found = ask("flow", question(X, Y, weights, times=times))
    run = dl.gradient_flow(
        problem_of(X, Y), dl.Network(weights), until=2.0, at=times, rtol=1e-11, atol=1e-13
    )
    np.testing.assert_allclose(found["risk"], run.records["risk"], rtol=DESCENT)


def slopes_of(X, Y, layers):
    """∇R by automatic differentiation of the plain formula."""

    def risk(layers):
        outputs = X.T
        for layer in layers:
            outputs = layer @ outputs
        return jax.numpy.sum((outputs.T - Y) ** 2) / len(X)

    return [np.asarray(slope) for slope in jax.jit(jax.grad(risk))(layers)]


def test_nesterov_and_weight_decay_follow_their_formulas(ask):
    X, Y, weights = random_case(8, 20, [3, 4, 2])
    rate, beta, decay, steps = 0.02, 0.7, 0.05, 30
    options = {"learning_rate": rate, "steps": steps, "momentum": beta, "weight_decay": decay}
    found = ask("train", question(X, Y, weights, nesterov=True, **options))
    layers, speeds = list(weights), [np.zeros_like(layer) for layer in weights]
    for _ in range(steps):
        for k, slope in enumerate(slopes_of(X, Y, layers)):
            whole = slope + 2 * decay * layers[k]
            speeds[k] = beta * speeds[k] - rate * whole
            layers[k] = layers[k] + beta * speeds[k] - rate * whole
    assert_same(found["weights"], layers, rtol=DESCENT)
    shifted = dense_sharpness(problem_of(X, Y), dl.Network(layers)) + 2 * decay
    assert found["sharpness"][-1] == pytest.approx(shifted, rel=SHARPNESS)


def test_batches_are_drawn_without_replacement_and_followed(ask, evaluate):
    X, Y, weights = random_case(9, 10, [3, 3, 1])
    options = {"learning_rate": 0.02, "steps": 25, "batch_size": 4, "seed": 3}
    found = ask("train", question(X, Y, weights, **options))
    uniform = iter(evaluate(UNIFORM, [3, 5, 100]))
    rows, layers = np.arange(10), list(weights)
    for _ in range(25):
        for i in range(4):  # the first steps of a shuffle
            j = i + int(next(uniform) * (10 - i))
            rows[[i, j]] = rows[[j, i]]
        assert len(set(rows[:4])) == 4
        slopes = slopes_of(X[rows[:4]], Y[rows[:4]], layers)
        layers = [layer - 0.02 * slope for layer, slope in zip(layers, slopes, strict=True)]
    assert_same(found["weights"], layers, rtol=DESCENT)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_activations_train_and_curve_as_in_the_library(ask, activation):
    X, Y, weights = random_case(11, 12, [3, 6, 5, 2])
    options = {"learning_rate": 0.05, "steps": 30, "record_every": 30, "activation": activation}
    found = ask("train", question(X, Y, weights, **options))
    problem, network = problem_of(X, Y), dl.Network(weights, activation=activation)
    run = dl.gradient_descent(problem, network, 0.05, 30, record_every=30, record=["risk"])
    np.testing.assert_allclose(found["risk"], run.records["risk"], rtol=DESCENT)
    exact = dense_sharpness(problem, run.network)
    assert found["sharpness"][-1] == pytest.approx(exact, rel=SHARPNESS)


def test_divergence_is_a_status(ask):
    X, Y, weights = random_case(2, 20, [4, 5, 1])
    found = ask("train", question(X, Y, weights, learning_rate=5, steps=200, record_every=10))
    run = dl.gradient_descent(problem_of(X, Y), dl.Network(weights), 5.0, 200)
    assert found["status"] == run.status == "diverged"
    assert found["steps"] == run.steps


@pytest.mark.parametrize("depth", [1, 2, 3, 10])
def test_minimal_sharpness_of_one_output_is_the_librarys(ask, depth):
    X, Y, _ = random_case(13, 30, [5, 1])
    found = ask("minimal_sharpness", {"X": X.tolist(), "y": Y[:, 0].tolist(), "depth": depth})
    problem = problem_of(X, Y)
    theirs = dl.theory.minimal_sharpness(problem, depth)
    for name in ("lower", "exact", "upper"):
        assert found[name] == pytest.approx(float(getattr(theirs, name)), rel=1e-9)
    assert found["critical_learning_rate"] == pytest.approx(2 / float(theirs.exact), rel=1e-9)
    balanced = float(dl.theory.balanced_sharpness(problem, depth))
    assert found["balanced"] == pytest.approx(balanced, rel=1e-9)


@pytest.mark.parametrize(("samples", "inputs", "outputs", "depth"), [
    (30, 4, 3, 2), (30, 3, 2, 5), (4, 7, 2, 3), (40, 2, 5, 3),
])  # fmt: skip
def test_minimal_sharpness_of_several_outputs_is_x7(ask, samples, inputs, outputs, depth):
    X, Y, _ = random_case(samples + depth, samples, [inputs, outputs])
    found = ask("minimal_sharpness", {"X": X.tolist(), "y": Y.tolist(), "depth": depth})
    values, vectors = np.linalg.eigh(X.T @ X / samples)
    root = vectors @ np.diag(np.sqrt(values.clip(0))) @ vectors.T
    optimum = np.linalg.lstsq(X, Y, rcond=None)[0]

    def largest(tau):
        t = np.exp(tau)
        weight = (depth - 1) * t ** (-2 / (depth - 1))
        inside = t**2 * np.eye(inputs) + weight * optimum @ optimum.T
        return 2 * np.linalg.eigvalsh(root @ inside @ root)[-1]

    best = minimize_scalar(largest, bounds=(-12, 12), method="bounded", options={"xatol": 1e-12})
    assert found["exact"] == pytest.approx(best.fun, rel=1e-9)


@pytest.mark.parametrize(("depth", "decay"), [(2, 0.01), (3, 0.02), (3, 0.5), (2, 5.0)])
def test_decayed_minimum_is_found_by_minimizing_directly(ask, depth, decay):
    X, Y, _ = random_case(17, 25, [3, 1])
    given = {"X": X.tolist(), "y": Y[:, 0].tolist(), "depth": depth, "weight_decay": decay}
    found = ask("decayed_minimum", given)
    shapes = [(3, 3)] * (depth - 1) + [(1, 3)]
    sizes = np.cumsum([0, *(m * n for m, n in shapes)])

    def objective(flat):
        outputs = X.T
        for a, b, shape in zip(sizes, sizes[1:], shapes, strict=False):
            outputs = flat[a:b].reshape(shape) @ outputs
        return jax.numpy.mean((outputs[0] - Y[:, 0]) ** 2) + decay * jax.numpy.sum(flat**2)

    value, slope = jax.jit(objective), jax.jit(jax.grad(objective))
    starts = np.random.default_rng(0).normal(size=(8, sizes[-1]))
    ends = [
        minimize(value, start, jac=slope, method="BFGS", options={"gtol": 1e-11})
        for start in [*starts, 1e-9 * starts[0]]
    ]
    best = min(ends, key=lambda end: end.fun)
    assert found["objective"] == pytest.approx(best.fun, rel=1e-9)
    sharpest = np.linalg.eigvalsh(jax.jit(jax.hessian(objective))(best.x))[-1]
    # the place of a minimum is good to the root of what its value is good to
    assert found["sharpness"] == pytest.approx(sharpest, rel=1e-4)
    assert found["collapsed"] == bool(np.linalg.norm(best.x) < 1e-4)


def test_wide_reduction_is_the_full_network(ask):
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(6, 15)), rng.normal(size=(6, 2))
    first, last = 0.1 * rng.normal(size=(40, 15)), rng.normal(size=(2, 40))
    found = ask("wide", {
        "X": X.tolist(), "y": Y.tolist(), "first": first.tolist(), "last": last.tolist(),
        "depth": 4, "learning_rate": 0.002, "max_steps": 60, "loss_target": 0,
    })  # fmt: skip
    problem = dl.Problem.from_data(X, Y)
    network = dl.Network([first, np.eye(40), np.eye(40), last])
    run = dl.gradient_descent(problem, network, 0.002 / 2, 60)  # on the sum over outputs
    theta = np.linalg.multi_dot([np.asarray(W) for W in run.network.weights[::-1]]).T
    np.testing.assert_allclose(found["theta"], theta, rtol=DESCENT, atol=1e-10)
    assert found["width"] == 8
    distance = np.sum((theta.T - problem.optimum) ** 2)
    assert found["distance"] == pytest.approx(distance, rel=DESCENT)


def test_modules_alone_give_the_same_numbers(ask, ask_node):
    X, Y, weights = random_case(19, 10, [3, 4, 2])
    given = question(X, Y, weights, learning_rate=0.02, steps=20, momentum=0.3, times=[0, 1])
    for name in ("train", "flow", "minimal_sharpness"):
        here, there = (engine(name, given | {"depth": 3}) for engine in (ask, ask_node))
        for key in {"risk", "sharpness", "exact"} & set(here):
            # logarithms may differ in their last digit from one engine to the next
            assert here[key] == pytest.approx(there[key], rel=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": [1.0]}, "rows"),
        ({"X": []}, "empty"),
        ({"weights": [[[1.0, 2.0]]]}, "columns"),
        ({"weights": []}, "empty"),
        ({"X": [[1.0, "a"], [2.0, 3.0]]}, "finite numbers"),
    ],
)
def test_wrong_arrays_get_a_sentence(calculator, change, words):
    given = {"X": [[1.0], [2.0]], "y": [1.0, 2.0], "weights": [[[0.5]]]} | change
    given |= {"learning_rate": 0.1, "steps": 2}
    message = calculator.evaluate(
        "(input) => { try { deeplin.train(input); return ''; } catch (e) { return e.message; } }",
        given,
    )
    assert words in message


def test_risk_of_a_wide_network_is_taken_apart_as_in_the_library(ask):
    spectrum = [1.0] * 3 + [0.05] * 37
    data = dl.problems.synthetic.from_spectrum(6, spectrum, samples=8, outputs=2, noise=0.5)
    population = dl.Population(data.truth, data.spectrum, noise=0.5)
    rng = np.random.default_rng(4)
    first, last = 0.1 * rng.normal(size=(30, 40)), rng.normal(size=(2, 30))
    problem = data.problem
    found = ask("wide", {
        "X": problem.inputs.tolist(), "y": problem.target_columns.tolist(), "first": first.tolist(),
        "last": last.tolist(), "depth": 3, "learning_rate": 0.002, "max_steps": 20_000,
        "loss_target": 1e-12,
        "population": {"spectrum": spectrum, "optimum": data.truth.T.tolist(), "noise": 0.5},
    })  # fmt: skip
    assert found["status"] == "converged"
    theirs = dl.theory.risk_split(problem, population, np.array(found["theta"]).T)
    for ours, name in (("risk", "total"), *((n, n) for n in ("bias", "variance", "noise", "xi"))):
        assert found[ours] == pytest.approx(float(getattr(theirs, name)), rel=1e-8)
    assert found["bound"] == pytest.approx(float(theirs.bound), rel=1e-8)
    assert found["index"] == dl.theory.bounds.effective_index(spectrum, 8)
    theta = np.array(found["theta"])
    basis = np.linalg.qr(problem.inputs.T)[0]
    perpendicular = np.linalg.norm(theta - basis @ (basis.T @ theta))
    bound = dl.theory.bounds.interpolation_bound(population, 8, perpendicular)
    for name in ("bias", "variance", "xi"):
        exact = float(getattr(bound, name))
        assert found["interpolation_bound"][name] == pytest.approx(exact, rel=1e-8)
