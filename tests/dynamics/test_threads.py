"""Descents started by several threads at once end, on several devices too."""

import subprocess
import sys

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
