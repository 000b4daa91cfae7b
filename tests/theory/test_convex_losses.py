"""X-14 to X-16: what is known for squared loss holds for every convex loss with Σ̂ → H/2."""

from __future__ import annotations

import convex_losses as data
import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin import theory

REFERENCE = {  # (loss, depth, ‖p‖): S_min, S_bal, min trace (spec, A-2)
    ("logistic", 2, 1.0): (0.32411966, 0.44834119, 0.59002377),
    ("logistic", 3, 1.0): (0.53454498, 0.59516876, 0.82030236),
    ("logistic", 3, 0.5): (0.33674224, 0.37493283, 0.51675810),
    ("logistic", 5, 1.0): (0.98614967, None, None),
    ("poisson", 2, 1.0): (14.70991998, 16.12531022, 17.38280938),
    ("poisson", 3, 1.0): (24.33485941, 26.06771732, 27.60993293),
    ("poisson", 3, 0.5): (15.33000081, 16.42163288, 17.39316784),
    ("huber", 2, 1.0): (1.39954404, 3.33428458, 2.71714800),
    ("huber", 3, 1.0): (1.90549897, 3.96113899, 3.31557454),
    ("huber", 3, 0.5): (1.20038913, 2.49536120, 2.08868108),
}
PRINTED = 6e-9  # eight decimals of numbers up to 28, absolute


@pytest.mark.parametrize(("name", "depth", "norm"), REFERENCE)
def test_minimal_and_balanced_sharpness_and_trace_are_the_reference_values(name, depth, norm):
    problem, readout = getattr(data, name)(), [norm]
    found = (
        theory.minimal_sharpness(problem, depth, readout).exact,
        theory.balanced_sharpness(problem, depth, readout),
        theory.minimal_trace(problem, depth, readout).exact,
    )
    for value, expected in zip(found, REFERENCE[name, depth, norm], strict=True):
        if expected is not None:
            assert value == pytest.approx(expected, abs=PRINTED)


@pytest.mark.parametrize("name", ["logistic", "poisson", "huber"])
@pytest.mark.parametrize("depth", [2, 3])
def test_no_minimizer_found_by_search_is_flatter_and_the_minimizer_attains_it(name, depth):
    problem = getattr(data, name)()
    flattest = theory.minimal_sharpness(problem, depth)
    hessian = data.dense_hessian(problem, flattest.minimizer.weights)
    assert np.linalg.eigvalsh(hessian)[-1] == pytest.approx(flattest.exact, rel=1e-9)
    assert data.flattest_by_search(problem, depth) == pytest.approx(flattest.exact, rel=1e-6)
    trace = theory.minimal_trace(problem, depth)
    attained = np.trace(data.dense_hessian(problem, trace.minimizer.weights))
    assert attained == pytest.approx(trace.exact, rel=1e-9)


def test_layer_rates_count_by_their_geometric_mean():
    problem = data.logistic()
    assert theory.layerwise_sharpness(problem, [0.5, 3]) == pytest.approx(0.39696389, abs=PRINTED)
    found = theory.layerwise_sharpness(problem, [0.5, 3, 0.7])
    assert found == pytest.approx(0.54330957, abs=PRINTED)


@pytest.mark.parametrize("name", ["logistic", "poisson", "huber", "softmax"])
def test_descent_settles_below_the_critical_rate_and_not_above(name):
    """Plain descent on the loss as written, from 1e-4 beside the flattest minimizer."""
    problem = getattr(data, name)()
    flattest = theory.minimal_sharpness(problem, 3)
    rng = np.random.default_rng(0)
    start = [w + 1e-4 * rng.normal(size=w.shape) for w in flattest.attaining(3).weights]
    risk = data.plain_risk(problem)
    gradient = jax.grad(lambda weights: risk(data.product(weights)))

    @jax.jit
    def descend(weights, rate):
        def step(_, w):
            return [a - rate * g for a, g in zip(w, gradient(w), strict=True)]

        return jax.lax.fori_loop(0, 20_000, step, weights)

    ends = [descend(start, share * 2 / flattest.exact) for share in (0.97, 1.03)]
    maps = [np.asarray(data.product(end)).T.reshape(problem.optimum.shape) for end in ends]
    gaps = [float(problem.gap(theta)) for theta in maps]
    # Below the edge a deviation shrinks by at least 0.94 a step (the last direction by 1e-3 in
    # flat ones); above it the top direction grows by 1.06 until it is of order one.
    assert gaps[0] < 1e-12
    assert not gaps[1] < 1e-6


def test_mini_batches_need_samples_without_a_slope_at_the_optimum():
    with pytest.raises(dl.InputError, match="does not settle"):
        theory.critical_learning_rate(data.logistic(), 3, batch_size=5)
    # one sample for each direction: e^z = y exactly, so that batches agree about the minimizers
    interpolated = data.poisson()
    batches = theory.critical_learning_rate(interpolated, 3, batch_size=1)
    assert 0 < batches < theory.critical_learning_rate(interpolated, 3)


def test_batches_of_an_interpolated_loss_are_those_of_the_rows_scaled_by_its_curvature():
    problem = data.poisson()
    weights = np.exp(problem.inputs @ problem.optimum) / 2
    rows = np.sqrt(weights)[:, None] * problem.inputs
    squared = dl.Problem.from_data(rows, rows @ problem.optimum)
    found, expected = (theory.minimal_stochastic_sharpness(p, 3, 1) for p in (problem, squared))
    assert found.exact == pytest.approx(expected.exact, rel=1e-9)


