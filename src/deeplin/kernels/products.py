"""Products of small matrices of lanes, unrolled so that the result stays in registers.

A layer is m×n; m and n are the lengths of the tuples `tall` and `wide`: so they are part of a type,
and constants everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from deeplin.kernels.lanes import entry_pointer, intrinsic, vector_function

ROWS = 5
"""Rows of the data in one product: with width 5, 25 sums and 6 factors for 32 vector registers."""


@intrinsic
def apply_layer(typing_context, H, h, W, w, A, a, tall, wide) -> Any:
    """H = W A on `ROWS` rows; entry (i, j) of W is row j·m + i."""
    m, n = len(tall), len(wide)
    return _on_rows((H, h, W, w, A, a, tall, wide), (m, n), lambda i, j: j * m + i)


@intrinsic
def pull_back(typing_context, C, c, W, w, D, d, tall, wide) -> Any:
    """C ← Wᵀ D ∘ C on `ROWS` rows."""
    m, n = len(tall), len(wide)
    return _on_rows((C, c, W, w, D, d, tall, wide), (n, m), lambda i, j: i * m + j, scaled=True)


def _on_rows(kinds, shape: tuple[int, int], entry: Callable[[int, int], int], scaled: bool = False):
    """C_ri ← Σ_j M_ij B_rj on `ROWS` rows, times C_ri if `scaled`, with M_ij at `entry(i, j)`."""
    m, n = shape

    def build(context, builder, signature, arguments):
        C, M, B = _arrays(context, builder, signature, arguments[:-2])
        sums: dict[tuple[int, int], Any] = {}
        for j in range(n):
            factors = [M.read(entry(i, j)) for i in range(m)]
            for r in range(ROWS):
                number = B.read(r * n + j)
                for i in range(m):
                    if j:
                        sums[r, i] = _add_product(context, builder, factors[i], number, sums[r, i])
                    else:
                        sums[r, i] = builder.fmul(factors[i], number)
        for (r, i), total in sums.items():
            C.write(r * m + i, builder.fmul(total, C.read(r * m + i)) if scaled else total)
        return context.get_dummy_value()

    return types.none(*kinds), build


@intrinsic
def add_outer(typing_context, G, g, D, d, A, a, count, tall, wide) -> Any:
    """G + D Aᵀ, summed over `count` rows.

    A loop over the rows: written out, the compiler reads rows before there are registers for them.
    """
    m, n = len(tall), len(wide)

    def build(context, builder, signature, arguments):
        sums, left, right = _arrays(context, builder, signature, arguments[:6])
        held = [cgutils.alloca_once_value(builder, sums.read(entry)) for entry in range(m * n)]
        count = context.cast(builder, arguments[6], signature.args[6], types.intp)
        with cgutils.for_range(builder, count) as loop:
            above, below = (builder.mul(loop.index, loop.index.type(size)) for size in (m, n))
            errors = [left.read(i, above) for i in range(m)]
            for j in range(n):
                number = right.read(j, below)
                for error, total in zip(errors, held[j * m : (j + 1) * m], strict=True):
                    more = _add_product(context, builder, error, number, builder.load(total))
                    builder.store(more, total)
        for entry, total in enumerate(held):
            sums.write(entry, builder.load(total))
        return context.get_dummy_value()

    return types.none(G, g, D, d, A, a, count, tall, wide), build


def _add_product(context, builder, a, b, c):
    return vector_function("fmuladd")(context, builder, None, (a, b, c))


class _Lanes(NamedTuple):
    """Rows of lanes from one on, in code that is being built."""

    context: Any
    builder: Any
    kind: Any
    array: Any
    first: Any

    def _pointer(self, row: int, after: Any):
        place = self.builder.add(self.first, ir.Constant(self.first.type, row))
        if after is not None:
            place = self.builder.add(place, after)
        return entry_pointer(self.context, self.builder, self.kind, self.array, place)

    def read(self, row: int, after: Any = None):
        return self.builder.load(self._pointer(row, after), align=self.kind.dtype.bitwidth // 8)

    def write(self, row: int, lane: Any) -> None:
        self.builder.store(lane, self._pointer(row, None), align=self.kind.dtype.bitwidth // 8)


def _arrays(context, builder, signature, arguments) -> list[_Lanes]:
    """Arguments that are an array and a row in turn."""
    kinds = signature.args
    return [
        _Lanes(
            context,
            builder,
            kinds[k],
            arguments[k],
            context.cast(builder, arguments[k + 1], kinds[k + 1], types.intp),
        )
        for k in range(0, len(arguments), 2)
    ]
