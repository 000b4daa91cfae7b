"""
How singular is a deep linear network?
======================================

The learning coefficient (real log canonical threshold) says how fast the volume of parameters with
nearly minimal loss shrinks: volume(loss < ε) ~ ε^λ. For a regular model λ is half the number of
parameters; for deep linear networks it is known exactly and is far smaller (X-36).
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

# %%
# Exact values, as fractions: widths of the layers and rank of the true product.
for widths, rank in [((5, 3, 5), 0), ((10, 10, 10, 10), 4), ((784, 64, 10), 7)]:
    parameters = sum(a * b for a, b in pairwise(widths))
    value = dl.theory.learning_coefficient(widths, rank)
    print(f"widths {widths}, rank {rank}: λ = {value}, of {parameters} parameters")

# %%
# A check by counting: the share of random weights with ‖W_2W_1‖² < ε falls with slope λ.
rng = np.random.default_rng(0)
samples = 4_000_000
W1, W2 = rng.uniform(-1, 1, size=(2, samples))  # widths (1, 1, 1), rank 0
loss = np.sort((W1 * W2) ** 2)
epsilon = np.geomspace(1e-6, 1e-3, 20)
volume = np.searchsorted(loss, epsilon) / samples
exact = float(dl.theory.learning_coefficient((1, 1, 1), 0))
slope = np.polyfit(np.log(epsilon), np.log(volume / -np.log(epsilon)), 1)[0]
print(f"widths (1, 1, 1): λ = {exact}, counted {slope:.2f} (of ε^λ log(1/ε))")

depths = range(1, 9)
fig, ax = plt.subplots(layout="constrained")
for rank in (0, 1, 3):
    values = [dl.theory.learning_coefficient((5,) * (L + 1), rank) for L in depths]
    ax.plot(depths, [float(value) for value in values], "o-", label=f"rank {rank}")
ax.plot(depths, [25 * L / 2 for L in depths], "k:", label="half the number of parameters")
ax.set(xlabel="depth (width 5)", ylabel="learning coefficient λ", yscale="log")
ax.legend()
plt.show()
