"""Work in threads, and how much of it is done before the next look at the keyboard."""

import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics import lane_steps, state
from deeplin.dynamics.state import GROWTH, PATIENCE, Pace
from deeplin.kernels.compiling import in_threads, thread_count

PROGRAM = """
import jax
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import deeplin as dl
problem = dl.problems.synthetic.flat_minima(seed=0).problem
def train(seed):
    keys = jax.random.split(jax.random.key(seed), 3)
    nets = dl.initialize.gaussian(keys, widths=(5, 5, 1), scale=0.3)
    run = dl.gradient_descent(problem, nets, 0.01, 50, backend="jax")
    return run.evidence["risk"]
alone = [train(seed) for seed in range(4)]
with ThreadPoolExecutor(4) as pool:
    together = list(pool.map(train, range(4)))
np.testing.assert_array_equal(alone, together)
print("same")
"""


def test_descents_in_threads_on_two_devices_end_and_agree_with_those_run_alone():
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=300,  # ends threads that wait for each other; the program needs a few seconds
    )
    assert answer.stdout.strip() == "same", answer.stderr


def test_threads_give_results_in_order_and_pass_errors_on():
    another = threading.Event()

    def late(number: int) -> int:
        if number == 0 and thread_count() > 1:
            another.wait()  # the first item ends after the second
        another.set()
        return 1 // (9 - number)

    assert in_threads(late, []) == []
    assert in_threads(late, range(9)) == [1 // (9 - number) for number in range(9)]
    assert in_threads(late, [4]) == [0]
    with pytest.raises(ZeroDivisionError):
        in_threads(late, range(12))


@pytest.mark.parametrize("activation", ["linear", "gelu"])
def test_groups_of_networks_may_be_taken_in_any_order(monkeypatch, activation):
    problem = dl.problems.synthetic.flat_minima(seed=0).problem
    keys = jax.random.split(jax.random.key(0), 43)
    nets = dl.initialize.gaussian(keys, widths=(5, 5, 1), scale=0.3, activation=activation)
    rates = np.geomspace(1e-3, 10.0, 43)  # the last ones diverge

    def descend():
        return dl.gradient_descent(problem, nets, rates, 4000, record_every=500)

    expected, orders = descend(), []

    def backwards(work, items):
        orders.append([stop for _, stop in items])
        return [work(item) for item in reversed(items)]

    monkeypatch.setattr(lane_steps, "thread_count", lambda: 2)
    monkeypatch.setattr(lane_steps, "in_threads", backwards)
    run = descend()
    assert any(stops[0] < stops[-1] for stops in orders)  # groups did pause
    assert {"diverged"} < set(run.status)
    for field in ("status", "steps"):
        np.testing.assert_array_equal(getattr(run, field), getattr(expected, field))
    jax.tree.map(np.testing.assert_array_equal, run.network.weights, expected.network.weights)
    np.testing.assert_array_equal(run.records["risk"], expected.records["risk"])


def test_pieces_grow_with_patience_and_leave_no_crumbs(monkeypatch):
    now = [1.0]
    monkeypatch.setattr(state.time, "perf_counter", lambda: now[0])

    def pieces(pace: Pace, until: int, seconds_a_step: float) -> list[int]:
        clock, sizes = 0, []
        while clock < until:
            began, clock = clock, pace.next(clock, until)
            sizes.append(clock - began)
            now[0] += sizes[-1] * seconds_a_step
        return sizes

    assert Pace(10**9).next(0, 1000) == 1  # large networks begin with few steps
    assert pieces(Pace(10**4), 1500, PATIENCE / 800) == [64, 64 * GROWTH, 924]
    assert pieces(Pace(10**4), 1500, PATIENCE / 64) == [64] * 22 + [92]
    assert pieces(Pace(10**4), 90, 1e-6) == [90]
    assert max(pieces(Pace(10**4, most=100), 1500, 1e-6)) == 100
