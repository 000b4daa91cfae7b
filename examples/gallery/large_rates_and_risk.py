"""
Do large learning rates reduce the risk?
========================================

With fewer samples than inputs, training never changes what the start adds in directions that the
data do not span. The upper layers multiply it, and their size is at most what the sharpness allows.
So a larger learning rate has a smaller bound on the added risk (X-35).
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

rng = np.random.default_rng(0)
d, n, depth = 20, 8, 3
truth = rng.normal(size=d) / np.sqrt(d)
X = rng.normal(size=(n, d))
problem = dl.Problem.from_data(X, X @ truth)
population = dl.Population(truth, np.ones(d), noise=0.0)
keys = jax.random.split(jax.random.key(0), 500)
starts = dl.initialize.gaussian(keys, widths=(d, 10, 10, 1), scale=0.3)

# %%
# The risk beyond that of the minimum-norm solution, its law, and its bound.
least = float(population.risk(problem.optimum))
rates = dl.critical_learning_rate(problem, depth) * np.array([0.02, 0.1, 0.3, 0.6])
measured, law, by_rate = [], [], []
for rate in rates:
    run = dl.gradient_descent(problem, starts, rate, int(60 / rate), gap=1e-10)
    done = run.status == "converged"
    added = dl.theory.added_risk(problem, run, population)
    excess = np.asarray(population.risk(run.network.product)) - least
    measured.append(excess[done].mean())
    law.append(added.law[done].mean())
    by_rate.append(np.mean(added.by_rate[done]))
    print(
        f"rate {rate:.4f}: {done.sum()} of {len(done)} settle, start adds {measured[-1]:.3f} ± "
        f"{excess[done].std() / np.sqrt(done.sum()):.3f} (law {law[-1]:.3f})"
    )

fig, ax = plt.subplots(layout="constrained")
ax.plot(rates, measured, "o", label="measured, mean of the runs that settle")
ax.plot(rates, law, "--", label="law (X-35)")
ax.plot(rates, by_rate, ":", label="bound by the learning rate (X-35)")
ax.set(xlabel="learning rate", ylabel="risk that the start adds", xscale="log", yscale="log")
ax.legend()
plt.show()
