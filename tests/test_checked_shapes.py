"""A shape that is not the one stated does not pass the tests unseen."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from deeplin.theory.roots import largest_eigenvalue_of_update


def test_a_wrong_shape_is_found():
    assert largest_eigenvalue_of_update(np.zeros(2), np.ones(2)) == pytest.approx(2)
    with pytest.raises(TypeCheckError, match="diagonal"):
        largest_eigenvalue_of_update(np.zeros((2, 1)), np.ones(2))
