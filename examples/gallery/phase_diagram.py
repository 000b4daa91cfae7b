"""
Which depths and learning rates work for my table?
==================================================

Every cell is one setting, trained from five random starts. The critical learning rate (green) is
computed from the table before any training.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

import deeplin as dl

# %%
# Your own table goes here: standardized inputs, a standardized target.
X, y = load_diabetes(return_X_y=True)
X = StandardScaler().fit_transform(X)
y = (y - y.mean()) / y.std()
problem = dl.Problem.from_data(X, y)

# %%
# The picture, and the share of starts that settle below and above the critical rate at depth 4.
depth, starts = 4, 200
critical = dl.critical_learning_rate(problem, depth)
keys = jax.random.split(jax.random.key(1), starts)
networks = dl.initialize.gaussian(keys, widths=(10,) * depth + (1,), scale=0.2)
for share in (0.5, 0.9, 1.1):
    run = dl.gradient_descent(problem, networks, share * critical, steps=3000)
    settled = np.mean(run.evidence["gap"] < 1e-2)
    print(f"{share} × the critical rate {critical:.4f}: {settled:.0%} of {starts} starts settle")

dl.plot.phase(problem, depth=range(2, 8), scale=0.2, starts=5, steps=3000)
plt.show()
