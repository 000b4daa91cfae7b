"""The units of one layer of one network as a number type: a tuple of lanes.

Where `lanes` holds one number of several networks, here the entries of a lane are units of a single
network, so that a layer in which half of the units are at rest costs half. Arrays have one row of
`LANES` for every eight units; how many rows a layer has is the length of the tuple `size`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature as typed_as

from deeplin.kernels.lanes import LANES, Lane, entry_pointer, intrinsic, vector_function


def _rows(context, builder, signature, arguments, at: int, count: int):
    """Pointers to `count` rows of the array that is argument `at`, from the row after it on."""
    array, row = signature.args[at], arguments[at + 1]
    row = context.cast(builder, row, signature.args[at + 1], types.intp)
    first = entry_pointer(context, builder, array, arguments[at], row)
    return [builder.gep(first, [ir.Constant(row.type, k)]) for k in range(count)]


@intrinsic
def load_units(typing_context, array, row, size) -> Any:
    """The units whose first row is `row`."""
    units = types.UniTuple(Lane(array.dtype), len(size))
    align = array.dtype.bitwidth // 8

    def build(context, builder, signature, arguments):
        places = _rows(context, builder, signature, arguments, 0, len(size))
        lanes = [builder.load(place, align=align) for place in places]
        return context.make_tuple(builder, units, lanes)

    return units(array, row, size), build


@intrinsic
def store_units(typing_context, array, row, units) -> Any:
    """Write units to the rows from `row` on."""
    align = array.dtype.bitwidth // 8

    def build(context, builder, signature, arguments):
        places = _rows(context, builder, signature, arguments, 0, len(units))
        for k, place in enumerate(places):
            builder.store(builder.extract_value(arguments[2], k), place, align=align)
        return context.get_dummy_value()

    return types.none(array, row, units), build


@intrinsic
def no_units(typing_context, array, size) -> Any:
    """Zero in every unit."""
    units = types.UniTuple(Lane(array.dtype), len(size))

    def build(context, builder, signature, arguments):
        zero = ir.Constant(context.get_value_type(Lane(array.dtype)), [0.0] * LANES)
        return context.make_tuple(builder, units, [zero] * len(size))

    return units(array, size), build


@intrinsic
def add_scaled(typing_context, units, number, array, row) -> Any:
    """units + number · (the units at `row`)."""
    align = array.dtype.bitwidth // 8

    def build(context, builder, signature, arguments):
        lane = context.get_value_type(Lane(array.dtype))
        scalar = context.cast(builder, arguments[1], signature.args[1], array.dtype)
        index = ir.IntType(32)
        one = builder.insert_element(ir.Constant(lane, ir.Undefined), scalar, index(0))
        same = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(index, LANES), None))
        lanes = []
        for k, place in enumerate(_rows(context, builder, signature, arguments, 2, len(units))):
            factors = (same, builder.load(place, align=align))
            total = builder.extract_value(arguments[0], k)
            lanes.append(vector_function("fmuladd")(context, builder, None, (*factors, total)))
        return context.make_tuple(builder, units, lanes)

    return units(units, number, array, row), build


@intrinsic
def rectify(typing_context, units) -> Any:
    """max(h, 0), NaN staying NaN, and the set of units that are not 0, as bits."""
    pair = types.Tuple((units, types.uint64))

    def build(context, builder, signature, arguments):
        words = ir.IntType(64)
        lanes, bits = [], ir.Constant(words, 0)
        for k in range(len(units)):
            h = builder.extract_value(arguments[0], k)
            zero = ir.Constant(h.type, [0.0] * LANES)
            active = builder.fcmp_unordered(">", h, zero)
            lanes.append(builder.select(active, h, zero))
            mask = builder.zext(builder.bitcast(active, ir.IntType(LANES)), words)
            bits = builder.or_(bits, builder.shl(mask, ir.Constant(words, LANES * k)))
        made = context.make_tuple(builder, units, lanes)
        return context.make_tuple(builder, pair, (made, bits))

    return pair(units), build


@intrinsic
def keep(typing_context, units, bits) -> Any:
    """Units in the set `bits`, zero elsewhere."""

    def build(context, builder, signature, arguments):
        lanes = []
        for k in range(len(units)):
            h = builder.extract_value(arguments[0], k)
            word = builder.lshr(arguments[1], ir.Constant(ir.IntType(64), LANES * k))
            few = builder.trunc(word, ir.IntType(LANES))
            mask = builder.bitcast(few, ir.VectorType(ir.IntType(1), LANES))
            lanes.append(builder.select(mask, h, ir.Constant(h.type, [0.0] * LANES)))
        return context.make_tuple(builder, units, lanes)

    return units(units, types.uint64), build


@intrinsic
def inner(typing_context, units, array, row) -> Any:
    """Σ over the units of their product with those at `row`."""

    def build(context, builder, signature, arguments):
        total = _products(context, builder, signature, arguments)
        half = LANES // 2
        while half:  # fold the lane onto its first half until one number is left
            total = builder.fadd(total, _entries(builder, total, total, _cycle(half)))
            half //= 2
        return builder.extract_element(total, ir.IntType(32)(0))

    return array.dtype(units, array, row), build


@intrinsic
def four_inner(typing_context, units, array, row, some) -> Any:
    """`inner` with the units of four numbers, counted from `row`, in less than four times its time.

    Two lanes are folded into one that holds both, then two of those.
    """
    four = types.UniTuple(array.dtype, 4)

    def build(context, builder, signature, arguments):
        start = context.cast(builder, arguments[2], signature.args[2], types.intp)
        totals = []
        for k in range(4):
            number = builder.extract_value(arguments[3], k)
            place = builder.add(start, builder.mul(number, number.type(len(units))))
            kind = typed_as(four, units, array, types.intp)
            totals.append(_products(context, builder, kind, (*arguments[:2], place)))
        first, second = (_folded(builder, totals[k], totals[k + 1], 1) for k in (0, 2))
        total = _folded(builder, first, second, 2)
        total = builder.fadd(total, _entries(builder, total, total, _cycle(LANES // 2)))
        numbers = [builder.extract_element(total, ir.IntType(32)(k)) for k in range(4)]
        return context.make_tuple(builder, four, numbers)

    return four(units, array, row, types.UniTuple(types.int64, 4)), build


def _products(context, builder, signature, arguments):
    """The products of units with those at a row of an array, added up to one lane."""
    units, align = arguments[0], signature.args[1].dtype.bitwidth // 8
    total = ir.Constant(units.type.element, [0.0] * LANES)
    places = _rows(context, builder, signature, arguments, 1, len(signature.args[0]))
    for k, place in enumerate(places):
        factors = (builder.extract_value(units, k), builder.load(place, align=align))
        total = vector_function("fmuladd")(context, builder, None, (*factors, total))
    return total


def _folded(builder, a, b, size: int):
    """A lane of sums: in each half, the first quarter of a lane plus the second.

    Pieces of `size` entries come from a and from b in turns.
    """
    quarter = LANES // 4
    left, right = [], []
    for start in (0, 2 * quarter):
        for piece in range(start, start + quarter, size):
            places = [lane + other for other in (0, LANES) for lane in range(piece, piece + size)]
            left += places
            right += [place + quarter for place in places]
    return builder.fadd(_entries(builder, a, b, left), _entries(builder, a, b, right))


def _cycle(by: int) -> list[int]:
    return [(k + by) % LANES for k in range(LANES)]


def _entries(builder, a, b, places: list[int]):
    """The entries of a and then b at some places."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), LANES), places))


@intrinsic
def first_of(typing_context, bits) -> Any:
    """The number of the lowest bit that is set."""

    def build(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.uint64), build
