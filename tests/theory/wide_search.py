"""Search for counterexamples of X-27: gradient flows of many small networks from β = 0.

`python tests/theory/wide_search.py 10000` tries that many cases and prints the smallest margins.
The flows are integrated here, in NumPy, with a step of its own for each network.
"""

import sys

import numpy as np

from deeplin.theory.wide_networks import zero_last_modes

NODES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
"""Dormand and Prince's pair of orders 5 and 4."""


def rates(layers, R, Y):
    """−∇ of ‖R W_1ᵀ…W_Lᵀ − Y‖² for a batch, and the loss."""
    backward = [np.broadcast_to(np.eye(Y.shape[-1]), (len(Y), Y.shape[-1], Y.shape[-1]))]
    for layer in reversed(layers):
        backward.insert(0, layer.mT @ backward[0])
    error = R @ backward[0] - Y
    below, moves = -2 * R.mT @ error, []
    for k, layer in enumerate(layers):
        moves.append(backward[k + 1] @ below.mT)
        below = layer @ below
    return moves, np.sum(error**2, axis=(-2, -1))


@np.errstate(over="ignore", invalid="ignore")
def flow(layers, R, Y, *, share=1e-18, tolerance=1e-9, most=400):
    """The layers where the loss has fallen to `share` of its start, or after `most` steps."""
    moves, loss = rates(layers, R, Y)
    goal = share * loss
    h = 0.01 / np.maximum(1e-9, sum(np.sum(m**2, (-2, -1)) for m in moves)) ** 0.5
    for _ in range(most):
        running = loss > goal
        if not np.any(running):
            break
        stages, at = [moves], layers
        for row in NODES:
            at = [
                w
                + h[:, None, None] * sum(c * stage[k] for c, stage in zip(row, stages, strict=True))
                for k, w in enumerate(layers)
            ]
            stages.append(rates(at, R, Y)[0])
        gaps = [
            h[:, None, None] * sum(c * stage[k] for c, stage in zip(ERROR, stages, strict=True))
            for k in range(len(layers))
        ]
        wrong = np.sqrt(sum(np.sum(gap**2, (-2, -1)) for gap in gaps)) / tolerance
        wrong = np.nan_to_num(wrong, nan=np.inf)  # a step so long that it overflowed
        good = running & (wrong <= 1)
        layers = [np.where(good[:, None, None], new, w) for new, w in zip(at, layers, strict=True)]
        h = h * np.clip(0.9 * np.maximum(wrong, 1e-9) ** -0.2, 0.2, 5)
        moves, loss = rates(layers, R, Y)
    return layers


def margins(seed, cases):
    """Relative margins of both sides of X-27 for random problems of one random shape.

    ‖U‖² − v(σ_max²) and v(σ_min²) − ‖U‖², over v(σ_min²), with the singular values of W_1(t)ᵀU(t)
    on the data where the flow has come to: the two sides hold at every time.
    """
    rng = np.random.default_rng(seed)
    n, q, L = rng.integers(1, 4), rng.integers(1, 4), int(rng.integers(2, 6))
    m = n + rng.integers(0, 4)
    R, count = rng.normal(size=(cases, n, n)), cases
    Y = rng.normal(size=(count, n, q)) * rng.lognormal(0, 1, size=(count, 1, 1))
    first = rng.normal(size=(count, m, n)) * rng.lognormal(-0.5, 1, size=(count, 1, 1))
    first = first * rng.lognormal(0, 0.5, size=(count, 1, n))
    layers = [first, *[np.broadcast_to(np.eye(m), (count, m, m))] * (L - 2)]
    end = flow([*layers, np.zeros((count, q, m))], R, Y)
    above = end[-1].mT
    for layer in reversed(end[1:-1]):
        above = layer.mT @ above
    squares = np.sum(above**2, axis=(-2, -1))
    singular = np.linalg.svd(end[0].mT @ above, compute_uv=False)
    scales = np.linalg.svd(first, compute_uv=False)
    found = []
    for k in range(count):
        low, high = (np.sum(zero_last_modes(singular[k], z**2, L)) for z in scales[k, [0, -1]])
        found.append(((squares[k] - low) / high, (high - squares[k]) / high))
    return np.array(found)


if __name__ == "__main__":
    total, seed, worst = 0, 0, []
    while total < int(sys.argv[1]):
        part = margins(seed, 250)
        worst.append(part.min(axis=0))
        total, seed = total + len(part), seed + 1
    smallest = np.min(worst, axis=0)
    print(f"{total} flows of {seed} shapes: smallest margins {smallest[0]:.3g}, {smallest[1]:.3g}")
