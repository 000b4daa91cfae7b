"""X-17: softmax, by a geodesically convex program."""

from __future__ import annotations

import convex_losses as data
import numpy as np
import pytest

from deeplin import theory
from deeplin.theory.balanced import balanced_network
from deeplin.theory.gauge import Reduced
from deeplin.theory.interior_point import solve

PROGRAM = {2: 0.57335455, 3: 0.80480924, 4: 1.03832885, 8: 2.00898857}
ACCURATE = 1e-7


@pytest.mark.parametrize("depth", PROGRAM)
def test_minimal_sharpness_is_the_reference_and_the_minimizer_attains_it(depth):
    problem = data.softmax()
    found = theory.minimal_sharpness(problem, depth)
    assert found.exact == pytest.approx(PROGRAM[depth], rel=ACCURATE)
    assert found.lower <= found.exact <= found.upper
    weights = found.attaining(2).weights
    assert np.linalg.eigvalsh(data.dense_hessian(problem, weights))[-1] == pytest.approx(
        found.exact, rel=1e-9
    )
    gradient = problem.value_and_gradient(np.asarray(data.product(weights)).T)[1]
    assert np.abs(gradient).max() < 1e-12


@pytest.mark.parametrize("depth", PROGRAM)
def test_the_dual_certifies_every_depth(depth):
    found = theory.minimal_sharpness(data.softmax(), depth)
    assert found.lower <= found.exact
    assert found.lower == pytest.approx(found.exact, rel=ACCURATE)
    if depth == 2:  # the value of the dual in closed form, printed with the result
        assert found.lower == pytest.approx(0.5733545467, rel=ACCURATE)


@pytest.mark.parametrize("depth", [2, 3])
def test_no_minimizer_found_by_search_is_flatter(depth):
    problem = data.softmax()
    found = theory.minimal_sharpness(problem, depth).exact
    assert data.flattest_by_search(problem, depth) == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("depth", [2, 3])
def test_balanced_sharpness_and_minimal_trace_are_those_of_their_networks(depth):
    problem = data.softmax()
    balanced = data.dense_hessian(problem, balanced_network(problem, depth).weights)
    assert theory.balanced_sharpness(problem, depth) == pytest.approx(
        np.linalg.eigvalsh(balanced)[-1], rel=1e-9
    )
    trace = theory.minimal_trace(problem, depth)
    attained = np.trace(data.dense_hessian(problem, trace.minimizer.weights))
    assert attained == pytest.approx(trace.exact, rel=1e-9)
    assert attained < np.trace(balanced)


def test_the_smallest_trace_of_two_layers_has_a_closed_form():
    """2‖M_1^{1/2}ΘM_2^{1/2}‖_*, M_1 and M_2 the partial traces of H."""
    problem = data.softmax()
    q, d = problem.outputs, problem.dimension
    H = problem.curvature.reshape(q, d, q, d)
    roots = []
    for matrix in (np.einsum("aibi->ab", H), np.einsum("aiaj->ij", H)):
        values, vectors = np.linalg.eigh(matrix)
        roots.append(vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T)
    expected = 2 * np.linalg.norm(roots[0] @ problem.optimum @ roots[1], "nuc")
    assert theory.minimal_trace(problem, 2).exact == pytest.approx(expected, rel=1e-9)


def test_the_program_recovers_squared_loss_of_several_outputs():
    """H = I⊗2Σ̂ (X-7)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3)) * [1, 0.5, 1.5]
    theta = rng.normal(size=(2, 3))
    bases = np.eye(2), np.eye(3)
    reduced = Reduced(theta, np.kron(np.eye(2), 2 * X.T @ X / 20), np.zeros((2, 3)), *bases)
    for depth, value in {2: 8.87652488, 3: 16.08548224, 5: 31.36056875}.items():
        form = reduced.form(depth)
        found = solve(lambda _, form=form: form, np.zeros(0), form.top(form.identities()))
        assert found.value == pytest.approx(value, rel=1e-8)
        assert found.lower == pytest.approx(value, rel=ACCURATE)
