"""Deep linear networks on one page: gradient descent, sharpness, and the flattest minimizer.

This file uses only NumPy, SciPy and plain loops, so that every formula is visible. The tests
compare each function with that of the library. Run it with `python examples/minimal.py`.
"""

import numpy as np
import scipy.optimize


def make_data(seed, n=50, d=5):
    """Gaussian inputs, noisy linear targets; the least-squares solution has norm 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=d) + rng.normal(size=n)
    return X, y / np.linalg.norm(np.linalg.lstsq(X, y)[0])


def make_weights(seed, scale, d=5, L=10):
    """L layers with Gaussian entries; the last one is a row: f(x) = W_L ... W_1 x is a number."""
    rng = np.random.default_rng(seed)
    return [scale * rng.normal(size=(d if k < L - 1 else 1, d)) for k in range(L)]


def chain(matrices, d):
    """The product of matrices applied one after the other (the identity for none)."""
    result = np.eye(d)
    for matrix in matrices:
        result = matrix @ result
    return result


def descent(X, y, weights, learning_rate, steps):
    """Gradient descent on R(W) = |y - X w|^2 / n, where w is the product of the layers."""
    n, d = X.shape
    weights = [W.copy() for W in weights]
    for _ in range(steps):
        w = chain(weights, d)[0]
        g = 2 / n * X.T @ (X @ w - y)  # gradient with respect to the product
        gradients = []
        for k in range(len(weights)):
            below = chain(weights[:k], d)  # W_{k-1} ... W_1
            above = chain(weights[k + 1 :], weights[k].shape[0])  # W_L ... W_{k+1}
            gradients.append(np.outer(above[0], below @ g))
        for W, gradient in zip(weights, gradients, strict=True):
            W -= learning_rate * gradient
    return weights


def sharpness_at_minimizer(X, weights):
    """Largest eigenvalue of the Hessian where the gradient of the product vanishes.

    There the Hessian is 2 J' S J, with S = X'X/n and J the derivative of the product w; its nonzero
    eigenvalues are those of the small matrix 2 S^(1/2) J J' S^(1/2).
    """
    n, d = X.shape
    S = X.T @ X / n
    K = np.zeros((d, d))
    for k in range(len(weights)):
        below = chain(weights[:k], d)
        above = chain(weights[k + 1 :], weights[k].shape[0])
        K += np.sum(above**2) * below.T @ below
    return np.linalg.eigvals(2 * S @ K).real.max()


def minimal_sharpness(X, y, L):
    """The smallest sharpness any minimizer of depth L can have: one scalar minimization."""
    n, d = X.shape
    S = X.T @ X / n
    w = np.linalg.lstsq(X, y)[0]

    def flattest(log_t):
        t = np.exp(log_t)
        K = t**2 * np.eye(d) + (L - 1) * t ** (-2 / (L - 1)) * np.outer(w, w)
        return np.linalg.eigvals(2 * S @ K).real.max()

    # Convex in log t, so that any scalar minimizer finds the global optimum.
    return scipy.optimize.minimize_scalar(flattest, bounds=(-5, 5), method="bounded").fun


if __name__ == "__main__":
    X, y = make_data(seed=0)
    flattest = minimal_sharpness(X, y, L=10)
    print(f"no minimizer is flatter than {flattest:.4f}: none is stable at learning rates")
    print(f"above {2 / flattest:.4f} = 2 / {flattest:.4f}\n")
    for learning_rate in (0.02, 0.07):
        trained = descent(X, y, make_weights(1, scale=0.35), learning_rate, steps=3000)
        residual = X.T @ (X @ chain(trained, 5)[0] - y)
        sharpness = sharpness_at_minimizer(X, trained)
        print(f"learning rate {learning_rate}: gradient {np.linalg.norm(residual):.1e},")
        print(f"sharpness {sharpness:.4f}, limit of stability {2 / learning_rate:.1f}")
