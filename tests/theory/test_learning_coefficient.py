"""X-36: the learning coefficient, against an independent formula and printed values."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import deeplin as dl
from deeplin.theory import learning_coefficient


def by_orbits(widths, rank):
    """The formula of Lehalleur and Rimányi: a minimum over compositions of the smallest excess."""
    M = sorted(width - rank for width in widths)
    N = len(M) - 1

    def cost(e):
        return sum(e[i] * (e[j] + M[j + 1] - M[j]) for i in range(N) for j in range(i + 1))

    choices = (e for e in product(range(M[0] + 1), repeat=N) if sum(e) == M[0])
    ends = rank * (widths[0] + widths[-1] - rank)
    return Fraction(ends + min(map(cost, choices)), 2)


PRINTED = {
    ((5, 3, 5), 0): Fraction(13, 2),
    ((5, 4, 5), 0): 8,
    ((4, 3, 8), 0): 6,
    ((8, 3, 4), 0): 6,
    ((3, 8, 4), 0): 6,
    ((2, 2, 2, 2, 2), 0): Fraction(3, 2),
    ((10, 10, 10, 10), 4): 44,
    ((784, 64, 10), 7): 2840,
    ((3, 4, 5, 6, 7), 2): 9,
    ((7, 3, 6, 2, 5), 1): Fraction(13, 2),
}


@pytest.mark.parametrize(("widths", "rank"), PRINTED)
def test_printed_values_are_exact(widths, rank):
    assert learning_coefficient(widths, rank) == PRINTED[widths, rank]


def test_two_formulas_agree_on_random_networks():
    rng = np.random.default_rng(0)
    for _ in range(300):
        widths = tuple(int(w) for w in rng.integers(1, 7, size=rng.integers(2, 6)))
        rank = int(rng.integers(0, min(widths) + 1))
        assert learning_coefficient(widths, rank) == by_orbits(widths, rank), (widths, rank)


def test_regular_model_has_half_its_parameters():
    assert learning_coefficient((4, 3), 0) == learning_coefficient((4, 3), 2) == 6


def test_bad_widths_and_ranks_get_a_sentence():
    with pytest.raises(dl.InputError, match="at most 3, the smallest width"):
        learning_coefficient((5, 3, 5), 4)
    with pytest.raises(dl.InputError, match="widths has 1 entries"):
        learning_coefficient((5,), 0)
