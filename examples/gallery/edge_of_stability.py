"""
Where does sharpness go during training?
========================================

One network of depth 10 is trained at three learning rates, and the sharpness is measured at every
step. At a small rate it ends where the start leads. Where that is above 2/η, descent cannot stay:
the sharpness comes down to 2/η, the edge of stability, and swings around it.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

problem = dl.problems.synthetic.marion_chizat("linear").problem
network = dl.initialize.zero_layer(jax.random.key(0), widths=(5,) * 10 + (1,), scale=0.48)
critical = dl.critical_learning_rate(problem, depth=10)
shares = (0.3, 0.6, 0.7)
rates = np.array(shares) * critical

# %%
# One call trains all three. Every record has the sharpness with an error bound.
run = dl.gradient_descent(
    problem, network, rates, steps=600, record_every=1, record=["sharpness", "gap"]
)
sharpness = run.records["sharpness"]  # (steps + 1, 3)

# %%
# The answer: the mean over the last third of the steps, in units of 2/η.
late = sharpness[400:].mean(axis=0) * rates / 2
highest = sharpness.max(axis=0) * rates / 2
for share, rate, end, top in zip(shares, rates, late, highest, strict=True):
    print(f"η = {share} × critical = {rate:.4f}: highest {top:.2f}, at the end {end:.2f} times 2/η")

# %%
# Each rate has its own limit 2/η (dashed). No minimizer is flatter than S_min.
minimal = dl.minimal_sharpness(problem, depth=10).exact
fig, axes = plt.subplots(1, 3, figsize=(6.4, 4), layout="constrained", sharey=True)
for k, (ax, rate) in enumerate(zip(axes, rates, strict=True)):
    dl.plot.training(run[k], ax=ax).lines[0].set_linewidth(0.6)
    ax.axhline(minimal, color="black", linestyle=":", label="S_min")
    ax.set(title=f"η = {rate:.3f}", ylim=(0, 75), yscale="linear", xticks=[0, 300, 600])
    ax.get_legend().remove()
    ax.label_outer()
axes[0].set_ylabel("sharpness")
handles, _ = axes[0].get_legend_handles_labels()
names = ["along training", "limit of stability 2/η", "flattest minimizer, S_min"]
fig.legend(handles, names, loc="outside upper center", ncols=2)
plt.show()
