"""What training leaves beside the data in wide networks (X-25 to X-30)."""

import dense_network
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import lambertw
from wide_search import margins

import deeplin as dl
from deeplin.dynamics import simulate_wide
from deeplin.problems import Population, synthetic
from deeplin.theory import wide_law
from deeplin.theory.wide_networks import (
    Start,
    expected_modes,
    lazy_coefficient,
    lazy_modes,
    learned_share,
    wide_limit,
    zero_first_modes,
    zero_last_modes,
)

KEYS = jax.random.split(jax.random.key(7), 24)


def _reference():
    """The data of the specification's reference values."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 20))
    return dl.Problem.from_data(X, 2 * rng.standard_normal((8, 2)))


@pytest.fixture(scope="module")
def problem():
    return _reference()


@pytest.fixture(scope="module")
def singular(problem):
    return np.linalg.svd(problem.optimum, compute_uv=False)


# --- reference values ------------------------------------------------------------------------


def test_the_reference_data_are_those_of_the_specification(singular):
    np.testing.assert_allclose(singular, (1.37905862, 0.88821893), rtol=1e-8)
    assert np.sum(singular**2) == pytest.approx(2.690735545791126, rel=1e-12)


@pytest.mark.parametrize(
    ("depth", "scale", "value"),
    [
        (2, 1, 1.4861829731345124),
        (3, 1, 1.6972165228575236),
        (3, 0.25, 2.611868701935238),
        (5, 1, 1.9326111585217354),
        (10, 0.1, 6.213708096611832),
        (3, 100, 0.02690318872059197),
    ],
)
def test_X27_has_the_reference_values(singular, depth, scale, value):
    assert np.sum(zero_last_modes(singular, scale, depth)) == pytest.approx(value, rel=1e-12)
    share = learned_share(singular, scale, depth)
    np.testing.assert_allclose(share * (1 + share) ** (depth - 2) * (scale + share), singular**2)


def test_X27_takes_singular_values_whose_squares_underflow():
    """κ → s²/z for small s, below the smallest number too."""
    share = learned_share(np.array([1e-100, 1e-200]), 4.0, 3)
    np.testing.assert_allclose(share, [2.5e-201, 0.0])


def test_X27_has_the_reference_roots(singular):
    roots = (0.6765780485736725, 0.40159892328689645)
    np.testing.assert_allclose(learned_share(singular, 1.0, 3), roots, rtol=1e-12)


@pytest.mark.parametrize(
    ("depth", "scale", "value"),
    [
        (2, 1, 3.486182973134512),
        (3, 1, 4.775393494718092),
        (5, 4, 14.010721952748728),
        (10, 1, 11.956037570864968),
    ],
)
def test_X28_has_the_reference_values(singular, depth, scale, value):
    assert np.sum(zero_first_modes(singular, scale, depth)) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("a2", "b2", "depth", "value"),
    [
        (1, 1, 3, 0.7777777777777778),
        (0.0025, 400, 10, 7.91286921014367),
        (4, 4, 10, 0.34645328719723184),
        (5030, 0, 3, 1.9880715705765408e-4),
        (0, 4, 5, 3.25),
    ],
)
def test_X29_has_the_reference_values(a2, b2, depth, value):
    assert lazy_coefficient(a2, b2, depth) == pytest.approx(value, rel=1e-12)


# --- the algebra of the laws -----------------------------------------------------------------


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 1000))
def test_X29_adds_at_most_three_halves_at_every_scale_and_depth(a2, b2, depth):
    """a²c_L ≤ 3/2, and the coefficient of the meeting Z_0 is never positive."""
    c = lazy_coefficient(a2, b2, depth)
    assert a2 * c <= 1.5 * (1 + 1e-12)
    kappa = a2 + b2 + (depth - 2) * a2 * b2
    assert c - 2 * (1 + (depth - 2) * b2) / kappa <= 1e-12 * c


@given(st.floats(0.1, 3), st.floats(2, 50), st.integers(2, 20))
def test_X27_expands_without_the_depth_at_its_second_order(s, a2, depth):
    """v = s²/a² − s⁴/a⁶ with a remainder of at most (L−2)s⁶/a⁸ + 2s⁶/a¹⁰."""
    v = zero_last_modes(np.array([s]), a2, depth)[0]
    remainder = (depth - 2) * s**6 / a2**4 + 2 * s**6 / a2**5
    assert abs(v - s**2 / a2 + s**4 / a2**3) <= remainder * (1 + 1e-9) + 1e-14 * s**2 / a2


def test_X27_rises_with_alpha_from_the_rich_to_the_lazy_value(singular):
    """a²v(a²) is α²m‖U‖²: from 0 to ‖Θ_min‖², and a²Σ s_i²/κ_i(0) = a²‖Θ_min‖_* at depth 2."""
    sizes = [a2 * np.sum(zero_last_modes(singular, a2, 4)) for a2 in np.geomspace(1e-6, 1e6, 30)]
    assert np.all(np.diff(sizes) > 0)
    assert sizes[-1] == pytest.approx(np.sum(singular**2), rel=1e-9)
    assert np.sum(zero_last_modes(singular, 1e-12, 2)) == pytest.approx(np.sum(singular), rel=1e-9)


def test_X28_grows_linearly_in_the_depth_then_like_lambert():
    s, b2 = np.array([0.7]), 1e4
    small = [zero_first_modes(s, b2, L)[0] - b2 for L in (2, 7, 12)]
    np.testing.assert_allclose(small, [(L - 2 + 1 / b2) * 0.49 for L in (2, 7, 12)], rtol=1e-2)
    L, s, b2 = 10**8, np.array([2.0]), 1.0
    y = float(lambertw(L * 4 / b2).real)
    assert zero_first_modes(s, b2, L)[0] == pytest.approx(b2 * np.exp(y), rel=1e-4)


def test_the_closed_forms_agree_where_their_ranges_meet(singular):
    """X-29 at β = 0 is the lazy value of X-27, at α → 0 that of X-28, at L = 2 conservation."""
    assert lazy_coefficient(4.0, 0.0, 7) == 1 / 4
    assert lazy_coefficient(0.0, 4.0, 7) == pytest.approx(5 + 1 / 4, rel=1e-15)
    assert lazy_coefficient(3.0, 4.0, 2) == pytest.approx(1 / 7, rel=1e-15)
    for L in (2, 3, 6):
        start = Start(singular, 8, 1e12, L, 1e-9, 1e-3)  # a² = 1e-6, b² = 1e6
        exact = zero_first_modes(singular, start.b2, L)
        np.testing.assert_allclose(lazy_modes(start).squares, exact, rtol=1e-9)


def test_no_singular_value_means_nothing_is_learned():
    s = np.array([1.0, 0.0])
    assert zero_last_modes(s, 0.0, 3)[1] == 0
    assert zero_last_modes(s, 2.0, 3)[1] == 0
    assert zero_first_modes(s, 2.0, 3)[1] == 2


# --- against networks ------------------------------------------------------------------------


def test_X27_no_counterexample_among_random_flows():
    """Five shapes; `python tests/theory/wide_search.py 10000` tries forty."""
    worst = np.min([margins(seed, 40).min(axis=0) for seed in range(5)], axis=0)
    # the integration is good to 1e-9 in each step; equality holds for n = 1
    assert np.all(worst > -1e-7)


def test_X27_the_lazy_value_is_not_an_upper_bound_in_every_run():
    """The counterexample: L = 2, A_0 = S^{1/2}, ratio 1.00124 of ‖U‖² to its lazy value."""
    S = np.linalg.inv([[1, -1], [-1, 1.01]])
    values, vectors = np.linalg.eigh(S)
    first = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    inverse = np.linalg.inv(first)
    squared = inverse @ np.diag([0.01, 1.0]) @ inverse
    values, vectors = np.linalg.eigh(squared)
    R = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    lazy = 0.2 * np.array([[1.0], [2.0]])
    Y = R @ first.T @ lazy
    # ‖Y − XΘ‖²/n with n = 2: the loss falls like e^{−4μt/n}, μ = λ_min(A_0ᵀR²A_0) = 0.01
    layers = dense_network.flow(R, Y, (first, np.zeros((1, 2))), time=2000.0)
    assert np.sum((R @ dense_network.product(layers).T - Y) ** 2) < 1e-15
    assert np.sum(layers[1] ** 2) / np.sum(lazy**2) == pytest.approx(1.00124, abs=1e-5)


@pytest.mark.parametrize(
    ("depth", "width", "alpha", "value"),
    [(2, 40, 0.3, 0.825), (3, 40, 0.1, 2.513), (4, 40, 0.1, 2.933), (5, 120, 0.05, 3.383)],
)
def test_X27_with_the_reduced_scale_has_the_specified_values(singular, depth, width, alpha, value):
    law = np.sum(zero_last_modes(singular, alpha**2 * (width - 9), depth))
    assert law == pytest.approx(value, abs=6e-4)


SETTINGS = {
    "zero last layer, rich": (300, 3, 0.02, 0.0),
    "zero last layer, very rich": (300, 3, 0.005, 0.0),
    "zero last layer, lazy": (300, 3, 1.0, 0.0),
    "both small, deep": (1000, 5, 0.01, 0.01),
    "both small": (300, 4, 0.03, 0.05),
    "two layers": (300, 2, 0.05, 0.02),
    "tiny first layer": (1000, 3, 1e-3, 0.03),
    "moderate": (300, 3, 0.1, 0.1),
    "narrow": (60, 4, 0.1, 0.1),
    "small last layer, deep": (1000, 6, 0.02, 0.001),
    "lazy by a large last layer": (700, 3, 0.01, 1.0),
}


@pytest.fixture(scope="module")
def spiked():
    return synthetic.spiked(3, 60, samples=15, outputs=2, spikes=3, epsilon=0.1)


def _agrees(data, setting, keys):
    """The law within three standard errors of simulated means and its own stated error."""
    m, L, alpha, beta = setting
    population = Population(data.truth, data.spectrum)
    law = wide_law(data.problem, m, L, alpha, beta, population)
    wide = simulate_wide(
        data.problem, m, L, alpha, beta, keys, dynamics="flow", loss_target=1e-9,
        population=population,
    )  # fmt: skip
    assert set(wide.status) == {"converged"}
    means = np.asarray(wide.expected_distance)
    error = means.std(ddof=1) / np.sqrt(len(keys))
    assert abs(means.mean() - law.distance) <= 3 * error + law.error * law.distance
    # a distance and an added risk share E‖U‖²; single runs scatter by `deviation`
    free = 60 - 15
    outside = data.problem.spectrum.orthogonal_part(np.eye(60))
    trace = np.trace(outside @ np.diag(data.spectrum))
    assert law.added_risk == pytest.approx(law.distance * trace / free, rel=1e-9)
    return law, wide


@pytest.mark.parametrize(
    "name", ["zero last layer, rich", "moderate", "lazy by a large last layer"]
)
def test_the_law_is_the_mean_of_simulated_networks(spiked, name):
    _agrees(spiked, SETTINGS[name], KEYS)


@pytest.mark.extended
@pytest.mark.parametrize("name", SETTINGS)
def test_the_law_is_the_mean_of_simulated_networks_in_every_regime(spiked, name):
    law, wide = _agrees(spiked, SETTINGS[name], KEYS)
    # the squared distance scatters as Gaussian directions beside the data do
    assert np.std(wide.distance) == pytest.approx(law.deviation, rel=0.5)
    assert abs(np.mean(wide.cross_term)) < 3 * np.std(wide.cross_term) / np.sqrt(len(KEYS))


def test_X30_is_X27_and_X28_at_its_ends(problem, singular):
    _, end = wide_limit(problem, 3, 0.25, 0.0)
    assert np.sum(end**2) == pytest.approx(2.611868701935238, rel=1e-5)
    _, end = wide_limit(problem, 3, 1e-8, 1.0)
    assert np.sum(end**2) == pytest.approx(4.775393494718092, rel=1e-5)


def test_the_stated_error_of_X29_covers_its_distance_from_the_flow(problem, singular):
    """In the limit of width, where the motion of the layers is all that is left out."""
    for a2, b2 in ((0.25, 36.0), (9.0, 9.0)):
        start = Start(singular, 8, 1e12, 3, np.sqrt(a2 / 1e12), np.sqrt(b2 / 1e12))
        lazy = lazy_modes(start)
        squares = np.sum(wide_limit(problem, 3, a2, b2)[1] ** 2)
        apart = abs(np.sum(lazy.squares) / squares - 1)
        assert apart < lazy.error < 0.1


def lazy_motion(singular, a2, b2, depth):
    """‖U(∞) − U(0)‖² of X-29, which grows with the depth as (L−2+1/b²)²/(1+(L−2)a²)²."""
    hidden, kappa = depth - 2, a2 + b2 + (depth - 2) * a2 * b2
    first = a2 * (1 + hidden * b2) ** 2 * np.sum(singular**2) / kappa**2
    bracket = b2**1.5 * (hidden + a2 * hidden * (hidden - 1) / 2) + np.sqrt(b2) * (1 + hidden * a2)
    return float(first + 0.25 * np.sum(singular**4) * bracket**2 / kappa**4)


@pytest.mark.parametrize(
    ("depth", "moved", "kept", "motion", "gain"),
    [
        (3, 0.00565, 1.896, 0.00567, None),
        (5, 0.05010, 5.656, 0.05032, 5.678),
        (10, 0.34500, 14.913, 0.34817, 15.039),
    ],
)
def test_what_theta_perp_gains_has_the_specified_values_by_depth(depth, moved, kept, motion, gain):
    """‖ΔU‖² and ‖U‖² − b²q of the infinitely wide flow (X-30), and of the law (X-29)."""
    data = synthetic.spiked(5, 40, samples=8, outputs=2, spikes=2, epsilon=0.2).problem
    s, scales = np.linalg.svd(data.optimum, compute_uv=False), (0.0025, 504.49)
    before, after = wide_limit(data, depth, *scales)
    assert np.sum((after - before) ** 2) == pytest.approx(moved, abs=6e-6)
    assert np.sum(after**2) - np.sum(before**2) == pytest.approx(kept, abs=6e-4)
    assert lazy_motion(s, *scales, depth) == pytest.approx(motion, rel=1e-3)
    if gain is not None:
        found = lazy_coefficient(*scales, depth) * np.sum(s**2)
        assert found == pytest.approx(gain, abs=6e-4)


def test_X29_grows_like_the_square_of_the_hidden_depth():
    data = synthetic.spiked(5, 40, samples=8, outputs=2, spikes=2, epsilon=0.2).problem
    s = np.linalg.svd(data.optimum, compute_uv=False)
    depths = np.array([3, 5, 10, 30, 100])
    gained = [lazy_motion(s, 0.0025, 504.49, depth) for depth in depths]
    np.testing.assert_allclose(gained[3:], (3.8461, 34.096), rtol=1e-3)
    # the flow itself has 2.388 on these depths; the law is 7 % above it at L = 100
    assert np.polyfit(np.log(depths), np.log(gained), 1)[0] == pytest.approx(2.40, abs=0.01)


# --- the function ----------------------------------------------------------------------------


def test_a_zero_first_layer_leaves_nothing(problem):
    law = wide_law(problem, 100, 3, 0.0, 0.3)
    assert (law.distance, law.deviation, law.error, law.method) == (0, 0, 0, "X-6")


def test_the_method_follows_the_regime(problem):
    assert wide_law(problem, 10**4, 3, 1.0, 0.0).method == "X-27"
    assert wide_law(problem, 10**4, 3, 1e-3, 1.0).method == "X-29"
    assert wide_law(problem, 10**4, 3, 1e-7, 0.01).method == "X-28"
    lazy, rich = (wide_law(problem, 10**4, 3, alpha, 0.0) for alpha in (1.0, 1e-3))
    assert (lazy.regime, rich.regime) == ("lazy", "rich")
    assert expected_modes(Start(np.ones(2), 8, 1e4, 3, 1e-2, 1e-2)) is None


def test_before_training_and_after_lazy_training_differ_by_the_law(problem):
    """W_L only: E‖Θ_⊥‖² = (d−n)‖Θ_min‖²/(m−n−1) at β = 0, whatever α and depth."""
    for depth, alpha in ((2, 10.0), (5, 100.0)):
        law = wide_law(problem, 100, depth, alpha, 0.0)
        assert law.distance == pytest.approx(12 * 2.690735545791126 / 91, rel=1e-4)


def test_the_notebook_page_of_a_law_says_what_is_proved(problem):
    page = wide_law(problem, 100, 3, 1.0, 0.0)._repr_html_()
    assert "<table>" in page
    assert "X-27: theorem in the limit of width" in page
    assert "pass a population" in page


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"width": 9}, "pass at least 10"),
        ({"depth": 1}, "depth"),
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": 0.0, "beta": 0.0}, "never moves"),
        ({"population": Population(np.zeros((2, 5)), np.ones(5))}, "matching"),
    ],
)
def test_bad_options_are_refused_with_what_to_pass(problem, options, words):
    given = {"width": 100, "depth": 3, "alpha": 1.0, "beta": 0.1} | options
    with pytest.raises(dl.InputError, match=words):
        wide_law(problem, **given)


def test_data_that_cannot_be_interpolated_are_refused(rng):
    X = rng.normal(size=(20, 5))
    with pytest.raises(dl.InputError, match="XXᵀ invertible"):
        wide_law(dl.Problem.from_data(X, X[:, 0]), 100, 3, 1.0, 0.1)
    with pytest.raises(dl.InputError, match="fewer samples than inputs"):
        wide_law(dl.Problem.from_data(X[:5], X[:5, 0]), 100, 3, 1.0, 0.1)
