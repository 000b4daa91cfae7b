"""
Why does sharpness rise early in training?
==========================================

From a small start the product of the layers grows, and with it the sharpness. For balanced
rank-one layers X-3 gives the sharpness (without the part of the residuals) as a function of the
product w alone. How much of the measured rise does this formula explain?
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

problem = dl.problems.synthetic.marion_chizat("linear").problem
depth = 5
network = dl.initialize.gaussian(jax.random.key(0), widths=(5,) * depth + (1,), scale=0.2)
record = ["sharpness", "gap", {"product": lambda network: network.product}]
run = dl.gradient_descent(problem, network, 0.02, steps=2000, record=record)

# %%
# The formula at each recorded product.
measured = run.records["sharpness"]
formula = np.array(
    [dl.theory.balanced_sharpness(problem, depth, at=w) for w in run.records["product"]]
)

# %%
# The answer. While the risk is large, the residuals add to the Hessian; at the end they do not.
gap = run.records["gap"] / run.records["gap"][0]
rising = (gap < 0.9) & (gap > 1e-3)
print(f"sharpness rises from {measured[0]:.3g} to {measured.max():.3g}")
print(f"while learning, the formula is {np.median(formula[rising] / measured[rising]):.2f} of it")
print(f"at the end, it is {formula[-1] / measured[-1]:.4f} of it")

steps = run.records["step"]
fig, ax = plt.subplots(layout="constrained")
ax.plot(steps, measured, label="measured sharpness")
ax.plot(steps, formula, "--", label="balanced layers with the same product (X-3)")
ax.set(xlabel="step", ylabel="sharpness", xlim=(0, 800), yscale="log")
ax.legend()
plt.show()
