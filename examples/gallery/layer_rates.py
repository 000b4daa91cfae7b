"""
Do different learning rates for different layers help?
======================================================

With one rate for each layer, only their geometric mean decides whether a minimizer is stable
(X-11): a rate ten times larger in one layer and ten times smaller in another changes nothing.
"""

import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

problem = dl.problems.synthetic.marion_chizat("linear").problem
depth = 3
critical = dl.critical_learning_rate(problem, depth)

# %%
# The smallest preconditioned sharpness, for rates with the same geometric mean.
ratios = np.geomspace(0.01, 100, 41)
sharpness = [
    dl.theory.layerwise_sharpness(problem, critical * np.array([ratio, 1.0, 1 / ratio]))
    for ratio in ratios
]
print(f"critical rate with one rate for all layers: {critical:.4f}")
print(f"stable up to a value of 2; found {min(sharpness):.9f} to {max(sharpness):.9f}")

# %%
# Changing the geometric mean does matter: the value is proportional to it.
means = np.linspace(0.2, 1.5, 14)
scaled = [
    dl.theory.layerwise_sharpness(problem, mean * critical * np.array([10.0, 1.0, 0.1]))
    for mean in means
]

fig, axes = plt.subplots(1, 2, figsize=(6.4, 4), layout="constrained", sharey=True)
axes[0].plot(ratios[::4], sharpness[::4], "o", label="rates r : 1 : 1/r")
axes[0].set(xlabel="ratio r", xscale="log", ylim=(0, 3.2))
axes[0].set_ylabel("preconditioned sharpness")
axes[1].plot(means, scaled, "o-", label="rates 10 : 1 : 0.1")
axes[1].set(xlabel="mean / critical rate")
for ax in axes:
    ax.axhline(2, color="black", linestyle=":", label="limit")
    ax.legend(loc="lower right")
plt.show()
