"""
What does a wide network keep of its start?
===========================================

Directions that the data never touch are not trained. What a network of width m has there at the
end was there at the start, multiplied by what the upper layers became. X-25 to X-30 give its mean
without a simulation; networks of a million units are simulated at the cost of a narrow one.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

data = dl.problems.synthetic.spiked(0, 200, samples=30, outputs=1, noise=0.1)
problem, population = data.problem, dl.Population(data.truth, data.spectrum, noise=0.1)
widths = [100, 1_000, 10_000, 100_000, 1_000_000]
alpha, beta, depth = 0.01, 1.0, 3

# %%
# Twenty starts of each width, and the law.
added, law = [], []
least = float(population.risk(problem.optimum))
for width in widths:
    keys = jax.random.split(jax.random.key(0), 20)
    run = dl.simulate_wide(
        problem, width, depth, alpha, beta, keys, stable_share=0.5, population=population
    )
    added.append(np.asarray(population.risk(run.theta)) - least)
    law.append(dl.theory.wide_law(problem, width, depth, alpha, beta, population).added_risk)

# %%
# The answer.
for width, measured, expected in zip(widths, added, law, strict=True):
    error = measured.std(ddof=1) / np.sqrt(len(measured))
    print(f"width {width:9,d}: added risk {measured.mean():.4f} ± {error:.4f}, law {expected:.4f}")

fig, ax = plt.subplots(layout="constrained")
ax.errorbar(
    widths, np.mean(added, axis=1), np.std(added, axis=1), fmt="o", label="20 starts (± std)"
)
ax.plot(widths, law, "--", label="law (X-25)")
ax.set(xlabel="width", ylabel="risk that the start adds", xscale="log", yscale="log")
ax.legend()
plt.show()
