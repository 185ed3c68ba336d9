"""Whole numbers of two and more machine words, for compiled functions.

Numbers lie in rows of 64-bit words, least significant first, as two's complement. These functions
are meant to be inlined.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types, uint64
from numba.extending import intrinsic

from millpond.model.compiled import F64, READ_F64, compiled


@intrinsic
def high_word(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the upper 64 bits of the product of two unsigned words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def leading_zeros(typing_context: Any, word: Any) -> Any:
    """Count the zeros above the highest one of a word that is not zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), generate


@intrinsic
def bits_of(typing_context: Any, value: Any) -> Any:
    """Return the 64 bits a double is stored as."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), generate


@intrinsic
def double_of(typing_context: Any, bits: Any) -> Any:
    """Return the double that is stored as 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate


@njit(inline="always")
def add_at(words: Any, word: Any, place: Any) -> None:
    """Add an unsigned word at a place, carrying as far as it goes."""
    end = len(words)
    while place < end:
        total = words[place] + word
        words[place] = total
        if total >= word:
            return
        word = uint64(1)
        place += 1


@njit(inline="always")
def subtract_at(words: Any, word: Any, place: Any) -> None:
    """Subtract an unsigned word at a place, borrowing as far as it goes."""
    end = len(words)
    while place < end:
        held = words[place]
        words[place] = held - word
        if held >= word:
            return
        word = uint64(1)
        place += 1


@njit(inline="always")
def negate(words: Any) -> None:
    """Multiply the number by −1."""
    carry = uint64(1)
    for i in range(len(words)):
        flipped = ~words[i] + carry
        carry = uint64(1) if carry == uint64(1) and flipped == uint64(0) else uint64(0)
        words[i] = flipped


@intrinsic
def _fma(typing_context: Any, left: Any, right: Any, plus: Any) -> Any:
    """Compute left * right + plus, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@compiled(types.void(READ_F64, READ_F64, READ_F64, F64))
def fuse_multiply_add(left: Any, right: Any, plus: Any, out: Any) -> None:
    """Fill `out` with left * right + plus, each rounded once."""
    for i in range(len(left)):
        out[i] = _fma(left[i], right[i], plus[i])
