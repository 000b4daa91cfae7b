"""Starting: CPU seconds of fresh processes, the least of some turns.

A neighbour on the machine can only add to them: by a quarter at times, to plain Python as well.

Caches on disk are warm, those of bytecode too: every command runs once before it is measured.
"""

from __future__ import annotations

import os
import subprocess
import sys

from turns import in_turns

REPETITIONS = 5
USUAL = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""The environment, in which Python keeps its bytecode as it does unless told otherwise."""
COMMAND = "import sys; from deeplin.cli import main; sys.argv = {}; main()"
DATA = """
import numpy as np
X = np.random.default_rng(0).normal(size=(100, 5))
y = X @ np.arange(5.0) + np.random.default_rng(1).normal(size=100)
"""
FIT = """
from deeplin import DeepLinearRegressor
import time
began = time.process_time()
DeepLinearRegressor(depth=3, random_state=0).fit(X, y)
print(time.process_time() - began)
"""
DIAGNOSE = """
import deeplin as dl
dl.diagnose(dl.Problem.from_data(X, y))
"""
SEARCH = """
from sklearn.model_selection import GridSearchCV
from deeplin import DeepLinearRegressor
search = GridSearchCV(DeepLinearRegressor(), {"depth": [2, 3]}, cv=3, n_jobs=2)
search.fit(X, y)
from joblib.externals.loky import get_reusable_executor
get_reusable_executor().shutdown(wait=True)
from resource import RUSAGE_CHILDREN, getrusage
used = getrusage(RUSAGE_CHILDREN)
print((used.ru_utime + used.ru_stime) / 2)
"""


def processor_seconds(code: str) -> float:
    """CPU seconds of a fresh Python with this code, and of the processes it waited for."""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=USUAL,
    )
    _, _, used = os.wait4(process.pid, 0)
    return used.ru_utime + used.ru_stime


def printed(code: str) -> float:
    """The number that a fresh Python prints."""
    call = [sys.executable, "-c", code]
    answer = subprocess.run(call, capture_output=True, text=True, env=USUAL)
    return float(answer.stdout)


def command(*words: str) -> str:
    return COMMAND.format(["deeplin", *words])


def measure() -> dict[str, dict]:
    codes = {
        "python with NumPy and typer": "import numpy, typer",
        "deeplin --help": command("--help"),
        "deeplin --version": command("--version"),
        "a wrong file name": command("diagnose", "nothing.csv", "--target", "y"),
        "import deeplin": "import deeplin",
        "first diagnose": DATA + DIAGNOSE,
    }
    measures = [lambda code=code: processor_seconds(code) for code in codes.values()]
    own = {"first fit": FIT, "a worker of a grid search": SEARCH}
    measures += [lambda code=code: printed(DATA + code) for code in own.values()]
    plain, *others = map(min, in_turns(measures, REPETITIONS))
    seconds = dict(zip([*codes, *own][1:], others, strict=True))
    against_python = {
        f"starting: {name} over Python with NumPy and typer": (seconds[name] / plain, 2.5)
        for name in ("deeplin --help", "deeplin --version", "a wrong file name")
    }
    alone = {
        f"starting: {name}, seconds of CPU": (seconds[name], target)
        for name, target in {
            "import deeplin": 1.0,
            "first fit": 2.0,
            "first diagnose": 2.0,
            "a worker of a grid search": 4.0,
        }.items()
    }
    details = {"python": plain} | seconds
    return {
        name: {"ratio": ratio, "target": target, "at_most": True, "details": details}
        for name, (ratio, target) in (against_python | alone).items()
    }
