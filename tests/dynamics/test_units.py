"""Units in lanes: sums of products and sets of bits, against NumPy."""

import numpy as np
import pytest
from numba import njit

from deeplin.kernels.lanes import LANES
from deeplin.kernels.rectified import four_of
from deeplin.kernels.units import four_inner, inner, load_units


@njit
def products(units, array, some):
    a = load_units(units, 0, (0, 0))
    return four_inner(a, array, 2, some), inner(a, array, 4)


@njit
def in_fours(bits):
    found = []
    while bits:
        some, bits = four_of(bits)
        found.append(some)
    return found


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_four_inner_products_at_a_time_are_those_of_numpy(rng, dtype):
    units, array = (rng.normal(size=(rows, LANES)).astype(dtype) for rows in (2, 12))
    exact = array[2:].astype(np.longdouble).reshape(5, -1) @ units.astype(np.longdouble).ravel()
    four, one = products(units, array, (0, 4, 1, 4))
    size = np.linalg.norm(array) * np.linalg.norm(units)
    np.testing.assert_allclose(four, exact[[0, 4, 1, 4]], rtol=0, atol=np.finfo(dtype).eps * size)
    np.testing.assert_allclose(one, exact[1], rtol=0, atol=np.finfo(dtype).eps * size)


@pytest.mark.parametrize("count", range(1, 10))
def test_every_bit_is_met_in_fours_and_only_the_last_again(rng, count):
    numbers = np.sort(rng.choice(64, count, replace=False))
    fours = in_fours(np.uint64(sum(1 << int(number) for number in numbers)))
    met = np.concatenate(fours)
    assert met[:count].tolist() == numbers.tolist()
    assert len(fours) == -(-count // 4)
    assert (met[count:] == numbers[-1]).all()
