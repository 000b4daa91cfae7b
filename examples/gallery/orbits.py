"""
What happens above the critical learning rate?
==============================================

A balanced mode with target σ does not diverge at the critical rate: it swings between two values.
The orbit has a closed form (X-12), and so has the rate at which its period doubles (X-37).
"""

import matplotlib.pyplot as plt
import numpy as np

import deeplin as dl

target, depth = 10.0, 3
critical = 2 / (depth * target ** (2 - 2 / depth))  # of the loss ½(x^L − σ)²
doubling = dl.theory.first_doubling(target, depth, curvature=0.5)
rates = np.linspace(0.95 * critical, 1.15 * doubling, 300)


# %%
# Gradient descent on one mode, all rates at once: x is the weight that the layers share.
def iterates(rates, settling=2000, shown=64):
    x = np.full(len(rates), 1.01 * target ** (1 / depth))
    products = []
    for step in range(settling + shown):
        if step >= settling:
            products.append(x**depth)
        x = x + rates * (target - x**depth) * x ** (depth - 1)
    return np.array(products)


products = iterates(rates)
orbits = [dl.theory.balanced_orbit(target, depth, rate, curvature=0.5) for rate in rates]

# %%
# The answer: how far the formula is from the iterates, between the critical rate and the doubling.
two = (rates > 1.001 * critical) & (rates < 0.999 * doubling)
highest = np.array([max(orbit.products) if orbit else np.nan for orbit in orbits])
error = np.abs(products.max(axis=0) - highest)[two].max()
print(f"critical rate {critical:.6f}, first doubling {doubling:.7f}")
print(f"the orbit's formula and {two.sum()} simulated rates differ by at most {error:.1e}")

fig, ax = plt.subplots(layout="constrained")
ax.plot(rates, products.T, ".", color="tab:blue", markersize=0.7)
ax.plot([], [], "o", color="tab:blue", markersize=3, label="iterates")
for low_or_high in (min, max):
    values = [low_or_high(orbit.products) if orbit else np.nan for orbit in orbits]
    ax.plot(rates, values, "--", color="tab:green")
ax.plot([], [], "--", color="tab:green", label="orbit of period two (X-12)")
ax.axvline(critical, color="black", label="critical rate")
ax.axvline(doubling, color="black", linestyle=":", label="first doubling (X-37)")
ax.set(xlabel="learning rate", ylabel="product of the weights")
fig.legend(loc="outside upper center", ncols=2)
plt.show()
