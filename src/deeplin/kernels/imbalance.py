"""Differences of squares of neighboring layers (FM-L1), for many small matrices."""

import numba


@numba.njit(cache=True, nogil=True)
def subtract_squares(lower, upper, difference):
    """BᵀB − AAᵀ for each A and B: calls of BLAS take longer than the sums in so small matrices."""
    count, width, _ = difference.shape
    for b in range(count):
        for i in range(width):
            for j in range(i + 1):
                total = 0.0
                for k in range(upper.shape[1]):
                    total += upper[b, k, i] * upper[b, k, j]
                for k in range(lower.shape[2]):
                    total -= lower[b, i, k] * lower[b, j, k]
                difference[b, i, j] = difference[b, j, i] = total
