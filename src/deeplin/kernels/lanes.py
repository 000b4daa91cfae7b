"""A number type for numba that holds one value for each of several networks.

A `Lane` is a small vector of floats; arithmetic on lanes acts on every entry alike and compiles to
the vector instructions of the machine. A kernel written with lanes reads like the formula for one
network and trains `LANES` of them. Entries never mix: a NaN stays in its own network, and a
network's result does not depend on its neighbours, to the last bit.

Arrays of lanes are C-contiguous with last axis `LANES`; `load(array, row)` and `store` see them as
a flat sequence of rows, without checking bounds. An array of one axis holds plain numbers: a kernel
that is given such arrays is one for a single network, from the same source.
"""

from __future__ import annotations

import math
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


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros that begin where a line of the cache does.

    A lane of float64 fills a line; one that straddles two costs two accesses, an eighth of a step.
    """
    line, size = 64, math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + line, np.uint8)
    start = -memory.ctypes.data % line
    return memory[start : start + size].view(dtype).reshape(shape)


@intrinsic
def load(typing_context, array, row) -> Any:
    """The lane at `row`."""

    def build(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature, arguments)
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return number_of(array)(array, row), build


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
    if array_type.ndim > 1:
        return entry_pointer(context, builder, array_type, arguments[0], row)
    return builder.gep(context.make_array(array_type)(context, builder, arguments[0]).data, [row])


def number_of(like):
    """The number type of a lane or plain number, or of what an array holds."""
    array = isinstance(like, types.Array)
    return like if not array else like.dtype if like.ndim == 1 else Lane(like.dtype)


def entry_pointer(context, builder, array_type, array, row):
    """Where the lane at `row` (a machine integer) is in memory."""
    vector = context.get_value_type(Lane(array_type.dtype))
    view = context.make_array(array_type)(context, builder, array)
    entry = builder.gep(view.data, [builder.mul(row, ir.Constant(row.type, LANES))])
    return builder.bitcast(entry, vector.as_pointer())


@intrinsic
def number_at(typing_context, like, address, index) -> Any:
    """The number at place `index` of the memory at `address`, of the kind the array `like` has."""
    dtype = like.dtype

    def build(context, builder, signature, arguments):
        _, address, index = arguments
        pointer = builder.inttoptr(address, context.get_value_type(dtype).as_pointer())
        return builder.load(builder.gep(pointer, [index]))

    return dtype(like, types.intp, types.intp), build


@intrinsic
def fill(typing_context, like, number) -> Any:
    """The lane with `number` in every entry, of the type of the lane or array `like`."""
    lane = number_of(like)
    dtype = lane.dtype if isinstance(lane, Lane) else lane

    def build(context, builder, signature, arguments):
        scalar = context.cast(builder, arguments[1], signature.args[1], dtype)
        if dtype == lane:
            return scalar
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

    def build(context, builder, signature, arguments):  # two instructions: sums become vectors
        return builder.fadd(builder.fmul(*arguments[:2]), arguments[2])

    return a(a, b, c), vector_function("fmuladd") if isinstance(a, Lane) else build


@intrinsic
def square_root(typing_context, a) -> Any:
    """√a."""
    return a(a), vector_function("sqrt")


@intrinsic
def absolute(typing_context, a) -> Any:
    """|a|."""
    return a(a), vector_function("fabs")


def vector_function(name: str):
    """A lowering to the vector form of an LLVM function of lanes."""

    def build(context, builder, signature, arguments):
        number = arguments[0].type
        lane = isinstance(number, ir.VectorType)
        single = isinstance(number.element if lane else number, ir.FloatType)
        kind = (f"v{LANES}" if lane else "") + ("f32" if single else "f64")
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(number, [number] * len(arguments)),
            f"llvm.{name}.{kind}",
        )
        return builder.call(function, arguments)

    return build


@intrinsic
def sum_entries(typing_context, lane) -> Any:
    """The sum of all entries of a lane, pairs first."""

    def build(context, builder, signature, arguments):
        kind = lane.dtype.bitwidth
        number, vector = context.get_value_type(lane.dtype), arguments[0].type
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(number, [number, vector]),
            f"llvm.vector.reduce.fadd.v{LANES}f{kind}",
        )
        return builder.call(function, [number(0.0), arguments[0]], fastmath=("reassoc",))

    return lane.dtype(lane), build


@intrinsic
def choose_less(typing_context, a, b, yes, no) -> Any:
    """In each entry `yes` where a < b, else (NaN included) `no`."""

    def build(context, builder, signature, arguments):
        a, b, yes, no = arguments
        return builder.select(builder.fcmp_ordered("<", a, b), yes, no)

    return yes(a, b, yes, no), build


def _any(builder, mask):
    bits = builder.bitcast(mask, ir.IntType(LANES))
    return builder.icmp_unsigned("!=", bits, bits.type(0))


@intrinsic
def any_less(typing_context, a, b) -> Any:
    """Whether a < b in some entry."""

    def build(context, builder, signature, arguments):
        less = builder.fcmp_ordered("<", *arguments)
        return _any(builder, less) if isinstance(a, Lane) else less

    return types.boolean(a, b), build


@intrinsic
def any_outside(typing_context, value, low, high) -> Any:
    """Whether some entry fails low < value ≤ high, as NaN does."""

    def build(context, builder, signature, arguments):
        value, low, high = arguments
        below = builder.fcmp_unordered("<=", value, low)
        above = builder.fcmp_unordered(">", value, high)
        return _any(builder, builder.or_(below, above))

    return types.boolean(value, low, high), build


@intrinsic
def by_precision(typing_context, like, double, single) -> Any:
    """The number `double` where lanes like this hold float64, `single` where they hold float32."""
    chosen = 1 if like.dtype.bitwidth == 64 else 2

    def build(context, builder, signature, arguments):
        return arguments[chosen]

    return double(like, double, single), build


@intrinsic
def stay_apart(typing_context) -> Any:
    """Compile the function that calls this on its own, never as a part of its callers.

    Its constants then keep their registers in a loop, whatever the callers need registers for.
    """

    def build(context, builder, signature, arguments):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.none(), build
