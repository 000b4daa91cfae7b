"""Work in threads, and how much of it is done before the next check for Ctrl-C."""

import threading

import jax
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics import engine
from deeplin.dynamics.engine import FIRST_WORK, GROWTH, PIECE_SECONDS, Pace
from deeplin.execution import map_in_threads, thread_count


def test_threads_give_results_in_order_and_pass_errors_on():
    another = threading.Event()

    def late(number: int) -> int:
        if number == 0 and thread_count() > 1:
            another.wait()  # the first item ends after the second
        another.set()
        return 1 // (9 - number)

    assert map_in_threads(late, []) == []
    assert map_in_threads(late, range(9)) == [1 // (9 - number) for number in range(9)]
    assert map_in_threads(late, [4]) == [0]
    with pytest.raises(ZeroDivisionError):
        map_in_threads(late, range(12))


@pytest.mark.parametrize("activation", ["linear", "gelu"])
def test_chunks_of_networks_may_be_taken_in_any_order(monkeypatch, activation):
    problem = dl.problems.synthetic.flat_minima(seed=0).problem
    keys = jax.random.split(jax.random.key(0), 43)
    nets = dl.initialize.gaussian(keys, widths=(5, 5, 1), scale=0.3, activation=activation)
    rates = np.geomspace(1e-3, 10.0, 43)  # the last ones diverge
    monkeypatch.setattr(engine, "thread_count", lambda: 3)

    def descend():
        return dl.gradient_descent(problem, nets, rates, 4000, record_every=501)

    expected, counts = descend(), []

    def backwards(work, items):
        counts.append(len(items))
        return [work(item) for item in reversed(items)][::-1]

    monkeypatch.setattr(engine, "map_in_threads", backwards)
    run = descend()
    assert set(counts) == {3}
    assert {"diverged"} < set(run.status)
    for field in ("status", "steps"):
        np.testing.assert_array_equal(getattr(run, field), getattr(expected, field))
    jax.tree.map(np.testing.assert_array_equal, run.network.weights, expected.network.weights)
    np.testing.assert_array_equal(run.records["risk"], expected.records["risk"])


def test_chunks_and_threads_do_not_change_a_run_to_the_last_bit(monkeypatch):
    """Batch last: every operation is elementwise in the networks, and chunks have no remainder."""
    problem = dl.problems.synthetic.flat_minima(seed=0).problem
    keys = jax.random.split(jax.random.key(0), 43)
    nets = dl.initialize.gaussian(keys, widths=(5, 5, 5, 1), scale=0.5)
    runs = []
    for threads, size in ((1, 13_000), (2, 13_000), (5, 13_000), (1, 1600), (3, 5000), (1, 40_000)):
        monkeypatch.setattr(engine, "thread_count", lambda threads=threads: threads)
        monkeypatch.setattr(engine, "CHUNK_BYTES", size)
        runs.append(
            dl.gradient_descent(problem, nets, 0.01, 300, momentum=0.5, batch_size=7, key=keys)
        )
    for run in runs[1:]:
        jax.tree.map(np.testing.assert_array_equal, run.network.weights, runs[0].network.weights)


def test_a_compiler_that_does_not_know_the_option_compiles_without_it(monkeypatch):
    monkeypatch.setattr(engine, "IN_PLACE", {"xla_an_option_that_nobody_knows": True})
    engine._in_place.cache_clear()
    try:
        double = engine.compiled_in_place(lambda x: 2 * x)
        assert float(double(21.0)) == 42
        assert engine._in_place() is None
    finally:
        engine._in_place.cache_clear()


def test_pieces_grow_while_they_are_quick(monkeypatch):
    now = [1.0]
    monkeypatch.setattr(engine.time, "perf_counter", lambda: now[0])

    def pieces(pace: Pace, until: int, seconds_a_step: float) -> list[int]:
        clock, sizes = 0, []
        while clock < until:
            began, clock = clock, pace.next(clock, until)
            sizes.append(clock - began)
            now[0] += sizes[-1] * seconds_a_step
        return sizes

    work = FIRST_WORK // 64
    assert Pace(10**9).next(0, 1000) == 1  # large networks begin with few steps
    steady = pieces(Pace(work), 1500, PIECE_SECONDS / 800)
    assert steady == pytest.approx([64, 64 * GROWTH, 800, 124], abs=1)
    assert pieces(Pace(work), 1500, PIECE_SECONDS / 64) == [64] * 23 + [28]
    assert pieces(Pace(work), 60, 1e-6) == [60]
