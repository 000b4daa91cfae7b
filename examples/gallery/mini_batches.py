"""
How much smaller must the learning rate be with mini-batches?
=============================================================

On data that a network can fit exactly, noise shrinks near a minimum, but sampling still lowers the
largest stable rate. X-10 gives the exact limit in mean square for every batch size.
"""

import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 5))
problem = dl.Problem.from_data(X, X @ [1.0, -2.0, 0.5, 0.0, 1.5])  # no noise: R_min = 0
depth = 3
sizes = np.array([1, 2, 4, 8, 16, 40])
limits = [dl.critical_learning_rate(problem, depth, batch_size=int(size)) for size in sizes]
full = dl.critical_learning_rate(problem, depth)

# %%
# The answer.
print(f"full batch: critical rate {full:.4f}")
for size, limit in zip(sizes, limits, strict=True):
    print(f"batches of {size:2d}: critical rate {limit:.4f}, {limit / full:.2f} of the full batch")

fig, ax = plt.subplots(layout="constrained")
ax.plot(sizes, limits, "o-", label="batches (X-10), in mean square")
ax.axhline(full, color="black", linestyle=":", label="full batch, 2/S_min (X-2)")
ax.set(xlabel="batch size", ylabel="critical learning rate", xscale="log", ylim=(0, None))
ax.minorticks_off()
ax.set_xticks(sizes, [str(size) for size in sizes])
ax.legend()
plt.show()
