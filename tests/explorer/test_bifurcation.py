"""Orbits above the critical rate (X-12) and double descent, against the library and plain NumPy."""

import numpy as np
import pytest

import deeplin as dl

pytestmark = pytest.mark.browser
TARGETS = [10, 6, 3]


ORBITS = """async ([targets, depth, rate]) => {
  const orbits = await import("/orbits.js");
  const mode = orbits.modeIterates(targets[0], depth, rate);
  return {
    critical: orbits.modeThreshold(targets[0], depth),
    doubling: orbits.doublingRate(targets[0], depth),
    orbit: orbits.balancedOrbit(targets[0], depth, rate),
    mode, network: orbits.networkIterates(targets, depth, rate),
  };
}"""
RISKS = """async ([X, Y, truth, spectrum, [n, d, q], noise, dimensions]) => {
  const { expectedRisk, fittedRisks } = await import("/double_descent.js");
  const lists = [X, Y, truth, spectrum].map((list) => Float64Array.from(list));
  const data = { X: lists[0], Y: lists[1], truth: lists[2], spectrum: lists[3], n, d, q };
  const powers = Array.from({ length: d }, (_, j) =>
    Array.from({ length: q }, (_, r) => lists[2][r * d + j] ** 2).reduce((a, b) => a + b));
  return {
    fitted: fittedRisks(data, dimensions),
    expected: dimensions.map((m) => expectedRisk(lists[3], powers, noise, q, n, m)),
  };
}"""


def orbits(evaluate, rate):
    return evaluate(ORBITS, [TARGETS, 3, rate])


def test_thresholds_are_the_published_ones(evaluate):
    found = orbits(evaluate, 0.034)
    assert found["critical"] == pytest.approx(0.0309439, abs=5e-8)
    assert found["doubling"] == pytest.approx(0.0385130, abs=5e-8)


@pytest.mark.parametrize("rate", [0.0310, 0.034, 0.038])
def test_orbit_of_a_mode_is_the_librarys_and_what_iteration_finds(evaluate, rate):
    found = orbits(evaluate, rate)
    theirs = dl.theory.balanced_orbit(10.0, 3, rate, curvature=0.5)
    assert found["orbit"]["low"] == pytest.approx(theirs.low, rel=1e-10)
    assert found["orbit"]["high"] == pytest.approx(theirs.high, rel=1e-10)
    assert found["orbit"]["multiplier"] == pytest.approx(theirs.multiplier, rel=1e-6)
    x = 1.01 * 10 ** (1 / 3)
    for _ in range(20_000):
        x += rate * (10 - x**3) * x**2
    ends = sorted([x, x + rate * (10 - x**3) * x**2])
    assert ends == pytest.approx([found["orbit"]["low"], found["orbit"]["high"]], rel=1e-9)


def test_network_on_its_orbit_swings_as_its_mode_and_the_others_rest(evaluate):
    found = orbits(evaluate, 0.034)
    swings = np.array(found["network"])
    assert sorted({*np.round(swings[:, 0], 6)}) == pytest.approx(
        [found["orbit"]["low"] ** 3, found["orbit"]["high"] ** 3], abs=1e-5
    )
    np.testing.assert_allclose(swings[:, 1:], np.tile(TARGETS[1:], (len(swings), 1)), atol=1e-6)


def test_double_descent_is_least_squares_of_least_norm_on_the_first_inputs(evaluate):
    rng = np.random.default_rng(3)
    n, d, q = 12, 40, 2
    spectrum = 1.0 / np.arange(1, d + 1)
    truth = rng.normal(size=(d, q))
    X = rng.normal(size=(n, d)) * np.sqrt(spectrum)
    Y = X @ truth + 0.3 * rng.normal(size=(n, q))
    dimensions = [1, 5, 11, 12, 13, 20, 40]
    lists = [values.ravel().tolist() for values in (X, Y, truth.T, spectrum)]
    found = evaluate(RISKS, [*lists, [n, d, q], 0.3, dimensions])
    for at, used in enumerate(dimensions):
        theta = np.zeros((d, q))
        theta[:used] = np.linalg.pinv(X[:, :used]) @ Y
        risk = np.sum(spectrum[:, None] * (theta - truth) ** 2)
        assert found["fitted"][at] == pytest.approx(risk, rel=1e-8)
        rest = np.sum(spectrum[used:, None] * truth[used:] ** 2)  # inputs left out are noise
        noise = np.sqrt(0.3**2 + rest / q)
        rows = dl.Population(truth[:used].T, spectrum[:used], noise=noise)
        expected = dl.theory.ridgeless_risk(rows, samples=n)
        if np.isfinite(expected.variance):
            assert sum(found["expected"][at].values()) == pytest.approx(
                expected.total + rest, rel=1e-8
            )
