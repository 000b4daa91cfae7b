"""The compiled kernels and their parts, against NumPy in extended precision and autodiff."""

import os
import subprocess
import sys
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

import deeplin as dl
from deeplin.dynamics import lane_steps, relu_steps
from deeplin.dynamics.descent import gradient_descent
from deeplin.dynamics.lane_group import Group, packed
from deeplin.dynamics.objective import Ensemble, objective_of
from deeplin.dynamics.recording import Recorder
from deeplin.dynamics.state import Rules, drive
from deeplin.dynamics.update import Method, Update
from deeplin.kernels import rectified
from deeplin.kernels.activations import UNIT, activate, power
from deeplin.kernels.lanes import LANES, any_outside, fill, load, store
from deeplin.kernels.rows import CACHE, rows_together, unit
from deeplin.kernels.snapshots import Snapshots, look

PRECISIONS = (np.float64, np.float32)


def lanes_of(values, dtype):
    """Values as rows of lanes, the last row filled up with zeros."""
    rows = np.zeros((-(-len(values) // LANES), LANES), dtype)
    rows.ravel()[: len(values)] = values
    return rows


@njit
def powers(x, result):
    for row in range(len(x)):
        above, below = power(load(x, row))
        store(result, row, above / below)


@njit
def outside(values, low, high):
    return any_outside(load(values, 0), fill(values, low), fill(values, high))


@njit
def look_at(weights, values, lanes, snapshots, clock, due):
    return look(weights, load(values, 0), lanes, snapshots, clock, due)


# --- lanes and activations -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_powers_of_two_are_accurate_to_rounding_over_their_whole_range(dtype):
    end = 999 if dtype == np.float64 else 99
    x = lanes_of(np.concatenate([np.linspace(-end, end, 4001), [0.0, 1e-300, -1e-9]]), dtype)
    result = np.zeros_like(x)
    powers(x, result)
    exact = np.exp2(x.astype(np.longdouble))
    assert np.max(np.abs(result / exact - 1)) < 3 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_gelu_and_its_slope_are_accurate_to_rounding(dtype):
    small = np.geomspace(1e-12, 1, 500)
    large = [1e3, -1e3, 1e6, -1e6]  # beyond the range of the powers of two
    u = lanes_of(np.concatenate([np.linspace(-15, 15, 4000), small, -small, large]), dtype)
    value, slope = u.copy(), np.zeros_like(u)
    activate(True, value, slope, 0, len(u))
    x, value = u / np.longdouble(UNIT), value / np.longdouble(UNIT)
    factor = 2 * np.sqrt(2 / np.longdouble("3.14159265358979323846"))
    cube = np.longdouble("0.044715")
    with np.errstate(over="ignore"):  # 1/∞ = 0 is right
        s = 1 / (1 + np.exp(-factor * (x + cube * x**3)))
        rest = 1 / (1 + np.exp(factor * (x + cube * x**3)))
    epsilon = np.finfo(dtype).eps
    assert np.all(np.abs(value - x * s) <= 2 * epsilon * np.abs(x))
    expected = s + x * s * rest * factor * (1 + 3 * cube * x**2)
    assert np.max(np.abs(slope - expected)) < 4 * epsilon


@pytest.mark.parametrize("smooth", [True, False])
def test_activations_agree_with_jax_and_pass_nan_on(smooth):
    h = lanes_of([-2.0, -0.5, 0.0, 0.5, 2.0, 40.0, -40.0, np.nan], np.float64)
    value, slope = h * unit(smooth), np.zeros_like(h)
    activate(smooth, value, slope, 0, len(h))
    value /= unit(smooth)
    function = (lambda x: jax.nn.gelu(x, approximate=True)) if smooth else jax.nn.relu
    np.testing.assert_allclose(value[0, :-1], function(h[0, :-1]), rtol=0, atol=1e-14)
    expected = jax.vmap(jax.grad(function))(h[0, :-1])
    np.testing.assert_allclose(slope[0, :-1], expected, rtol=0, atol=1e-14)
    assert np.isnan(value[0, -1])


def test_the_stopping_test_sees_any_lane_and_nan():
    inside = np.full((1, LANES), 0.5)
    assert not outside(inside, 0.0, 0.5)
    for lane in range(LANES):
        for wrong in (0.0, -1.0, 0.6, np.inf, -np.inf, np.nan):
            values = inside.copy()
            values[0, lane] = wrong
            assert outside(values, 0.0, 0.5)


@given(
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=5),
    batch=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_a_snapshot_of_lanes_is_what_was_packed_into_them(sizes, batch, seed):
    rng = np.random.default_rng(seed)
    layers = [rng.normal(size=(batch, m, n)) for n, m in pairwise(sizes)]
    members = rng.permutation(batch)[: rng.integers(1, min(LANES, batch) + 1)]
    columns = packed(tuple(layer[members] for layer in layers))
    rules = Rules(np.zeros(batch), np.full(batch, np.inf))
    group = Group(dl.Network(layers), members, (columns, columns[:0]), rules)
    idle, still = members[0], members[1:]
    group.members[0] = -1
    snapshots = Snapshots(
        np.array([5, 9]), np.zeros(2 * columns.shape[0] * batch), np.zeros((2, batch))
    )
    values = np.arange(1.0, LANES + 1)[None]
    assert look_at(group.now, values, group.lanes(), snapshots, 7, 1) == (False, 1)
    assert look_at(group.now, values - 2, group.lanes(), snapshots, 9, 1) == (True, 1)
    assert not snapshots.memory.any()
    assert look_at(group.now, values, group.lanes(), snapshots, 9, 1) == (False, 2)
    ends = np.cumsum([2 * layer.size for layer in layers])
    for layer, part in zip(layers, np.split(snapshots.memory, ends[:-1]), strict=True):
        first, second = part.reshape(2, *layer.shape)
        np.testing.assert_array_equal(second[still], layer[still])
        assert not first.any()
        assert np.count_nonzero(second) == layer[still].size
    np.testing.assert_array_equal(snapshots.values[1, still], values[0, 1 : len(members)])
    assert snapshots.values[1, idle] == 0


# --- kernels -------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["linear", "relu"])
@pytest.mark.parametrize("readout", [False, True])
@pytest.mark.parametrize("widths", [(3, 1), (3, 7, 2), (3, 1, 5, 3), (3, 4, 6, 2, 1)])
def test_kernels_follow_autodiff_for_any_shape(widths, readout, activation, rng, monkeypatch):
    weights = [rng.normal(size=(2, m, n)) / 2 for n, m in pairwise(widths)]
    p = rng.normal(size=widths[-1]) if readout else None
    targets = 1 if readout else widths[-1]
    problem = dl.Problem.from_data(rng.normal(size=(11, 3)), rng.normal(size=(11, targets)))
    # One kernel for all widths: fewer compilations.
    monkeypatch.setattr(lane_steps, "UNROLLED", 0)
    assert_follows_autodiff(problem, dl.Network(weights, p, activation))


@pytest.mark.parametrize("samples", [1, 7, 8, 9, 50, 256, 603])
def test_gelu_kernel_follows_autodiff_for_any_number_of_rows(rng, samples):
    block = rows_together(samples, (5, 5, 5, 1), np.dtype(np.float64))
    assert (block >= samples) == (samples < 256)  # the larger ones take several blocks
    problem = dl.Problem.from_data(rng.normal(size=(samples, 5)), rng.normal(size=samples))
    keys = jax.random.split(jax.random.key(0), 2)
    nets = dl.initialize.gaussian(keys, widths=(5, 5, 5, 1), scale=0.6, activation="gelu")
    assert_follows_autodiff(problem, nets)


def test_a_block_of_rows_fits_into_the_cache():
    assert rows_together(50, (5,) * 10 + (1,), np.dtype(np.float64)) == 50
    assert rows_together(50, (100,) * 9 + (1,), np.dtype(np.float64)) == 5  # the least there is
    for rows in (1, 49, 51, 10**6):
        block = rows_together(rows, (5, 20, 1), np.dtype(np.float32))
        assert block % 5 == 0
        assert block == -(-rows // 5) * 5 or 2 * block * 26 * LANES * 4 <= CACHE


@pytest.mark.parametrize("widths", [(3, 12, 2), (3, 9, 16, 2), (20, 12, 10, 12, 1)])
def test_relu_kernel_of_units_follows_autodiff_for_any_shape(widths, rng):
    """More rows than a block has, so that one of them is not full."""
    weights = [rng.normal(size=(2, m, n)) / 2 for n, m in pairwise(widths)]
    data = rng.normal(size=(70, widths[0])), rng.normal(size=(70, widths[-1]))
    nets = dl.Network(weights, activation="relu")
    assert_follows_autodiff(dl.Problem.from_data(*data), nets, relu_steps.ReluSteps)


def test_relu_kernel_of_units_ends_as_jax_does(rng):
    """A run that reaches its goal, one that diverges and keeps its last weights, one that rests."""
    problem = dl.Problem.from_data(rng.normal(size=(70, 3)), rng.normal(size=(70, 2)))
    weights = [rng.normal(size=(m, n)) / 2 for n, m in pairwise((3, 12, 12, 2))]
    nets = dl.Network([np.stack([w, w, 0 * w]) for w in weights], activation="relu")
    rates, steps = np.array([0.05, 1.5, 0.05]), 40
    residual = dl.Network(weights, activation="relu")(problem.inputs) - problem.targets
    half = float(jnp.sum(residual**2)) / 140
    ours, theirs = (
        gradient_descent(problem, nets, rates, steps, loss_target=half, backend=backend)
        for backend in ("units", "jax")
    )
    assert list(ours.status) == ["converged", "diverged", "stopped"]
    assert list(ours.status) == list(theirs.status)
    assert list(ours.steps) == list(theirs.steps)
    for one, other in zip(ours.network.weights, theirs.network.weights, strict=True):
        # Rounding in the diverged run grows with its weights.
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_bits_are_transposed():
    bits = np.random.default_rng(0).integers(0, 2, size=(64, 64), dtype=np.uint8)
    words = np.packbits(bits, axis=1, bitorder="little").view(np.uint64).ravel()
    rectified.transpose_bits(words)
    found = np.unpackbits(words.view(np.uint8).reshape(64, 8), axis=1, bitorder="little")
    np.testing.assert_array_equal(found, bits.T)


@partial(jax.jit, static_argnames="activation")
def step(weights, readout, inputs, targets, activation):
    """One step along the gradient of the rows' risk."""

    def risk(weights):
        residual = dl.Network(weights, readout, activation)(inputs)
        return jnp.sum((residual - targets) ** 2) / len(inputs)

    return [w - 0.01 * slope for w, slope in zip(weights, jax.grad(risk)(weights), strict=True)]


def assert_follows_autodiff(problem, nets, dynamics=lane_steps.LaneSteps):
    """Three steps of the kernel against three steps along the gradient of the rows' risk."""
    batch, never = nets.with_batch(), np.full(2, np.inf)
    ensemble = Ensemble.of(batch)
    rules = Rules(-never, np.full(2, 1e99))
    update = Update(Method(ensemble.layout), np.full((2, batch.depth), 0.01))
    steps = dynamics(objective_of(problem, batch), ensemble, rules, update)
    after = drive(steps, steps.start(), [3], Recorder(ensemble, None))
    for member in range(2):
        weights = [np.asarray(weight)[member] for weight in batch.weights]
        readout = None if batch.readout is None else np.asarray(batch.readout)[member]
        for _ in range(3):
            weights = step(weights, readout, problem.inputs, problem.targets, nets.activation)
        for ours, theirs in zip(after.weights, weights, strict=True):
            np.testing.assert_allclose(np.asarray(ours)[member], theirs, rtol=0, atol=1e-13)


def test_constant_widths_change_nothing_but_rounding(problem, monkeypatch):
    keys = jax.random.split(jax.random.key(0), 3)
    nets = dl.initialize.gaussian(keys, widths=(5, 5, 5, 1), scale=0.5)
    unrolled = gradient_descent(problem, nets, 0.02, 100, backend="kernel")
    monkeypatch.setattr(lane_steps, "UNROLLED", 0)
    general = gradient_descent(problem, nets, 0.02, 100, backend="kernel")
    for one, other in zip(unrolled.network.weights, general.network.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)


# --- several devices -----------------------------------------------------------------------

SHARDED = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)
import deeplin as dl
from deeplin.dynamics.descent import gradient_descent
rng = np.random.default_rng(0)
problem = dl.Problem.from_data(rng.normal(size=(20, 3)), rng.normal(size=20))
nets = dl.initialize.gaussian(
    jax.random.split(jax.random.key(0), 5), widths=(3, 3, 1), scale=np.linspace(0.3, 1.5, 5)
)
assert len(jax.devices()) == 2
for momentum in (0.0, 0.5):
    runs = [
        gradient_descent(problem, nets, 0.05, 200, gap=1e-6, momentum=momentum, backend=backend)
        for backend in ("jax", "kernel")
    ]
    assert list(runs[0].status) == list(runs[1].status)
    assert list(runs[0].steps) == list(runs[1].steps)
    for one, other in zip(runs[0].network.weights, runs[1].network.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    assert len(runs[0].network.weights[0]) == 5
"""


def test_a_batch_spread_over_two_devices_trains_like_one():
    done = subprocess.run(
        [sys.executable, "-c", SHARDED], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
