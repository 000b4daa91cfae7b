import counterexamples
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deeplin as dl
from deeplin.certificates.certificate import HOLDS, certify
from deeplin.theory import balanced_sharpness, minimal_sharpness, worst_sharpness_ratio
from deeplin.theory.bounds import sharpness_brackets
from deeplin.theory.brackets import plane_ratio

REFERENCE = {  # L: S_min, S_bal, bracket of S_min, bracket of FM, r(c), D(c), of X-18's table
    2: (7.36229981, 22.17878389, (4.62063116, 9.04095941), (1.872, 37.82), 2.51812608, 4.72450590),
    3: (
        *(10.03124138, 33.74699075, (6.54179108, 12.00721321), (4.203, 73.11)),
        *(2.95422381, 4.99407657),
    ),
    10: (
        *(31.36230891, 67.91444403, (25.36649427, 33.75296970), (24.63, 251.4)),
        *(2.35890017, 2.26476556),
    ),
    30: (93.91958139, 124.09021235, (86.83529359, 96.44679981), (86.84, 525.2), 1.57022855, 1.0),
    100: (
        *(313.47853745, 337.66684330, (306.25853866, 316.05718624), (306.26, 1052.2)),
        *(1.18528668, 1.0),
    ),
}


@pytest.fixture(scope="module")
def reference():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 5)) * [2, 0.2, 1, 0.5, 1.5]
    y = X @ [0.2, 3, 0.5, 1, 0.3] + 0.5 * rng.normal(size=50)
    return dl.Problem.from_data(X, y)


@pytest.mark.parametrize("depth", REFERENCE)
def test_brackets_and_ratio_are_those_of_the_reference_table(reference, depth):
    least, balanced, bracket, printed, r, D = REFERENCE[depth]
    found, minimal = sharpness_brackets(reference, depth), minimal_sharpness(reference, depth)
    assert found.spread == pytest.approx(23.32095596, abs=5e-9)
    assert 4 * reference.condition_number == pytest.approx(323.1, abs=0.05)
    assert minimal.exact == pytest.approx(least, abs=5e-9)
    assert balanced_sharpness(reference, depth) == pytest.approx(balanced, abs=5e-9)
    assert found.minimal == pytest.approx(bracket, abs=5e-9)
    assert (minimal.lower, minimal.upper) == pytest.approx(printed, rel=3e-4)
    assert found.worst_ratio == pytest.approx(max(r, D), abs=5e-9)
    assert found.worst_ratio == worst_sharpness_ratio(depth, found.spread)


@given(
    seed=st.integers(0, 10**6),
    depth=st.integers(1, 40),
    decades=st.floats(0, 4),
    size=st.floats(0.1, 5),
)
def test_brackets_contain_the_values_and_lie_in_those_of_the_paper(seed, depth, decades, size):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 4)) * 10 ** (decades * rng.uniform(-0.5, 0.5, 4))
    problem, p = dl.Problem.from_data(X, X @ rng.normal(size=4)), np.array([size, 0.0])
    found, minimal = sharpness_brackets(problem, depth, p), minimal_sharpness(problem, depth, p)
    balanced = balanced_sharpness(problem, depth, p)
    low, high = found.minimal
    assert low <= minimal.exact * (1 + 1e-9)
    assert minimal.exact <= high * (1 + 1e-9)
    assert found.balanced[0] <= balanced * (1 + 1e-9)
    assert balanced <= found.balanced[1] * (1 + 1e-9)
    assert minimal.lower * (1 - 1e-9) <= low
    assert high <= minimal.upper * (1 + 1e-9)
    assert balanced / minimal.exact <= found.worst_ratio * (1 + 1e-9)
    if found.spread <= depth:
        assert high / low <= np.exp(np.exp(-1)) * (1 + 1e-9)
        assert found.worst_ratio <= 2 - 1 / depth + 1e-9


@pytest.mark.parametrize(("depth", "c"), [(2, 5.0), (3, 1.7), (3, 40.0), (10, 4.0), (10, 300.0)])
def test_every_bound_is_attained_or_approached(depth, c):
    """Lower ones by Σ̂ = diag(c, 1), w* = e_2; upper ones by diag(c, ν), ν → 0, with a = 1."""

    def values(eigenvalues, direction):
        X = np.diag(np.sqrt(2 * np.array(eigenvalues)))
        problem = dl.Problem.from_data(X, X @ direction)
        least, balanced = (
            minimal_sharpness(problem, depth).exact,
            balanced_sharpness(problem, depth),
        )
        return sharpness_brackets(problem, depth), least, balanced

    found, least, balanced = values([c, 1.0], np.array([0.0, 1.0]))
    assert least == pytest.approx(found.minimal[0], rel=1e-9)
    assert balanced == pytest.approx(found.balanced[0], rel=1e-9)
    if c > depth:
        D = ((c - 1) / (depth - 1)) ** ((depth - 1) / depth)
        assert balanced / least == pytest.approx(D, rel=1e-9)
    nu = 1e-10
    along = np.sqrt((1 - nu) / (c - nu))
    found, least, balanced = values([c, nu], np.array([along, np.sqrt(1 - along**2)]))
    assert least == pytest.approx(found.minimal[1], rel=1e-4)
    assert balanced == pytest.approx(found.balanced[1], rel=1e-4)
    r = (c + depth - 1) / (depth * c ** (1 / depth))
    assert balanced / least == pytest.approx(r, rel=1e-4)


