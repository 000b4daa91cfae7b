"""
How does the stable rate of LoRA depend on α and rank?
======================================================

Low-rank adaptation trains B and A in f(x) = W_0x + γBAx, with γ = α/r. For squared loss on a linear
layer the critical rate is 2/(γS_min) (X-34): it grows as r/α until r is the rank of the change
that is learned.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

rng = np.random.default_rng(0)
X = rng.normal(size=(500, 16)) * np.geomspace(1.5, 0.5, 16)
change = rng.normal(size=(8, 4)) @ rng.normal(size=(4, 16)) / 4  # rank 4: what is to be learned
problem = dl.Problem.from_data(X, X @ change.T)  # the targets minus W_0x
alpha, ranks = 8.0, [1, 2, 4, 8]

rates = [dl.critical_learning_rate(problem, 2, width=r, scale=alpha / r) for r in ranks]
for r, rate in zip(ranks, rates, strict=True):
    print(f"rank {r}: critical rate {rate:.5f}, times α/r {rate * alpha / r:.5f}")

# %%
# Descent on A and B from LoRA's start (B = 0): a step of η with γ is one of γη on √γA and √γB.
keys = jax.random.split(jax.random.key(1), 20)
for r, rate in zip(ranks, rates, strict=True):
    gamma = alpha / r
    network = dl.initialize.zero_layer(keys, widths=(16, r, 8), scale=0.3 * np.sqrt(gamma), layer=2)
    low, high = (
        dl.gradient_descent(problem, network, share * rate * gamma, 20_000).evidence["gap"]
        for share in (0.97, 1.03)
    )
    settled = [int(np.sum(gap < 1e-3)) for gap in (low, high)]
    print(f"rank {r}: {settled[0]} of 20 starts settle at 0.97 × critical, {settled[1]} at 1.03")

fig, ax = plt.subplots(layout="constrained")
ax.plot(ranks, rates, "o-", label="critical rate, α = 8")
ax.plot(ranks, rates[0] * np.array(ranks), ":", color="black", label="∝ r")
ax.set(xlabel="rank r", ylabel="learning rate", xscale="log", yscale="log")
ax.minorticks_off()
ax.set_xticks(ranks, [str(r) for r in ranks])
ax.set_yticks(rates, [f"{rate:.3f}" for rate in rates])
ax.legend()
plt.show()
