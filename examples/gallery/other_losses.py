"""
Does the critical learning rate exist for other losses?
=======================================================

Yes, for every convex loss of the output whose minimum is attained (X-14): S_min depends on the
curvature at the minimum only. Logistic, Poisson and Huber regression on the same inputs:
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

rng = np.random.default_rng(1)
X = rng.normal(size=(200, 5))
signal = X @ [1.0, -0.5, 0.5, 0.0, 0.2]
targets = {
    "squared": signal + rng.normal(size=200),
    "logistic": signal + rng.logistic(size=200) > 0,
    "poisson": rng.poisson(np.exp(signal / 2)),
    "huber": signal + rng.standard_t(2, size=200),
}
depth = 4
keys = jax.random.split(jax.random.key(0), 50)
networks = dl.initialize.gaussian(keys, widths=(5,) * depth + (1,), scale=0.4)

# %%
# Fifty networks at 0.5, 0.7, 0.9, 1.05 and 1.2 times the critical rate of their loss.
shares = np.array([0.5, 0.7, 0.9, 1.05, 1.2])
settled = {}
for loss, y in targets.items():
    problem = dl.Problem.from_data(X, y, loss=loss)
    critical = dl.critical_learning_rate(problem, depth)
    settled[loss] = [
        np.mean(dl.gradient_descent(problem, networks, s * critical, 5000).evidence["gap"] < 1e-6)
        for s in shares
    ]
    shown = " ".join(f"{value:.0%}" for value in settled[loss])
    print(f"{loss:8s} critical rate {critical:5.3f}; settled: {shown}")

fig, ax = plt.subplots(layout="constrained")
for (loss, values), size in zip(settled.items(), (13, 10, 7, 4), strict=True):
    ax.plot(shares, values, "o-", markersize=size, fillstyle="none", label=loss)
ax.axvline(1, color="black", linestyle=":", label="critical rate")
ax.set(xlabel="learning rate over the critical rate", ylabel="share of runs that settle")
ax.legend()
plt.show()