@pytest.mark.parametrize("depth", [3, 4, 6, 10, 50])
def test_worst_ratio_is_the_maximum_of_the_plane_for_three_layers_and_more(depth):
    """The grids are finer around c = L; the maximum grows with c, so smaller Λ/a are no worse."""
    c = np.concatenate([np.geomspace(1.02, 2000, 60), depth * np.linspace(0.8, 1.25, 90)])
    c = np.sort(c[c > 1])
    found = plane_ratio(depth, c[:, None], np.linspace(0, 1, 201)).max(axis=1)
    np.testing.assert_allclose(found, worst_sharpness_ratio(depth, c), rtol=1e-13)
    assert np.all(np.diff(found) > -1e-14)


def test_worst_ratio_of_two_layers_exceeds_the_closed_form_by_a_percent_near_two():
    c = np.append(np.linspace(1.001, 3.0, 41), 1 + 2 / np.sqrt(3))
    closed = np.maximum((c + 1) / (2 * np.sqrt(c)), np.sqrt(np.maximum(c - 1, 1)))
    found = worst_sharpness_ratio(2, c)
    grid = plane_ratio(2, c[:, None], np.linspace(0, 1, 2001)).max(axis=1)
    np.testing.assert_allclose(found, grid, rtol=1e-6)  # that fine is the grid
    assert np.all(found >= grid - 1e-14)
    assert np.max(found / closed) == found[-1] / closed[-1] == pytest.approx(1.01113, abs=5e-6)
    assert found[-1] == pytest.approx(1.086526, abs=5e-7)
    np.testing.assert_allclose(found[c >= 2.2], closed[c >= 2.2], rtol=1e-14)
    assert worst_sharpness_ratio(2, 2.0) == pytest.approx(1.067442, abs=5e-7)


@pytest.mark.parametrize("c", [2.0, 20.0])
def test_worst_ratio_falls_to_one_with_depth_like_one_over_depth(c):
    depth = 10_000
    excess = (worst_sharpness_ratio(depth, c) - 1) * depth
    assert excess == pytest.approx(c - 1 - np.log(c), rel=1e-2)
    assert worst_sharpness_ratio(depth, 0.5 * depth) == pytest.approx(1.5, rel=1e-2)


def test_plane_ratio_is_the_ratio_of_its_data():
    """κ, g and c of X-18 as a 2×2 covariance: dense eigenvalues on a grid of t."""
    L, c, g = 3, 5.0, 0.3
    kappa = c * (c - 1) / (c - 1 + g)
    b, q = np.array([1.0, 0.0]), np.array([np.sqrt(g), np.sqrt(1 - g)])
    sigma = np.outer(b, b) + kappa * np.outer(q, q)
    assert np.linalg.eigvalsh(sigma)[-1] == pytest.approx(c, rel=1e-12)
    x = np.geomspace(1e-3, 1, 20_001)[:, None, None]
    least = np.linalg.eigvalsh(x * sigma + (L - 1) * x ** (-1 / (L - 1)) * np.outer(b, b))
    balanced = np.linalg.eigvalsh(sigma + (L - 1) * np.outer(b, b))[-1]
    assert plane_ratio(L, c, g) == pytest.approx(balanced / least[:, -1].min(), rel=1e-6)


def test_no_data_at_random_break_the_brackets():
    """600 cases here; `python tests/theory/counterexamples.py` tries 10 000."""
    margins, worst = counterexamples.brackets(600, seed=1)
    assert min(margins.values()) > -1e-10
    assert worst <= 1 + 1e-10


def test_the_certificate_says_what_is_proved(reference):
    parts = certify(reference, minimal_sharpness(reference, 3).minimizer, only="X-18", parts=True)
    assert set(parts["verdict"]) == {HOLDS}
    assert parts["part"].iloc[-1] == "S_bal/S_min ≤ R (computed)"
    deep = certify(reference, minimal_sharpness(reference, 30).minimizer, only="X-18", parts=True)
    assert set(deep["verdict"]) == {HOLDS}
    assert deep["part"].iloc[-1] == "S_bal/S_min ≤ R (theorem)"


@pytest.mark.parametrize(("depth", "spread"), [(0, 2.0), (3, 0.5), (3, np.nan), (2.5, 2.0)])
def test_bad_input_is_named(depth, spread):
    with pytest.raises(dl.InputError):
        worst_sharpness_ratio(depth, spread)


def test_one_layer_has_one_minimizer(reference):
    found = sharpness_brackets(reference, 1)
    exact = 2 * reference.largest_eigenvalue
    assert found.minimal == found.balanced == pytest.approx((exact, exact))
    assert found.worst_ratio == 1
