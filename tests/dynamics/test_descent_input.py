"""Bad input of gradient descent gets a clear error that names what came."""

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics.descent import gradient_descent

NET = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.5)
BATCH = dl.initialize.gaussian(jax.random.split(jax.random.key(0), 3), widths=(5, 5, 1), scale=0.5)
GELU = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.5, activation="gelu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate is 0; pass a finite number above 0"),
        ({"learning_rate": -0.1}, "learning_rate is -0.1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'"),
        ({"learning_rate": [0.1, 0.0]}, "learning_rate is 0"),
        ({"learning_rate": []}, r"shape \(0,\)"),
        ({"learning_rate": [[0.1]]}, r"shape \(1, 1\)"),
        ({"network": BATCH, "learning_rate": [0.1, 0.2]}, "2 values for 3 networks"),
        ({"learning_rate": None}, "learning_rate is None; pass a"),
        ({"steps": None}, "steps is None; pass a whole number"),
        ({"steps": 0}, "steps is 0; pass a whole number of at least 1"),
        ({"steps": -3}, "steps is -3"),
        ({"steps": 2.5}, "steps is 2.5"),
        ({"steps": float("nan")}, "steps is nan"),
        ({"momentum": 1.0}, "momentum is 1; pass a number from 0 up to but below 1"),
        ({"momentum": -0.1}, "momentum is -0.1"),
        ({"record_every": 0}, "record_every is 0"),
        ({"record_every": 10, "record": ["loss"]}, "record holds 'loss'"),
        ({"record_every": 10, "record": np.ones((2, 3))}, "record holds array"),
        ({"gap": -1e-3}, "gap is -0.001"),
        ({"gap": float("nan")}, "gap is nan"),
        ({"loss_target": -1.0}, "loss_target is -1"),
        ({"network": GELU, "gap": 1e-3}, "pass loss_target here"),
        ({"network": GELU, "record_every": 1, "record": "distance"}, "record holds 'distance'"),
        ({"network": [NET, NET]}, "network is a list; pass a deeplin.Network"),
        ({"problem": 3}, "problem is 3; pass a deeplin.Problem"),
    ],
)
def test_bad_input_is_named(problem, changes, message):
    arguments = {"problem": problem, "network": NET, "learning_rate": 0.1, "steps": 10} | changes
    with pytest.raises(dl.InputError, match=message):
        gradient_descent(**arguments)


def test_bad_input_leaves_the_network_as_it_was(problem):
    before = [np.array(weight) for weight in NET.weights]
    with pytest.raises(dl.InputError):
        gradient_descent(problem, NET, -1.0, 10)
    for kept, weight in zip(before, NET.weights, strict=True):
        np.testing.assert_array_equal(kept, weight)
