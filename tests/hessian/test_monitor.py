"""Sharpness in a training loop of one's own, warm starts, and operators of other packages."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import deeplin as dl
from deeplin.hessian import lanczos


def symmetric(spectrum, seed=0):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(len(spectrum), len(spectrum))))[0]
    return (basis * spectrum) @ basis.T, basis


def largest(matrix, guess=None, tolerance=1e-8, failure=lanczos.FAILURE_PROBABILITY):
    return lanczos.largest(
        lambda members, vectors: vectors @ matrix,
        (1, len(matrix)),
        matrix.dtype,
        guess=guess,
        tolerance=tolerance,
        max_products=500,
        failure=failure,
    )


SPECTRUM = np.r_[3.0, 2.0, np.linspace(-1, 1, 198)]


def test_a_good_guess_saves_products_and_keeps_the_certificate():
    matrix, basis = symmetric(SPECTRUM)
    noise = np.random.default_rng(1).normal(size=200)
    guess = basis[:, 0] + 0.02 * noise / np.linalg.norm(noise)
    cold, warm = largest(matrix), largest(matrix, guess[None])
    assert warm.products[0] < 0.9 * cold.products[0]
    for found in (cold, warm):
        assert abs(found.value[0] - 3) <= found.error[0] <= 3e-8


@pytest.mark.parametrize("column", [1, 150])
def test_a_guess_of_another_eigenvector_does_not_hide_the_largest(column):
    matrix, basis = symmetric(SPECTRUM)
    found = largest(matrix, basis[:, column][None])
    assert abs(found.value[0] - 3) <= found.error[0] <= 3e-8


@pytest.mark.parametrize("second", [2.3, 2.6, 2.7, 2.8, 2.95])
def test_a_guess_that_was_overtaken_costs_no_more_than_a_few_products(second):
    """The guess lies between the tolerance above and below, where neither clearly wins."""
    matrix, basis = symmetric(np.r_[3.0, second, np.linspace(-1, 1, 198)])
    guess = basis[:, 1] + 0.2 * basis[:, 0] + 0.3 * basis[:, 50]
    cold, warm = largest(matrix, tolerance=0.1), largest(matrix, guess[None], tolerance=0.1)
    assert abs(warm.value[0] - 3) <= warm.error[0] <= 0.3
    assert warm.products[0] <= cold.products[0] + 5


def test_guesses_in_spectra_without_a_gap_or_below_zero_are_certified():
    for spectrum in (np.ones(60), np.r_[1.0, 1.0 - 1e-9, np.zeros(58)], -np.linspace(1, 2, 60)):
        matrix, basis = symmetric(spectrum)
        found = largest(matrix, basis[:, 0][None])
        assert abs(found.value[0] - spectrum.max()) <= found.error[0] <= 2e-8


def test_loose_tolerances_with_warm_starts_need_a_dozen_products_at_most():
    spectrum = np.r_[10.0, 6.0, 5.0, np.linspace(-0.5, 1, 1997)]
    rng = np.random.default_rng(0)
    guess = np.eye(2000)[0] + 0.2 * rng.normal(size=2000) / np.sqrt(2000)
    found = lanczos.largest(
        lambda members, vectors: vectors * spectrum,
        (1, 2000),
        np.dtype(float),
        guess=guess[None],
        tolerance=0.1,
        max_products=100,
        failure=1e-3,
    )
    assert found.products[0] <= 12
    assert abs(found.value[0] - 10) <= found.error[0] <= 1


def test_errors_fail_no_more_often_than_promised():
    # A guess that is orthogonal to the largest eigenvector, which only the random start can find.
    matrix, basis = symmetric(np.r_[1.2, 1.0, np.linspace(0, 0.5, 98)])
    missed = 0
    for seed in range(300):
        found = lanczos.largest(
            lambda members, vectors: vectors @ matrix,
            (1, 100),
            matrix.dtype,
            seed=seed,
            guess=basis[:, 1][None],
            tolerance=0.05,
            max_products=100,
            failure=0.05,
        )
        missed += abs(found.value[0] - 1.2) > found.error[0]
    assert missed <= 0.05 * 300


def test_operators_have_the_sharpness_and_spectrum_of_their_matrix():
    matrix, _ = symmetric(np.r_[3.0, 2.0, np.linspace(-4, 1, 498)])
    operator = aslinearoperator(matrix)
    found = dl.sharpness(operator)
    assert found.method == "lanczos"
    assert found.converged
    assert abs(found.value - 3) <= found.error
    again = dl.sharpness(operator, start=found.vector)
    assert again.products < found.products
    assert dl.sharpness(operator, which="smallest").value == pytest.approx(-4, rel=1e-8)
    spectrum = dl.hessian_spectrum(operator, count=2)
    np.testing.assert_allclose(spectrum.values, [3, 2], rtol=1e-8)
    trace = dl.hessian_trace(operator, samples=500)
    assert trace.value == pytest.approx(np.trace(matrix))
    assert trace.error == 0
    small = dl.sharpness(aslinearoperator(np.diag([1.0, 5.0])))
    assert small.value == pytest.approx(5)
    assert small.method == "dense"


def test_operators_that_are_not_square_or_not_alone_are_refused():
    with pytest.raises(dl.InputError, match="symmetric"):
        dl.sharpness(LinearOperator((2, 3), matvec=lambda v: v, dtype=float))
    with pytest.raises(dl.InputError, match="passed alone"):
        dl.sharpness(aslinearoperator(np.eye(2)), np.zeros(2))
    with pytest.raises(dl.InputError, match="real"):
        dl.sharpness(aslinearoperator(1j * np.eye(2)))


def quartic(w):
    return jnp.sum(w["a"] ** 4) + jnp.sum(w["b"] ** 2)


def test_monitor_measures_an_optax_loop_every_few_steps():
    said = []
    monitor = dl.SharpnessMonitor(quartic, every=5, log=lambda values, step: said.append(step))
    w = {"a": jnp.array([1.0, 0.5]), "b": jnp.array([1.0])}
    optimizer = optax.sgd(0.02)
    state = optimizer.init(w)
    expected = []
    for step in range(21):
        if step % 5 == 0:
            expected.append(max(12 * float(jnp.max(w["a"] ** 2)), 2))
        values = monitor(step, 0.02, w)
        assert (values is None) == (step % 5 != 0)
        updates, state = optimizer.update(jax.grad(quartic)(w), state)
        w = optax.apply_updates(w, updates)
    assert said == [0, 5, 10, 15, 20]
    found = [record["sharpness"] for record in monitor.records]
    np.testing.assert_allclose(found, expected, rtol=0.01)
    for record in monitor.records:
        assert record["stability"] == pytest.approx(0.02 * record["sharpness"] / 2)


@pytest.mark.extended
def test_monitor_measures_pytorch_closures_and_modules_alike():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    X = torch.randn(40, 6)
    module = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    criterion = torch.nn.MSELoss()
    measured = dl.TorchLoss(criterion, (X, X[:, :1]))
    by_closure = dl.SharpnessMonitor(lambda: criterion(module(X), X[:, :1]), every=10, log=None)
    by_module = dl.SharpnessMonitor(measured, every=10, log=None)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for step in range(31):
        one, other = by_closure(step, 0.1), by_module(step, 0.1, module)
        if one is not None:
            truth = dl.sharpness(measured, module, method="dense").value
            assert one["sharpness"] == pytest.approx(truth, rel=0.01)
            assert other["sharpness"] == pytest.approx(truth, rel=0.01)
        optimizer.zero_grad()
        criterion(module(X), X[:, :1]).backward()
        optimizer.step()


@pytest.mark.extended
def test_only_some_parameters_of_a_module_by_name():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    X = torch.randn(40, 6).double()
    module = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Linear(3, 1)).double()
    criterion = torch.nn.MSELoss()
    part = dl.TorchLoss(criterion, (X, X[:, :1]), include="1.*")
    found = dl.sharpness(part, module, method="dense")
    hidden = module[0](X).detach().numpy()
    ones = np.column_stack([hidden, np.ones(40)])
    assert found.value == pytest.approx(np.linalg.eigvalsh(2 * ones.T @ ones / 40)[-1], rel=1e-6)
    parts = dl.unflatten(module, found.vector, include="1.*")
    assert {name: tuple(p.shape) for name, p in parts.items()} == {
        "1.weight": (1, 3),
        "1.bias": (1,),
    }
    with pytest.raises(dl.InputError, match=r"0\.weight, 0\.bias, 1\.weight"):
        dl.sharpness(dl.TorchLoss(criterion, (X, X[:, :1]), include="blocks.*"), module)


def test_monitor_says_what_it_needs():
    with pytest.raises(dl.InputError, match="function"):
        dl.SharpnessMonitor(3)
    with pytest.raises(dl.InputError, match="log"):
        dl.SharpnessMonitor(quartic, log="wandb")
    monitor = dl.SharpnessMonitor(quartic, log=None)
    with pytest.raises(dl.InputError, match="parameters"):
        monitor(0, 0.1)
    with pytest.raises(dl.InputError, match="learning_rate"):
        monitor(0, "0.1x", {"a": jnp.ones(1), "b": jnp.ones(1)})


@pytest.mark.extended
def test_monitor_says_what_a_closure_must_return():
    torch = pytest.importorskip("torch")
    with pytest.raises(dl.InputError, match="tensor"):
        dl.SharpnessMonitor(lambda: 3.0, log=None)(0, 0.1)
    with pytest.raises(dl.InputError, match="tensor"):
        dl.SharpnessMonitor(lambda: torch.tensor(3.0), log=None)(0, 0.1)
    measured = dl.TorchLoss(torch.nn.MSELoss(), (torch.ones(2, 1), torch.ones(2, 1)))
    with pytest.raises(dl.InputError, match="module"):
        dl.SharpnessMonitor(measured, log=None)(0, 0.1)
