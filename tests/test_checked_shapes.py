"""A shape that is not the one stated does not pass the tests unseen."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError

import deeplin as dl


def test_a_wrong_shape_is_found():
    network = dl.Network([np.ones((1, 3))])
    assert network(np.ones((4, 3))).shape == (4, 1)
    with pytest.raises(TypeCheckError, match="inputs"):
        network(np.ones((4, 3, 1)))
