"""Follow the sharpness of a PyTorch model through its own training loop.

    python examples/pytorch_sharpness.py

The loop is an ordinary PyTorch loop. Every few steps `deeplin.sharpness` computes the largest
eigenvalue of the Hessian of the same loss with PyTorch's own derivatives. The sharpness rises to
2/η, where full-batch descent is at the edge of stability.
"""

import numpy as np
import torch

import deeplin as dl

RATE, STEPS, EVERY = 0.1, 1000, 100


def data(rows=100, inputs=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, inputs)).astype(np.float32)
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.5 * X[:, 2]


def model(inputs, width=20, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, 1),
    )


def train(module, X, y, rate=RATE, steps=STEPS, every=EVERY):
    """The rows (step, loss, sharpness) of an ordinary training loop."""
    inputs, targets = torch.from_numpy(X), torch.from_numpy(y)[:, None]
    mean_squared_error = torch.nn.MSELoss()
    hessian_of = dl.TorchLoss(mean_squared_error, (inputs, targets))
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    for step in range(steps + 1):
        optimizer.zero_grad()
        loss = mean_squared_error(module(inputs), targets)
        if step % every == 0:
            yield step, loss.item(), dl.sharpness(hessian_of, module).value
        loss.backward()
        optimizer.step()


def main():
    X, y = data()
    print(f"2/η = {2 / RATE:.1f}\n step   loss     sharpness")
    for step, loss, sharpness in train(model(X.shape[1]), X, y):
        print(f"{step:5d}   {loss:.4f}   {sharpness:.2f}")


if __name__ == "__main__":
    main()
