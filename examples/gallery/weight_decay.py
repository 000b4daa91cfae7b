"""
When does weight decay set a deep network to zero?
==================================================

With a penalty λΣ‖W_k‖² the best network shrinks, and from depth 3 on it jumps to zero at a critical
λ (X-9). Training from a good minimum follows the formula.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

problem = dl.problems.synthetic.marion_chizat("linear").problem
depths = (1, 2, 3, 5)
critical = {L: float(dl.theory.critical_weight_decay(problem, L).value) for L in depths[1:]}
for L, value in critical.items():
    print(f"depth {L}: the best network is zero from weight decay {value:.3f} on")

# %%
# The norm of the best product against λ, in units of ‖w*‖.
decays = np.geomspace(0.02, 1, 400)
size = np.linalg.norm(problem.optimum)
norms = {
    L: [np.linalg.norm(dl.theory.decayed_minimum(problem, L, d).product) / size for d in decays]
    for L in depths
}

# %%
# The same by training at depth 3, from a start that is large enough.
tried = np.array([0.5, 0.8, 0.95]) * critical[3]
network = dl.initialize.gaussian(jax.random.key(0), widths=(5, 5, 5, 1), scale=0.5)
trained = []
for decay in tried:
    run = dl.gradient_descent(problem, network, 0.05, 20_000, weight_decay=float(decay))
    trained.append(np.linalg.norm(run.network.product) / size)
best = [dl.theory.decayed_minimum(problem, 3, float(d)) for d in tried]
expected = [np.linalg.norm(minimum.product) / size for minimum in best]
for decay, found, exact in zip(tried, trained, expected, strict=True):
    print(f"depth 3, weight decay {decay:.3f}: trained ‖w‖ {found:.6f}, exact {exact:.6f} of ‖w*‖")

fig, ax = plt.subplots(layout="constrained")
for L in depths:
    ax.plot(decays, norms[L], label=f"depth {L}")
ax.plot(tried, trained, "ko", label="trained, depth 3")
ax.set(xlabel="weight decay λ", ylabel="norm of the best map over ‖w*‖", xscale="log")
ax.legend()
plt.show()
