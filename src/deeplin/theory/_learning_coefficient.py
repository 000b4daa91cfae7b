"""The learning coefficient of deep linear networks (X-36)."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations

from deeplin.errors import InputError, whole_number


def learning_coefficient(widths: Iterable[int], rank: int) -> Fraction:
    """Return the real log canonical threshold λ of a deep linear network (X-36, Aoyagi 2024).

    The volume of parameters whose loss is within ε of its minimum behaves as ε^λ, up to powers of
    log ε. With M_i = d_i − r in ascending order, take the smallest prefix of ℓ + 1 ≥ 2 values whose
    sum S satisfies S ≥ ℓ·max and S < ℓ·(next value); let a = S − (⌈S/ℓ⌉ − 1)ℓ. Then
    λ = ½(r(d_0 + d_N) − r²) + a(ℓ − a)/(4ℓ) − ¼ℓ(ℓ − 1)(S/ℓ)² + ½Σ_{i<j} M_iM_j over the prefix.

    Args:
        widths: the widths d_0, …, d_N of the layers, inputs and outputs included.
        rank: the rank r of the true product.

    Returns:
        λ as an exact fraction, for the mean loss (of a Gaussian model: the mean log loss).

    ```python
    import deeplin as dl
    assert dl.theory.learning_coefficient((5, 3, 5), rank=0) == 6.5
    assert dl.theory.learning_coefficient((10, 10, 10, 10), rank=4) == 44
    ```

    References:
        Aoyagi (2024), *Consideration on the learning efficiency of multiple-layered neural networks
        with linear units*; Lehalleur and Rimányi (2024), *Geometry of fibers of the multiplication
        map of deep linear neural networks*.
    """
    sizes = [whole_number("widths", width, minimum=1) for width in widths]
    r = whole_number("rank", rank, minimum=0)
    if len(sizes) < 2:
        raise InputError(f"widths has {len(sizes)} entries; pass those of inputs and outputs too.")
    if r > min(sizes):
        raise InputError(f"rank is {r}; pass at most {min(sizes)}, the smallest width.")
    excess = sorted(size - r for size in sizes)
    prefixes = (excess[:count] for count in range(2, len(excess) + 1))
    prefix = next(
        prefix
        for prefix in prefixes
        if sum(prefix) >= (len(prefix) - 1) * prefix[-1]
        and (prefix == excess or sum(prefix) < (len(prefix) - 1) * excess[len(prefix)])
    )
    ell, total = len(prefix) - 1, sum(prefix)
    a = total - (-(-total // ell) - 1) * ell
    pairs = sum(x * y for x, y in combinations(prefix, 2))
    return (
        Fraction(r * (sizes[0] + sizes[-1]) - r * r, 2)
        + Fraction(a * (ell - a), 4 * ell)
        - Fraction((ell - 1) * total * total, 4 * ell)
        + Fraction(pairs, 2)
    )
