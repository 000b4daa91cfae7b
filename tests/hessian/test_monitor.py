"""Sharpness in a training loop of one's own, and over some of the parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import deeplin as dl


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
def test_a_closure_is_measured_without_a_trace_in_the_training():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    X = torch.randn(20, 4)
    layers = (
        torch.nn.Linear(4, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.Dropout(),
        torch.nn.Linear(8, 1),
    )
    module = torch.nn.Sequential(*layers)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    random = torch.get_rng_state()
    monitor = dl.SharpnessMonitor(lambda: (module(X) ** 2).mean(), log=None)
    assert monitor(0, 0.1)["sharpness"] > 0
    assert monitor(50, 0.1)["sharpness"] == pytest.approx(monitor.records[0]["sharpness"], rel=0.02)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert module.training


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
