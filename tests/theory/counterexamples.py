"""Random search for counterexamples to X-18 and X-19, in NumPy alone.

`python tests/theory/counterexamples.py --cases 10000` prints the smallest margins; the tests run
fewer cases of the same search.
"""

import argparse
from itertools import pairwise

import numpy as np

from deeplin.theory.brackets import worst_sharpness_ratio

DEPTHS = (2, 3, 4, 6, 10, 30)
GOLDEN = (np.sqrt(5) - 1) / 2


def top(matrices):
    return np.linalg.eigvalsh(matrices)[..., -1]


def brackets(cases, seed):
    """The smallest relative margin of each inequality of X-18, and the largest S_bal/S_min ÷ R.

    Spectra are log-uniform over up to eight decades and w* leans to either end: the worst cases are
    nearly degenerate. S_min by golden section over t with dense eigenvalues.
    """
    rng = np.random.default_rng(seed)
    margins = dict.fromkeys(["S_min lower", "S_min upper", "S_bal lower", "S_bal upper"], np.inf)
    worst, count = 0.0, cases // len(DEPTHS)
    for L in DEPTHS:
        d = int(rng.integers(2, 6))
        spectrum = np.exp(rng.uniform(-1, 1, (count, d)) * rng.uniform(0, 9, (count, 1)))
        lean = rng.uniform(-1, 1, (count, 1))
        w = rng.normal(size=(count, d)) * spectrum**lean
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        b = np.sqrt(spectrum) * w
        a, Lambda = np.sum(b**2, axis=1), spectrum.max(axis=1)
        diagonal, update = np.eye(d) * spectrum[:, None], b[:, :, None] * b[:, None, :]

        def sharpness(tau, diagonal=diagonal, update=update, L=L):
            first, second = np.exp(tau), (L - 1) * np.exp(-tau / (L - 1))
            return top(first[:, None, None] * diagonal + second[:, None, None] * update)

        low, high = np.full(count, -60.0), np.zeros(count)  # above t = 1 both terms grow
        for _ in range(75):
            left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
            below = sharpness(left) < sharpness(right)
            low, high = np.where(below, low, left), np.where(below, right, high)
        least = sharpness((low + high) / 2)
        balanced = top(diagonal + (L - 1) * update)
        c = np.maximum(Lambda / a, 1)
        G = np.where(c <= L, L, c * ((L - 1) / np.maximum(c - 1, 1e-300)) ** ((L - 1) / L))
        found = {
            "S_min lower": least / (a * G) - 1,
            "S_min upper": L * a * c ** (1 / L) / least - 1,
            "S_bal lower": balanced / np.maximum(L * a, Lambda) - 1,
            "S_bal upper": (Lambda + (L - 1) * a) / balanced - 1,
        }
        margins = {name: min(margins[name], found[name].min()) for name in margins}
        worst = max(worst, np.max(balanced / least / worst_sharpness_ratio(L, c)))
    return margins, worst


def chain(weights):
    """V_k = W_{k+1}ᵀ…W_Lᵀ, k = 0 … L, of one-output networks with a leading batch axis."""
    found = [np.ones((len(weights[0]), 1, 1))]
    for weight in reversed(weights):
        found.append(weight.transpose(0, 2, 1) @ found[-1])
    return found[::-1]


def velocity(weights, covariance, optimum):
    backward = chain(weights)
    forward = 2 * covariance @ (backward[0] - optimum)
    moves = []
    for weight, v in zip(weights, backward[1:], strict=True):
        moves.append(-v @ forward.transpose(0, 2, 1))
        forward = weight @ forward
    return moves


def conserved(weights):
    return [
        lower @ lower.transpose(0, 2, 1) - upper.transpose(0, 2, 1) @ upper
        for lower, upper in pairwise(weights)
    ]


