"""
Does depth help to complete a matrix?
=====================================

A matrix of rank 2 is observed at 40% of its entries. One layer leaves the hidden entries at their
start. Products of layers that start small prefer matrices of low rank, without any penalty.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

task = dl.problems.synthetic.matrix_completion(0, 20, 20, rank=2, share=0.4)
depths, final = (1, 2, 3), {}
fig, axes = plt.subplots(1, 2, figsize=(6.4, 4), layout="constrained")

# %%
# The loss is a function of the network; recorded quantities are functions of it, too.
record = {"product": lambda network: network.product, "error": task.error}
for depth, rate, scale in zip(depths, (20.0, 1.0, 0.5), (1e-3, 1e-3, 0.03), strict=True):
    network = dl.initialize.gaussian(jax.random.key(0), widths=(20,) * (depth + 1), scale=scale)
    run = dl.gradient_descent(task.loss, network, rate, 20_000, record=record)
    sizes = np.linalg.svd(run.records["product"][-1], compute_uv=False)
    final[depth] = run.records["error"][-1], task.loss(run.network)
    axes[0].plot(run.records["step"], run.records["error"], label=f"depth {depth}")
    axes[1].plot(range(1, 11), sizes[:10], "o-", label=f"depth {depth}")

# %%
# The answer: error on hidden entries, where predicting zero costs the mean square of the matrix.
zero = np.mean(task.truth[~task.observed] ** 2)
for depth, (error, loss) in final.items():
    print(f"depth {depth}: loss {loss:.1e}, hidden entries {error / zero:.3f} of predicting zero")

axes[0].axhline(zero, color="black", linestyle=":", label="predicting zero")
axes[0].set(xlabel="step", ylabel="error on hidden entries", yscale="log", xticks=[0, 20_000])
axes[1].set(xlabel="index", ylabel="singular value")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
plt.show()
