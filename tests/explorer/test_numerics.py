"""What the page computes is what the library computes, on random problems passed in."""

from itertools import pairwise

import numpy as np
import pytest

import deeplin as dl

pytestmark = pytest.mark.browser
DESCENT = 1e-8
"""Same arithmetic in another order: hundreds of steps keep eight digits."""
SHARPNESS = 1e-6
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


FLOW = """async ([flat, widths, X, Y, end]) => {
  const [{ fromData }, { LinearModel }, { flow }] = await Promise.all(
    ["problem", "network", "flow"].map((name) => import(`/${name}.js`)));
  const [n, d, q] = [Y.length / widths.at(-1), widths[0], widths.at(-1)];
  const problem = fromData(Float64Array.from(X), Float64Array.from(Y), n, d, q);
  const model = new LinearModel(problem, widths);
  const found = { time: [], risk: [] };
  const options = { rtol: 1e-11, atol: 1e-13, most: 1e6, settled: 0 };
  flow(model, Float64Array.from(flat), end, options, (_, time) => {
    found.time.push(time);
    found.risk.push(model.risk);
  });
  return found;
}"""


def test_flow_is_the_librarys(evaluate):
    widths = [4, 5, 5, 2]
    X, Y, weights = random_case(5, 25, widths)
    flat = np.concatenate([W.ravel() for W in weights])
    found = evaluate(FLOW, [flat.tolist(), widths, X.ravel().tolist(), Y.ravel().tolist(), 2.0])
    times = found["time"]
    assert (times[0], times[-1]) == (0.0, 2.0)
    at = [0, len(times) // 2, len(times) - 1]
    run = dl.gradient_flow(
        problem_of(X, Y), dl.Network(weights), until=2.0, at=[times[i] for i in at],
        rtol=1e-11, atol=1e-13,
    )  # fmt: skip
    np.testing.assert_allclose([found["risk"][i] for i in at], run.records["risk"], rtol=DESCENT)


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
def test_minimal_sharpness_of_several_outputs_is_the_librarys(ask, samples, inputs, outputs, depth):
    X, Y, _ = random_case(samples + depth, samples, [inputs, outputs])
    found = ask("minimal_sharpness", {"X": X.tolist(), "y": Y.tolist(), "depth": depth})
    exact = float(dl.minimal_sharpness(dl.Problem.from_data(X, Y), depth).exact)
    assert found["exact"] == pytest.approx(exact, rel=1e-8)


WIDE = """async ([state, start]) => {
  const { interpolation, populationData, trainReduced } = await import("/wide.js");
  const { riskOf } = await import("/overfitting.js");
  const data = populationData(state);
  const problem = interpolation(data);
  const [weights, outside] = [start.weights, start.outside].map((list) => Float64Array.from(list));
  const { depth, learning_rate, max_steps } = start;
  const run = trainReduced(problem, { weights, outside, r: start.r },
    { depth, learning_rate, max_steps, loss_target: 0, record_every: max_steps });
  const { risk, bias, noise, xi } = riskOf(problem, data, run);
  const { X, Y, truth } = data;
  const lists = { X, Y, truth, theta: run.theta, basis: problem.eigenvectors };
  for (const name in lists) lists[name] = Array.from(lists[name]);
  return { ...lists, rank: problem.rank, distance: run.distance, risk, bias, noise, xi };
}"""


def test_reduced_training_and_its_risk_are_those_of_the_whole_network(evaluate, state_of):
    state = state_of(wide_dimension=40, wide_samples=8, wide_outputs=2, spikes=3, epsilon=0.05)
    rng = np.random.default_rng(4)
    r, depth, rate, steps = 10, 4, 0.002, 60
    inside, last = 0.3 * rng.normal(size=(r, 8)), rng.normal(size=(2, r))
    middle = [np.eye(r)] * (depth - 2)
    outside = 0.1 * rng.normal(size=(r, 40))
    start = {"r": r, "depth": depth, "learning_rate": rate, "max_steps": steps}

    def ask(outside):
        weights = np.concatenate([layer.ravel() for layer in (inside, *middle, last)])
        return evaluate(WIDE, [state, start | {"weights": weights.tolist(), "outside": outside}])

    basis = np.reshape(ask(outside.ravel().tolist())["basis"], (8, 40))
    outside -= outside @ basis.T @ basis
    found = ask(outside.ravel().tolist())
    X, Y = np.reshape(found["X"], (8, 40)), np.reshape(found["Y"], (8, 2))
    problem = dl.Problem.from_data(X, Y)
    network = dl.Network([inside @ basis + outside, *middle, last])
    run = dl.gradient_descent(problem, network, rate / 2, steps)  # on the sum over outputs
    theta = np.asarray(run.network.product)
    np.testing.assert_allclose(np.reshape(found["theta"], (2, 40)), theta, rtol=DESCENT, atol=1e-10)
    distance = np.sum((theta - problem.optimum) ** 2)
    assert found["distance"] == pytest.approx(distance, rel=DESCENT)
    spectrum = np.where(np.arange(40) < 3, 1.0, 0.05)
    population = dl.Population(np.reshape(found["truth"], (2, 40)), spectrum, noise=1.0)
    theirs = dl.theory.risk_split(problem, population, theta)
    for ours, name in (("risk", "total"), *((n, n) for n in ("bias", "noise", "xi"))):
        assert found[ours] == pytest.approx(float(getattr(theirs, name)), rel=1e-7)


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