def along_the_flow(cases, seed, steps=1000, step=0.02):
    """The smallest margins of X-19 along gradient flow, by RK4, relative to max(σ², r + 2Δ).

    Starts of every size, with a zero layer or without, on data of full rank or not. The margin is
    counted from what the integration conserves: its drift of the differences is added to Δ.
    """
    rng = np.random.default_rng(seed)
    margins = {"σ² and x": np.inf, "S/S_bal": np.inf}
    for L in (2, 3, 4, 5):
        count, d = cases // 4, int(rng.integers(2, 4))
        root = rng.normal(size=(count, d, d)) * rng.uniform(0.2, 1, (count, d, 1))
        root[: count // 4, 0] = 0  # singular data
        covariance = root.transpose(0, 2, 1) @ root
        covariance /= top(covariance)[:, None, None]
        optimum = rng.normal(size=(count, d, 1))
        optimum *= np.exp(rng.uniform(-2, 0.4, (count, 1, 1))) / np.linalg.norm(
            optimum, axis=1, keepdims=True
        )
        scale = np.exp(rng.uniform(-5, -0.5, (L, count, 1, 1)))
        weights = [s * rng.normal(size=(count, d, d)) for s in scale]
        weights[-1] = weights[-1][:, :1]
        weights[0][::2] = 0
        initial = [w.copy() for w in weights]
        start = conserved(initial)
        Delta0 = sum(np.linalg.norm(D, 2, axis=(1, 2)) for D in start)
        sizes = np.stack([np.sum(w**2, axis=(1, 2)) for w in initial], axis=1)
        extra = np.max(sizes - sizes[:, -1:], axis=1)
        for now in range(steps):
            stages = [velocity(weights, covariance, optimum)]
            for share in (0.5, 0.5, 1.0):
                moved = zip(weights, stages[-1], strict=True)
                probe = [w + share * step * k for w, k in moved]
                stages.append(velocity(probe, covariance, optimum))
            combined = zip(weights, *stages, strict=True)
            weights = [w + step / 6 * (a + 2 * b + 2 * c + e) for w, a, b, c, e in combined]
            if now % 100 and now != steps - 1:
                continue
            drifts = zip(conserved(weights), start, strict=True)
            drift = sum(np.linalg.norm(D - D0, 2, axis=(1, 2)) for D, D0 in drifts)
            Delta, omega = Delta0 + drift, Delta0 + extra + 2 * drift
            backward = chain(weights)
            w = backward[0][..., 0]
            ends = np.stack([np.sum(v**2, axis=(1, 2)) for v in backward], axis=1)
            r = ends[:, 0] ** (1 / L)
            squares = np.stack([np.linalg.norm(W, 2, axis=(1, 2)) ** 2 for W in weights], axis=1)
            known = ends[:, 1:] > 0
            x = np.divide(ends[:, :-1], ends[:, 1:], out=r[:, None] + 0 * squares, where=known)
            scale_of = np.maximum(squares, (r + 2 * Delta)[:, None])
            for quantity in (squares, x):
                margin = 2 * Delta[:, None] - np.abs(quantity - r[:, None])
                margins["σ² and x"] = min(margins["σ² and x"], np.min(margin / scale_of))
            delta = 2 * Delta / np.maximum(r, 1e-300)
            small = delta < 1
            prefix, K = np.broadcast_to(np.eye(d), (count, d, d)), np.zeros((count, d, d))
            for k, W in enumerate(weights):
                K = K + ends[:, k + 1, None, None] * prefix.transpose(0, 2, 1) @ prefix
                prefix = W @ prefix
            direction = w / np.sqrt(np.maximum(ends[:, :1], 1e-300))
            flat = np.eye(d) + (L - 1) * direction[:, :, None] * direction[:, None, :]
            flat = r[:, None, None] ** (L - 1) * flat
            values = [np.linalg.eigvals(covariance @ M).real.max(axis=1) for M in (K, flat)]
            ratio = values[0] / values[1]
            rest = 1 + (L - 1) * omega / (r + 2 * Delta)
            with np.errstate(all="ignore"):
                low = np.minimum((1 - delta) ** (L - 1), 1 / (1 + delta))
                high = np.maximum((1 + delta) ** (L - 1) * rest, 1 / (1 - delta))
            if small.any():
                both = np.minimum(ratio / low - 1, high / ratio - 1)[small]
                margins["S/S_bal"] = min(margins["S/S_bal"], both.min())
    return margins


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    margins, worst = brackets(options.cases, options.seed)
    print("X-18", margins, "largest ratio over the worst", worst)
    print("X-19", along_the_flow(options.cases, options.seed))
