"""
Are deeper residual networks sharper?
=====================================

Layers near the identity: does the sharpness at the end of training grow with depth as S_min does?
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

problem = dl.problems.synthetic.marion_chizat("linear").problem
depths = [2, 5, 10, 20, 40]
readout = np.full(5, 1 / np.sqrt(5))
ends, minima = [], []
for depth in depths:
    keys = jax.random.split(jax.random.key(depth), 20)
    networks = dl.initialize.residual(keys, width=5, depth=depth, scale=0.25, readout=readout)
    run = dl.gradient_descent(problem, networks, 0.1 / depth, steps=4000)
    ends.append(dl.sharpness(problem, run.network).value)
    minima.append(dl.minimal_sharpness(problem, depth).exact)

# %%
# The answer: the ratio hardly depends on depth.
ratios = np.array(ends) / np.array(minima)[:, None]
for depth, ratio, least in zip(depths, ratios, minima, strict=True):
    mean, spread = ratio.mean(), ratio.std()
    print(f"depth {depth:2d}: S_min {least:6.2f}, trained {mean:.2f} ± {spread:.2f} times that")

fig, ax = plt.subplots(layout="constrained")
ax.errorbar(depths, np.mean(ends, axis=1), np.std(ends, axis=1), fmt="o-", label="trained")
ax.plot(depths, minima, "--", label="flattest minimizer, S_min")
ax.set(xlabel="depth", ylabel="sharpness (mean ± std)", yscale="log")
ax.legend()
plt.show()
