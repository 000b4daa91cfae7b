"""Shared set-up of the tests: checked shapes, drawn examples, and known data sets."""

import gc
import os
import shutil
import signal
from importlib.util import find_spec
from pathlib import Path

# Most of the time of the tests is spent on compiling, and each program runs briefly: simpler
# machine code is ready sooner. Processes that tests start inherit this, so that digits agree.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
from jaxtyping import install_import_hook


def annotated_modules():
    """The modules that state shapes of arrays; checking the others too would slow every start."""
    source = Path(find_spec("deeplin").origin).parent.parent
    for path in sorted(source.rglob("*.py")):
        if "from jaxtyping import" in path.read_text(encoding="utf-8"):
            yield ".".join(path.relative_to(source).with_suffix("").parts)


install_import_hook(list(annotated_modules()), "checked_shapes.check")

import numpy as np
import pytest
from closing import pytest_runtest_makereport, pytest_terminal_summary  # noqa: F401 (hooks)
from hypothesis import settings
from threadpoolctl import threadpool_limits

import deeplin as dl
from deeplin.cli import main
from deeplin.execution import share_compiled_code

share_compiled_code()  # what one process of the tests has compiled the others need not

# One thread of BLAS for this process, and for those that tests start: several processes with a
# thread for each core wait for each other far longer than they compute.
threadpool_limits(1, user_api="blas")
for library in ("OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# As in a terminal, also where the tests are started as a background job, whose interrupts shells
# ignore: the processes that tests start and interrupt inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests draw the same examples every time; `HYPOTHESIS_PROFILE=fuzz` draws new and many more,
# and prints with what it finds the line that draws it again.
settings.register_profile("test", max_examples=50, deadline=None, derandomize=True, database=None)
settings.register_profile("fuzz", max_examples=2000, deadline=None, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))


MOST_MAPPINGS = 30_000
"""Of memory, in one process, of which Linux allows 65 530; every compiled program takes some."""


@pytest.fixture(autouse=True, scope="module")
def _release_compiled_programs():
    """Let compiled programs go before there are so many that the next one cannot be loaded."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave the browser and PyTorch to `make test-all`."""
    for item in items:
        if item.get_closest_marker("browser") or "torch" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.extended)


@pytest.fixture
def rng():
    return np.random.default_rng(20241)


@pytest.fixture
def problem(rng):
    """Fifty noisy samples of five inputs: overdetermined, full rank."""
    X = rng.normal(size=(50, 5))
    return dl.Problem.from_data(X, X @ rng.normal(size=5) + rng.normal(size=50))


@pytest.fixture
def wide_problem(rng):
    """Six samples of ten inputs: underdetermined, interpolation possible."""
    X = rng.normal(size=(6, 10))
    return dl.Problem.from_data(X, X @ rng.normal(size=10) + rng.normal(size=6))


@pytest.fixture
def command(capsys):
    """`deeplin ARGUMENTS` in this process: exit code, standard output and error; no traceback."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return stop.value.code, captured.out, captured.err

    return run


NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all tests of a process: Playwright allows no second one beside it."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine: the browser tests need one")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=300_000)
        yield chromium
        chromium.close()
