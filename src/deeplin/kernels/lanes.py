"""A number type for numba that holds one value for each of several networks.

A `Lane` is a small vector of floats; arithmetic on lanes acts on every entry alike and compiles to
the vector instructions of the machine. A kernel written with lanes reads like the formula for one
network and trains `LANES` of them. Entries never mix: a NaN stays in its own network, and a
network's result does not depend on its neighbours, to the last bit.

Arrays of lanes are C-contiguous with last axis `LANES`; `load(array, row)` and `store` see them as
a flat sequence of rows, without checking bounds.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core.typing import templates
from numba.core.typing.templates import signature as typed_as
from numba.extending import models

# Their decorated functions are called from compiled code, with other arguments than Python sees.
intrinsic: Any = extending.intrinsic
infer_global: Any = templates.infer_global

LANES = 8
"""Networks in a lane: two AVX2 registers, or one AVX-512 register, of float64."""


class Lane(types.Type):
    """The numba type of a lane of float32 or float64."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Lane({dtype}, {LANES})")


@extending.register_model(Lane)
class _LaneModel(models.PrimitiveModel):
    def __init__(self, manager, lane):
        scalar = manager.lookup(lane.dtype).get_value_type()
        super().__init__(manager, lane, ir.VectorType(scalar, LANES))


# --- memory ----------------------------------------------------------------------------------


@intrinsic
def load(typing_context, array, row) -> Any:
    """The lane at `row`."""

    def build(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature, arguments)
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return Lane(array.dtype)(array, row), build


@intrinsic
def store(typing_context, array, row, lane) -> Any:
    """Write a lane to `row`."""

    def build(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature, arguments)
        builder.store(arguments[2], pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.none(array, row, lane), build


def _pointer(context, builder, signature, arguments):
    array_type, row_type = signature.args[:2]
    row = context.cast(builder, arguments[1], row_type, types.intp)
    return entry_pointer(context, builder, array_type, arguments[0], row)


def entry_pointer(context, builder, array_type, array, row):
    """Where the lane at `row` (a machine integer) is in memory."""
    vector = context.get_value_type(Lane(array_type.dtype))
    view = context.make_array(array_type)(context, builder, array)
    entry = builder.gep(view.data, [builder.mul(row, ir.Constant(row.type, LANES))])
    return builder.bitcast(entry, vector.as_pointer())


@intrinsic
def fill(typing_context, like, number) -> Any:
    """The lane with `number` in every entry, of the type of the lane or array `like`."""
    lane = Lane(like.dtype)

    def build(context, builder, signature, arguments):
        scalar = context.cast(builder, arguments[1], signature.args[1], lane.dtype)
        vector = context.get_value_type(lane)
        index = ir.IntType(32)
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, index(0))
        return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(index, LANES), None))

    return lane(like, number), build


# --- arithmetic ------------------------------------------------------------------------------


def _arithmetic(symbol, instruction: str) -> None:
    """Let an operator of Python act on two lanes of one type.

    Lowered directly rather than through `overload`, which would compile a function for each use
    and multiply the time to compile a kernel.
    """

    @infer_global(symbol)
    class _Typing(templates.AbstractTemplate):
        def generic(self, args, kws):
            left, right = args
            if isinstance(left, Lane) and left == right:
                return typed_as(left, left, left)

    @extending.lower_builtin(symbol, Lane, Lane)
    def _lower(context, builder, signature, arguments):
        return getattr(builder, instruction)(*arguments)


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")
_arithmetic(operator.truediv, "fdiv")


@intrinsic
def multiply_add(typing_context, a, b, c) -> Any:
    """a·b + c, rounded once where the machine can."""
    return a(a, b, c), vector_function("fmuladd")


@intrinsic
def square_root(typing_context, a) -> Any:
    """√a."""
    return a(a), vector_function("sqrt")


def vector_function(name: str):
    """A lowering to the vector form of an LLVM function of lanes."""

    def build(context, builder, signature, arguments):
        vector = arguments[0].type
        kind = "f32" if isinstance(vector.element, ir.FloatType) else "f64"
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(vector, [vector] * len(arguments)),
            f"llvm.{name}.v{LANES}{kind}",
        )
        return builder.call(function, arguments)

    return build


@intrinsic
def choose_less(typing_context, a, b, yes, no) -> Any:
    """In each entry `yes` where a < b, else (NaN included) `no`."""

    def build(context, builder, signature, arguments):
        a, b, yes, no = arguments
        return builder.select(builder.fcmp_ordered("<", a, b), yes, no)

    return yes(a, b, yes, no), build


@intrinsic
def any_outside(typing_context, value, low, high) -> Any:
    """Whether some entry fails low < value ≤ high, as NaN does."""

    def build(context, builder, signature, arguments):
        value, low, high = arguments
        below = builder.fcmp_unordered("<=", value, low)
        above = builder.fcmp_unordered(">", value, high)
        mask = builder.bitcast(builder.or_(below, above), ir.IntType(LANES))
        return builder.icmp_unsigned("!=", mask, mask.type(0))

    return types.boolean(value, low, high), build


@intrinsic
def nearest_power(typing_context, x, factor) -> Any:
    """The whole number k nearest to x·factor, as a float, and 2^k; both must be normal numbers.

    Adding 1.5·2^m, with m bits of mantissa, rounds to a whole number and leaves it in the lowest
    bits of the sum; from there it moves to the exponent of the floating-point number 1.0.
    """
    bits = x.dtype.bitwidth
    mantissa = np.finfo(f"float{bits}").nmant
    one = int(np.ones(1, f"float{bits}").view(f"int{bits}")[0])
    pair = types.UniTuple(x, 2)

    def build(context, builder, signature, arguments):
        floats, integers = arguments[0].type, ir.VectorType(ir.IntType(bits), LANES)
        shift = ir.Constant(floats, [1.5 * 2.0**mantissa] * LANES)
        rounded = vector_function("fmuladd")(context, builder, signature, (*arguments, shift))
        low_bits = builder.bitcast(rounded, integers)
        moved = builder.shl(low_bits, ir.Constant(integers, [mantissa] * LANES))
        scaled = builder.add(moved, ir.Constant(integers, [one] * LANES))
        power = builder.bitcast(scaled, floats)
        return context.make_tuple(builder, pair, (builder.fsub(rounded, shift), power))

    return pair(x, factor), build


@intrinsic
def by_precision(typing_context, like, double, single) -> Any:
    """The number `double` where lanes like this hold float64, `single` where they hold float32."""
    chosen = 1 if like.dtype.bitwidth == 64 else 2

    def build(context, builder, signature, arguments):
        return arguments[chosen]

    return double(like, double, single), build
