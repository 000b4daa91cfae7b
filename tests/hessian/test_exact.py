"""X-1 against the dense Hessian, at minimizers and near them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deeplin as dl
from deeplin.hessian import sharpness
from deeplin.networks import stack

SHAPES = {
    "deep": (5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 1),
    "one layer": (5, 1),
    "uneven widths": (5, 3, 7, 2, 1),
    "width one": (5, 1, 1, 1),
}


@pytest.mark.parametrize("name", SHAPES)
def test_sharpness_at_a_minimizer_is_exact(name, problem, hessian, minimizer):
    net = minimizer(problem, jax.random.key(1), SHAPES[name])
    found = sharpness(problem, net)
    truth = np.linalg.eigvalsh(hessian(problem, net))[-1]
    assert found.method == "exact"
    assert abs(found.value - truth) <= 1e-12 * truth
    assert found.error <= 1e-10 * truth


@pytest.mark.parametrize(
    ("widths", "samples", "readout"),
    [
        ((5, 4, 4, 3), 40, False),
        ((5, 3), 40, False),
        ((5, 6, 3), 40, False),
        ((5, 4, 4), 40, True),
        ((10, 6, 1), 6, False),
    ],
    ids=["three outputs", "one layer", "wide", "read-out", "underdetermined"],
)
def test_sharpness_is_exact_for_other_outputs_and_data(
    widths, samples, readout, rng, hessian, minimizer
):
    X = rng.normal(size=(samples, widths[0]))
    targets = rng.normal(size=samples if readout else (samples, widths[-1]))
    problem = dl.Problem.from_data(X, targets)
    p = jnp.asarray(rng.normal(size=widths[-1])) if readout else None
    net = minimizer(problem, jax.random.key(2), widths, p)
    found = sharpness(problem, net, method="exact")
    truth = np.linalg.eigvalsh(hessian(problem, net))[-1]
    assert abs(found.value - truth) <= 1e-12 * truth
    assert found.converged


@pytest.mark.parametrize("widths", [(5, 1), (5, 5, 1), (5, 1, 3)])
def test_smallest_eigenvalue_at_a_minimizer_is_exact(widths, rng, hessian, minimizer):
    X = rng.normal(size=(40, 5))
    teacher = np.outer(rng.normal(size=5), rng.normal(size=3)) if widths[-1] == 3 else None
    target = X @ teacher if teacher is not None else X @ rng.normal(size=5)
    problem = dl.Problem.from_data(X, target)
    if teacher is None:
        net = minimizer(problem, jax.random.key(5), widths)
    else:  # a bottleneck has fewer parameters than d·q; a rank-one target can still be met
        left, singular, right = np.linalg.svd(problem.optimum.T)
        net = dl.Network([singular[0] * left[:, :1].T, right[:1].T])
    found = sharpness(problem, net, method="exact", which="smallest")
    truth = np.linalg.eigvalsh(hessian(problem, net))
    assert abs(found.value - truth[0]) <= 1e-12 * truth[-1]


@given(
    widths=st.sampled_from([(3, 1), (3, 2, 2), (3, 4, 1, 4, 1)]),
    seed=st.integers(0, 10**6),
    away=st.sampled_from([0.0, 1e-12, 1e-8, 1e-4, 1.0]),
)
def test_error_bounds_the_distance_from_the_minimizers(widths, seed, away):
    rng = np.random.default_rng(seed)
    net = dl.Network([rng.normal(size=shape) for shape in zip(widths[1:], widths, strict=False)])
    X = rng.normal(size=(12, 3))
    target = X @ np.atleast_2d(net.product).T  # interpolated exactly, but for noise
    problem = dl.Problem.from_data(X, target + away * rng.normal(size=target.shape))
    for which in ("largest", "smallest"):
        found = sharpness(problem, net, method="exact", which=which)
        oracle = sharpness(problem, net, method="dense", which=which)
        assert abs(found.value - oracle.value) <= found.error + oracle.error


def test_equal_eigenvalues_at_the_top_are_exact(rng):
    """White data and one layer: the Hessian is 2I."""
    X = np.sqrt(20) * np.linalg.qr(rng.normal(size=(20, 5)))[0]
    problem = dl.Problem.from_data(X, X @ rng.normal(size=5))
    net = dl.Network([problem.optimum[None]])
    found = sharpness(problem, net, method="exact")
    assert abs(found.value - 2) <= found.error <= 1e-12


def test_exact_far_from_a_minimizer_says_so(problem):
    net = dl.initialize.gaussian(jax.random.key(0), (5, 5, 5, 1), 0.5)
    found = sharpness(problem, net, method="exact")
    assert not found.converged
    assert found.error > 0.01 * found.value


def test_batch_gives_what_each_network_gives(problem, minimizer):
    keys = jax.random.split(jax.random.key(0), 7)
    nets = [minimizer(problem, key, (5, 4, 1)) for key in keys]
    together = sharpness(problem, stack(nets))
    alone = [sharpness(problem, net).value for net in nets]
    np.testing.assert_allclose(together.value, alone, rtol=1e-14)


def test_exact_refuses_what_it_is_not_for(problem):
    net = dl.initialize.gaussian(jax.random.key(0), (5, 5, 1), 0.5)
    classes = dl.Problem.from_data(problem.inputs, problem.inputs[:, 0] > 0, loss="logistic")
    for data, activation in ((problem, "gelu"), (classes, "linear")):
        with pytest.raises(dl.InputError, match="linear networks on a Problem with squared loss"):
            sharpness(data, dl.Network(net.weights, activation=activation), method="exact")
