"""Ctrl-C is never lost, though JAX installs a callback in which Python throws exceptions away."""

import gc
import pkgutil
import signal
import subprocess
import sys
import threading
from contextvars import copy_context
from pathlib import Path
from subprocess import PIPE

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplin as dl
from deeplin.dynamics.engine import Descent
from deeplin.dynamics.wide_run import ReducedStart
from deeplin.execution import check_interrupt, interruptible
from deeplin.hessian import lanczos

SAFETY_SECONDS = 120
"""For what should happen at once: only a failure takes so long."""


@pytest.fixture(autouse=True)
def handler(monkeypatch):
    """A handler of its own for each test, and silence about what Python throws away."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: None)
    yield
    signal.signal(signal.SIGINT, before)


def lose_an_interrupt():
    """Ctrl-C while a callback of the garbage collector runs: it is raised there, and lost.

    Returns how often it was pressed.
    """
    pressed = []

    def press(phase, _):
        if phase == "start":
            pressed.append(phase)
            signal.raise_signal(signal.SIGINT)

    gc.callbacks.append(press)
    gc.collect()
    gc.callbacks.remove(press)
    return len(pressed)


def test_python_loses_an_interrupt_in_a_callback_of_the_garbage_collector():
    """What everything here is about: it was pressed, and nothing is raised."""
    assert lose_an_interrupt() == 1


# --- the library's long loops ----------------------------------------------------------------


def test_descent_raises_a_lost_interrupt(problem):
    def watch(step, _):
        assert step == 0, "not heard"
        lose_an_interrupt()

    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.3)
    with pytest.raises(KeyboardInterrupt):
        dl.gradient_descent(
            problem,
            net,
            1e-3,
            2000,
            watch=watch,
            record_every=1000,
            record=["risk"],
        )


def test_descent_raises_it_after_the_piece_of_work_and_not_only_at_its_end(problem, monkeypatch):
    taken, advance = [], Descent.advance
    net = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 1), scale=0.3)

    def interrupted(*arguments):
        taken.append(1)
        lose_an_interrupt()
        return advance(*arguments)

    monkeypatch.setattr(Descent, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dl.gradient_descent(problem, net, 1e-3, 10**6, record_every=10, record=["risk"])
    assert len(taken) == 1


def test_an_interrupt_ends_a_flow():
    def loss(network):
        lose_an_interrupt()  # while the loss is traced
        return jnp.sum(network.product**2)

    with pytest.raises(KeyboardInterrupt):
        dl.gradient_flow(loss, dl.Network((np.ones((1, 1)),)), until=0.1)


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize(
    ("dynamics", "piece"),
    [
        ("descent", "deeplin.dynamics.wide.backward_products"),
        ("flow", "deeplin.dynamics.flow.integrate"),
    ],
)
def test_an_interrupt_ends_wide_networks_in_threads_too(monkeypatch, rng, runs, dynamics, piece):
    problem = dl.Problem.from_data(rng.normal(size=(4, 12)), rng.normal(size=4))
    draw, work, pieces = ReducedStart.draw, pkgutil.resolve_name(piece), []

    def lose_and_draw(*arguments, **options):
        lose_an_interrupt()
        return draw(*arguments, **options)

    def count(*arguments, **options):
        pieces.append(1)
        return work(*arguments, **options)

    monkeypatch.setattr(ReducedStart, "draw", lose_and_draw)
    monkeypatch.setattr(piece, count)
    with pytest.raises(KeyboardInterrupt):
        dl.simulate_wide(
            [problem] * runs,
            width=20,
            depth=2,
            alpha=1e-3,
            beta=1.0,
            key=jax.random.key(0),
            max_steps=20,
            record_every=1,
            dynamics=dynamics,
        )
    assert len(pieces) <= 2 * runs  # of twenty: a look at the start, and the first piece


def test_an_interrupt_ends_lanczos():
    calls = []

    def multiply(_, vectors):
        calls.append(1)
        lose_an_interrupt()
        return vectors * np.arange(vectors.shape[1])

    with pytest.raises(KeyboardInterrupt):
        lanczos.largest(multiply, (1, 50), np.dtype(float), tolerance=1e-9, max_products=50)
    assert len(calls) == 1


# --- what the mechanism respects -------------------------------------------------------------


def test_the_handler_that_was_there_comes_back():
    signal.signal(signal.SIGINT, lambda *_: None)
    mine = signal.getsignal(signal.SIGINT)

    @interruptible
    def fail():
        raise RuntimeError("of its own")

    interruptible(lambda: None)()
    assert signal.getsignal(signal.SIGINT) is mine
    with pytest.raises(RuntimeError, match="of its own"):
        fail()
    assert signal.getsignal(signal.SIGINT) is mine


def test_a_handler_set_inside_stays():
    mine = signal.Handlers.SIG_IGN
    interruptible(signal.signal)(signal.SIGINT, mine)
    assert signal.getsignal(signal.SIGINT) is mine


def test_an_interrupt_lost_after_the_last_check_is_raised_on_return():
    with pytest.raises(KeyboardInterrupt):
        interruptible(lose_an_interrupt)()
    check_interrupt()  # and then it is over
    assert interruptible(lambda: "heard")() == "heard"


def test_an_interrupt_that_is_not_lost_is_raised_where_it_comes():
    reached = []

    @interruptible
    def work():
        signal.raise_signal(signal.SIGINT)
        reached.append(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not reached


def test_it_ends_what_something_else_made_of_it():
    @interruptible
    def work():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("in a callback of the device") from None

    with pytest.raises(KeyboardInterrupt):
        work()


def test_a_handler_that_raises_nothing_decides_that_the_work_goes_on():
    pressed = []
    signal.signal(signal.SIGINT, lambda *_: pressed.append(1))

    @interruptible
    def work():
        lose_an_interrupt()
        check_interrupt()
        return "done"

    assert work() == "done"
    assert pressed == [1]


def test_an_error_of_a_foreign_handler_is_not_lost_either():
    class Enough(Exception):
        pass

    def handle(*_):
        raise Enough

    signal.signal(signal.SIGINT, handle)
    with pytest.raises(Enough):
        interruptible(lose_an_interrupt)()


def test_an_interrupt_that_is_ignored_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interruptible(lose_an_interrupt)()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_nested_interruptible_functions_share_their_interrupts():
    looks = []

    @interruptible
    def outer():
        inner()
        looks.append("inner returned")
        check_interrupt()
        looks.append("not heard")

    inner = interruptible(lose_an_interrupt)
    with pytest.raises(KeyboardInterrupt):
        outer()
    assert looks == ["inner returned"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_is_spared_but_not_one_of_its_own():
    """A thread with the caller's context works for it; any other has its own business."""
    ended = {}

    def work(name):
        try:
            interruptible(check_interrupt)()
            ended[name] = "done"
        except KeyboardInterrupt:
            ended[name] = "interrupted"

    @interruptible
    def both():
        lose_an_interrupt()
        context = copy_context()
        threads = [
            threading.Thread(target=work, args=("another",)),
            threading.Thread(target=context.run, args=(work, "its own")),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with pytest.raises(KeyboardInterrupt):
        both()
    assert ended == {"another": "done", "its own": "interrupted"}


# --- a real process, real signals ------------------------------------------------------------

PROGRAM = """
import gc, os, select, signal, sys
import jax
import numpy as np
import deeplin as dl
signal.signal(signal.SIGINT, signal.default_int_handler)
thrown_away = []
sys.unraisablehook = lambda lost: thrown_away.append(1)
arrived, wakeup = os.pipe()  # gets a byte with each interrupt, whatever Python makes of it
for end in (arrived, wakeup):
    os.set_blocking(end, False)
signal.set_wakeup_fd(wakeup)
problem = dl.Problem.from_moments(np.eye(2), np.ones(2), 2.0, samples=4)
net = dl.initialize.gaussian(jax.random.key(0), widths=(2, 2, 1), scale=0.3)
announcing = []
def announce(phase, _):
    if announcing:
        announcing.clear()
        print("collecting", flush=True)
gc.callbacks.append(announce)
def collect(step, _):
    if step > 0:
        raise SystemExit("lost")
    announcing.append(1)
    while not select.select([arrived], [], [], 0)[0]:
        gc.collect()
gc.freeze()  # there is little to collect: what counts is that it is done without a pause
for _ in range(int(sys.argv[1])):
    try:
        dl.gradient_descent(
            problem, net, 1e-9, 10**9, watch=collect, record_every=1000, record=["risk"],
        )
    except KeyboardInterrupt:
        os.read(arrived, 9)
        print("heard", flush=True)
print(len(thrown_away), flush=True)
"""


def test_of_many_real_interrupts_none_is_lost():
    """In a process started as shells start a background job, with interrupts ignored at first."""
    interrupts = 40
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(interrupts)], stdout=PIPE, text=True
    ) as process:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for _ in range(interrupts):
                assert process.stdout.readline() == "collecting\n"
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "heard\n"
            print(f"Python threw away {process.stdout.readline()}")
        finally:
            process.kill()


TRAIN = """
import sys
from deeplin.cli import main
from deeplin.training import recipe
sys.path.append({folder!r})
from toy_experiment import wait_for_ever_in_compiled_code
def block(*_, **__):
    print("training", flush=True)
    wait_for_ever_in_compiled_code()
recipe.train_on_table = block
main(["train", "table.csv", "--target", "y"])
"""


def test_ctrl_c_ends_train_in_the_middle_of_compiled_code(tmp_path):
    (tmp_path / "table.csv").write_text("x,y\n1,2\n3,4\n")
    program = TRAIN.format(folder=str(Path(__file__).parent / "sweep"))
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=PIPE, stderr=PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "training\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(SAFETY_SECONDS) == 130
            assert process.stderr.read().endswith("deeplin: interrupted; no run was kept\n")
        finally:
            process.kill()
