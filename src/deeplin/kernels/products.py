"""Products of small matrices of lanes, unrolled so that the result stays in registers.

C_ir ← Σ_j A_ij B_jr for square A of the size of a layer and `ROWS` rows of the data. The size of
the layer is the length of the tuple `size`: so it is part of a type, and a constant everywhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from deeplin.kernels.lanes import entry_pointer, intrinsic, vector_function

ROWS = 5
"""Rows of the data in one product: with width 5, 20 sums and 4 factors for 32 vector registers."""


class _Matrix(NamedTuple):
    """Where entry (i, j) of a matrix is: i·down + j·across after its first row of lanes."""

    down: int
    across: int


@intrinsic
def apply_layer(typing_context, C, c, W, w, A, a, size) -> Any:
    """H = W A on `ROWS` rows; entry (i, j) of W is row j·m + i."""
    m = len(size)
    return _product((C, c, W, w, A, a, size), m, m, _Matrix(1, m), _Matrix(1, m), False)


@intrinsic
def pull_back(typing_context, C, c, W, w, D, d, S, s, size) -> Any:
    """Wᵀ D ∘ S on `ROWS` rows."""
    m = len(size)
    return _product((C, c, W, w, D, d, S, s, size), m, m, _Matrix(m, 1), _Matrix(1, m), False)


@intrinsic
def add_outer(typing_context, G, g, D, d, A, a, size, rows) -> Any:
    """G + D Aᵀ, summed over as many rows as the tuple `rows` has entries."""
    m, n = len(size), len(rows)
    return _product((G, g, D, d, A, a, size, rows), n, m, _Matrix(1, m), _Matrix(m, 1), True)


def _product(kinds, terms: int, m: int, left: _Matrix, right: _Matrix, add: bool):
    """C (+)= A B with m×`terms` A, times S entry by entry; C and S have entry (i, r) at i + r·m."""
    columns, scaled = m if add else ROWS, not add and len(kinds) > 7

    def build(context, builder, signature, arguments):
        def place(which: int, offset: int):
            array, row = arguments[2 * which], arguments[2 * which + 1]
            row_type = signature.args[2 * which + 1]
            row = context.cast(builder, row, row_type, types.intp)
            row = builder.add(row, ir.Constant(row.type, offset))
            return entry_pointer(context, builder, signature.args[2 * which], array, row)

        align = kinds[0].dtype.bitwidth // 8

        def read(which: int, offset: int):
            return builder.load(place(which, offset), align=align)

        multiply_add = vector_function("fmuladd")
        cells = [(i, r) for r in range(columns) for i in range(m)]
        sums: dict[tuple[int, int], Any] = {}
        for j in range(terms):
            first = [read(1, i * left.down + j * left.across) for i in range(m)]
            for r in range(columns):
                second = read(2, j * right.down + r * right.across)
                for i in range(m):
                    if (i, r) in sums:
                        factors = (first[i], second, sums[i, r])
                        sums[i, r] = multiply_add(context, builder, None, factors)
                    else:
                        sums[i, r] = builder.fmul(first[i], second)
        for i, r in cells:
            entry = sums[i, r]
            if scaled:
                entry = builder.fmul(entry, read(3, i + r * m))
            if add:  # at the end: additions take other units than the products before them
                entry = builder.fadd(entry, read(0, i + r * m))
            builder.store(entry, place(0, i + r * m), align=align)
        return context.get_dummy_value()

    return types.none(*kinds), build
