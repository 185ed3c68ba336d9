"""Asks memory for what a compiled loop reads soon.

Where thousands of lookups miss the caches, most of their time is waiting for memory. A loop that
asks for some places first, and reads them then, waits for all of them at once.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import int64, types
from numba.extending import intrinsic

_WORD = ir.IntType(32)
#: To be read, and kept in all caches.
_READ, _KEEP, _DATA = 0, 3, 1


def _ask(context: Any, builder: Any, place: Any) -> Any:
    place = builder.bitcast(place, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type, _WORD, _WORD, _WORD])
    function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
    builder.call(function, [place, _WORD(_READ), _WORD(_KEEP), _WORD(_DATA)])
    return context.get_dummy_value()


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for an element of an array of one dimension; the index may be out of bounds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        return _ask(context, builder, builder.gep(made.data, [arguments[1]]))

    return types.void(array, int64), generate


@intrinsic
def prefetch_row(typing_context: Any, array: Any, row: Any) -> Any:
    """Ask for the beginning of a row of a matrix; the row may be out of bounds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        pitch = builder.extract_value(made.strides, 0)
        start = builder.bitcast(made.data, ir.IntType(8).as_pointer())
        return _ask(context, builder, builder.gep(start, [builder.mul(arguments[1], pitch)]))

    return types.void(array, int64), generate
