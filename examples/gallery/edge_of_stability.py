"""
Where does sharpness go during training?
========================================

Networks of depth 10 are trained at three learning rates, and the sharpness is measured at every
step. It rises until it reaches 2/η and then stays there: the learning rate decides where training
ends, not the start.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

problem = dl.problems.synthetic.marion_chizat("linear").problem
network = dl.initialize.zero_layer(jax.random.key(0), widths=(5,) * 10 + (1,), scale=0.48)
critical = dl.critical_learning_rate(problem, depth=10)
shares = (0.3, 0.5, 0.8)
rates = np.array(shares) * critical

# %%
# One call trains all three. Every record has the sharpness with an error bound.
run = dl.gradient_descent(
    problem, network, rates, steps=600, record_every=1, record=["sharpness", "gap"]
)
sharpness = run.records["sharpness"]  # (steps + 1, 3)

# %%
# The answer: the mean over the last third of the steps, in units of 2/η.
late = sharpness[400:].mean(axis=0) * rates / 2
highest = sharpness.max(axis=0) * rates / 2
for share, rate, end, top in zip(shares, rates, late, highest, strict=True):
    print(f"η = {share} × critical = {rate:.4f}: highest {top:.2f}, at the end {end:.2f} times 2/η")

# %%
# Every curve has its own limit 2/η (dashed). None of them can end below S_min.
ax = dl.plot.training(run)
minimal = dl.minimal_sharpness(problem, depth=10).exact
ax.axhline(minimal, color="black", linestyle=":", label=f"S_min = {minimal:.3g}")
ax.legend()
plt.show()
