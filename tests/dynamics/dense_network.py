"""The oracle of the width-free tests: every layer in full, plain NumPy, layer by layer."""

from functools import reduce

import numpy as np
from scipy.integrate import solve_ivp


def product(weights):
    """W_L … W_1."""
    return reduce(lambda left, right: right @ left, weights)


def gradients(X, Y, weights):
    """∇_k of ‖Y − XΘ‖²/n by the chain rule over the samples."""
    activations = [X.T]
    for weight in weights:
        activations.append(weight @ activations[-1])
    error = 2 / len(X) * (activations[-1] - Y.T)
    slopes = []
    for weight, below in zip(reversed(weights), reversed(activations[:-1]), strict=True):
        slopes.append(error @ below.T)
        error = weight.T @ error
    return slopes[::-1]


def descend(X, Y, weights, rate, steps, momentum=0.0):
    """Heavy-ball descent on ‖Y − XΘ‖²/n."""
    weights = [np.array(weight) for weight in weights]
    speeds = [np.zeros_like(weight) for weight in weights]
    for _ in range(steps):
        for speed, weight, slope in zip(speeds, weights, gradients(X, Y, weights), strict=True):
            speed[:] = momentum * speed - rate * slope
            weight += speed
    return weights


def flow(X, Y, weights, time):
    """dW/dt = −∇R up to `time`, by a solver of another library."""
    shapes = [weight.shape for weight in weights]
    cuts = np.cumsum([weight.size for weight in weights])[:-1]

    def unflatten(state):
        parts = np.split(state, cuts)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def rate(_, state):
        return -np.concatenate([slope.ravel() for slope in gradients(X, Y, unflatten(state))])

    start = np.concatenate([np.asarray(weight).ravel() for weight in weights])
    solution = solve_ivp(rate, (0, time), start, method="DOP853", rtol=1e-12, atol=1e-14)
    return unflatten(solution.y[:, -1])