# --- weight decay (X-15) ---------------------------------------------------------------------

DECAYED = [  # data, depth, λ, ‖p‖, F_min, S_λ
    ("separable", 2, 0.01, 1.0, 0.1904000736, 0.267938686),
    ("separable", 3, 0.01, 1.0, 0.1612381424, 0.447184546),
    ("separable", 3, 0.003, 0.7, 0.0748596929, 0.243928171),
    ("separable", 4, 0.002, 1.0, 0.0374222251, 0.250109529),
    ("separable", 2, 0.5, 1.0, np.log(2), 1.523321767),
    ("logistic", 2, 0.01, 1.0, 0.4990775593, 0.403113151),
    ("logistic", 3, 0.01, 1.0, 0.5081357611, 0.548277388),
    ("logistic", 4, 0.002, 1.0, 0.4750154611, 0.784136025),
]


@pytest.mark.parametrize(("name", "depth", "decay", "norm", "objective", "sharpness"), DECAYED)
def test_the_minimum_with_weight_decay_is_the_reference(
    name, depth, decay, norm, objective, sharpness
):
    problem = getattr(data, name)()
    found = theory.decayed_minimum(problem, depth, decay, [norm])
    assert found.objective == pytest.approx(objective, abs=1e-10)
    assert found.sharpness == pytest.approx(sharpness, abs=1e-9)
    assert found.collapsed == (decay == 0.5)
    weights = found.attaining(2).weights
    hessian = data.dense_hessian(problem, weights, norm)
    top = np.linalg.eigvalsh(hessian)[-1] + 2 * decay
    assert top == pytest.approx(sharpness, abs=1e-8)


@pytest.mark.parametrize(
    ("name", "depth", "value"),
    [
        ("separable", 3, 0.10666638),
        ("separable", 4, 0.07911532),
        ("logistic", 3, 0.07322392),
        ("logistic", 4, 0.05096484),
    ],
)
def test_the_critical_weight_decay_is_the_reference_and_the_minimum_switches_there(
    name, depth, value
):
    problem = getattr(data, name)()
    assert theory.critical_weight_decay(problem, depth).value == pytest.approx(value, abs=PRINTED)
    below, above = (theory.decayed_minimum(problem, depth, c * value) for c in (0.99, 1.01))
    assert above.collapsed
    assert not below.collapsed


def test_weight_decay_of_softmax_is_refused():
    with pytest.raises(dl.InputError, match=r"one output \(X-15\).*has 3.*loss='logistic'"):
        theory.decayed_minimum(data.softmax(), 3, 0.01)


# --- separable data (X-16) -------------------------------------------------------------------


def test_separable_data_have_no_minimizer_and_say_so():
    problem = data.separable()
    assert not problem.has_minimizer
    for call in (
        lambda: problem.optimum,
        lambda: theory.minimal_sharpness(problem, 3),
        lambda: theory.critical_learning_rate(problem, 3),
    ):
        with pytest.raises(dl.InputError, match="linearly separable"):
            call()


@pytest.mark.parametrize("widths", [(3, 2, 1), (3, 2, 2, 1)])
def test_X16_large_rates_overflow_with_two_layers_and_more_and_not_with_one(widths):
    """A measurement: 0, 5, 10 of ten runs at η = 3, 10, 100 for two layers, 0, 8, 9 for three."""
    problem = data.separable()
    nets = dl.initialize.gaussian(jax.random.split(jax.random.key(0), 10), widths, scale=0.5)
    lost = {
        rate: np.sum(dl.gradient_descent(problem, nets, rate, 1000).status == "diverged")
        for rate in (3.0, 10.0, 100.0)
    }
    assert lost[3.0] == 0
    assert 1 <= lost[10.0] <= lost[100.0]
    assert lost[100.0] >= 9
    one = dl.gradient_descent(problem, dl.Network([np.zeros((1, 3))]), 1000.0, 1000)
    assert one.status != "diverged"
    assert float(problem.risk(np.asarray(one.network.product))) < 1e-6


def test_X15_is_certified_on_separable_data_and_X14_says_why_it_is_not():
    problem = data.separable()
    net = dl.initialize.gaussian(jax.random.key(0), (3, 2, 2, 1), scale=0.5)
    table = dl.certify(problem, net, only=["X-14", "X-15", "X-23"]).set_index("id")
    assert table.loc["X-15", "verdict"] == "holds"
    for id in ("X-14", "X-23"):
        assert table.loc[id, "verdict"] == "not applicable"
        assert "separable" in table.loc[id, "hypotheses"]


def test_sharpness_on_separable_data_is_bounded_by_the_loss():
    """S ≤ ℓ x∞ [x∞ L N^{2L−2} + (L−1) N^{L−2}] at any weights (X-16)."""
    problem, L = data.separable(), 3
    reach = np.linalg.norm(problem.inputs, axis=1).max()
    for seed, scale in enumerate([0.3, 1.0, 3.0]):
        net = dl.initialize.gaussian(jax.random.key(seed), (3, 2, 2, 1), scale=scale)
        norm = max(np.linalg.norm(w, 2) for w in net.weights)
        loss = float(problem.risk(np.asarray(net.product)))
        bound = loss * reach * (reach * L * norm ** (2 * L - 2) + (L - 1) * norm ** (L - 2))
        assert dl.sharpness(problem, net).value <= bound
