"""Descent as one writes it first, in NumPy: the oracle of every threshold."""

import numpy as np


def gap_after(problem, network, rates, steps, *, momentum=0.0, nesterov=False, decay=0.0, seed=0):
    """‖X(Θ − Θ_0)‖²/n after some steps from a network moved by 1e-4, Θ_0 its map before."""
    X, Y = problem.inputs, problem.targets
    weights = [np.array(weight) for weight in network.weights]
    goal = product(weights)
    rng = np.random.default_rng(seed)
    weights = [weight + 1e-4 * rng.normal(size=weight.shape) for weight in weights]
    speed = [np.zeros_like(weight) for weight in weights]
    rates = np.broadcast_to(rates, len(weights))
    for _ in range(steps):
        at = weights
        if nesterov:
            at = [w + momentum * v for w, v in zip(weights, speed, strict=True)]
        slopes = gradients(at, X, Y, decay)
        speed = [momentum * v - rate * g for v, rate, g in zip(speed, rates, slopes, strict=True)]
        weights = [w + v for w, v in zip(weights, speed, strict=True)]
        moved = np.sum((X @ (product(weights) - goal).T) ** 2) / len(X)
        if not moved < 1e6:
            return np.inf
    return moved


def product(weights):
    """W_L…W_1."""
    theta = np.eye(weights[0].shape[1])
    for weight in weights:
        theta = weight @ theta
    return theta


def gradients(weights, X, Y, decay=0.0):
    """∇(‖Y − XΘᵀ‖²/n + λΣ‖W‖²), layer by layer."""
    hidden = [X.T]
    for weight in weights:
        hidden.append(weight @ hidden[-1])
    back = 2 * (hidden[-1] - Y.T) / len(X)
    slopes = []
    for weight, before in zip(reversed(weights), reversed(hidden[:-1]), strict=True):
        slopes.append(back @ before.T + 2 * decay * weight)
        back = weight.T @ back
    return slopes[::-1]
