"""
How fast can a linear autoencoder be trained?
=============================================

For inputs with largest covariance eigenvalue Λ and L layers the critical learning rate is 1/(LΛ),
whatever the bottleneck (X-34). Here with the handwritten digits of scikit-learn.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import deeplin as dl

X = load_digits().data / 16
X = X - X.mean(axis=0)
problem = dl.Problem.from_data(X, X)
width, depth = 10, 2

critical = dl.critical_learning_rate(problem, depth, width=width)
print(f"critical rate {critical:.4f}, 1/(LΛ) = {1 / (depth * problem.largest_eigenvalue):.4f}")

# %%
# The reachable risk is what the first ten principal components leave over.
best, reachable = problem.best_of_rank(width)
print(f"reachable risk with {width} hidden units: {reachable:.4f}")

# %%
# Ten random starts, just below and just above the critical rate.
keys = jax.random.split(jax.random.key(0), 10)
starts = dl.initialize.gaussian(keys, widths=(64, width, 64), scale=0.05)
fig, ax = plt.subplots(layout="constrained")
for share in (0.97, 1.03):
    run = dl.gradient_descent(problem, starts, share * critical, 6000, record=["gap"])
    gap = np.median(run.records["gap"], axis=1)
    print(f"{share} × critical: median risk {gap[-1]:.1e} above the reachable one at the end")
    ax.plot(run.records["step"] + 1, gap, label=f"{share} × critical")
ax.set(xlabel="step + 1", ylabel="risk above the reachable one")
ax.set(xscale="log", yscale="log")
ax.legend(title="median of 10 starts")
plt.show()
