"""Effective ranks against their definitions and closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplin.errors import InputError
from deeplin.theory.benign_overfitting import effective_ranks, flat_tail, spike

SPECTRA = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=30)


@given(SPECTRA)
def test_ranks_are_the_sums_of_their_definition(values):
    eigenvalues = sorted(values, reverse=True)
    ranks = effective_ranks(values)
    for j in range(len(values)):
        tail = eigenvalues[j:]
        assert ranks.tail_sums[j] == pytest.approx(math.fsum(tail), rel=1e-13)
        assert ranks.small[j] == pytest.approx(math.fsum(tail) / tail[0], rel=1e-13)
        squares = math.fsum(value**2 for value in tail)
        assert ranks.large[j] == pytest.approx(math.fsum(tail) ** 2 / squares, rel=1e-12)


@given(SPECTRA, st.floats(1e-3, 1e3))
def test_ranks_do_not_depend_on_the_unit(values, unit):
    ranks, scaled = effective_ranks(values), effective_ranks(np.array(values) * unit)
    assert np.allclose(ranks.small, scaled.small)
    assert np.allclose(ranks.large, scaled.large)


def test_a_spike_has_the_ranks_of_its_definition():
    k, epsilon, d = 10, 0.01, 500
    spectrum = np.where(np.arange(d) < k, 1.0, epsilon)
    ranks = effective_ranks(spectrum)
    assert ranks.small[0] == pytest.approx(k + epsilon * (d - k))
    assert ranks.tail_sums[k] == pytest.approx(epsilon * (d - k))
    assert ranks.large[k] == pytest.approx(d - k)
    assert spike(spectrum) == (k, epsilon)
    assert flat_tail(spectrum, samples=100).k == k
    assert flat_tail(spectrum, samples=100, b=0.01).k == 0
    assert flat_tail(spectrum, samples=1000).k == math.inf


@pytest.mark.parametrize("spectrum", [[2.0, 1.0, 0.5], [0.5, 0.5], [1.0, 1.0], [1.0, 0.5, 0.2]])
def test_other_spectra_are_no_spikes(spectrum):
    assert spike(spectrum) is None


def test_zero_eigenvalues_have_no_rank():
    ranks = effective_ranks([1.0, 0.0, 0.0])
    assert list(ranks.small) == [1, 0, 0]
    assert list(ranks.large) == [1, 0, 0]


@pytest.mark.parametrize("spectrum", [[1.0, -0.1], [0.0, 0.0], [], [np.nan]])
def test_what_is_no_spectrum_is_refused(spectrum):
    with pytest.raises(InputError):
        effective_ranks(spectrum)
