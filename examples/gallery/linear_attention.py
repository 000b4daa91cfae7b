"""
What does linear attention learn in context, and how fast may it be trained?
============================================================================

Linear attention with merged key and query is a two-layer linear network on cubic features of the
prompt (Zhang et al. 2025). So its least risk and its critical learning rate are exact.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

covariance = np.diag([0.4, 0.3, 0.2, 0.1])
problem = dl.problems.synthetic.linear_attention(covariance, context=31)
critical = dl.critical_learning_rate(problem, depth=2)
print(f"least risk with 31 examples in the prompt: {problem.minimal_risk:.8f}")
print(f"critical learning rate: {critical:.2f}")

# %%
# Eight heads (hidden units) from a small start, below and above the critical rate.
keys = jax.random.split(jax.random.key(0), 20)
networks = dl.initialize.gaussian(keys, widths=(16, 8, 1), scale=0.05)
fig, ax = plt.subplots(layout="constrained")
for share in (0.5, 0.95, 1.05):
    run = dl.gradient_descent(
        problem, networks, share * critical, 20_000, record_every=1, record=["risk"]
    )
    gap = np.median(run.evidence["gap"])
    print(f"{share} × critical: median risk above the least {gap:.1e}")
    ax.plot(run.records["step"] + 1, run.records["risk"].mean(axis=1), label=f"{share} × critical")

ax.axhline(problem.minimal_risk, color="black", linestyle=":", label="least risk")
ax.set(xlabel="step + 1", ylabel="risk, mean of 20 starts", xscale="log")
ax.legend()
plt.show()
