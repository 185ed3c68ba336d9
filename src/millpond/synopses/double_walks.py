"""The walks of exact sums of doubles: add a batch's values, and round the sums.

A sum is a long whole number in units of 2^base (`exact_doubles`); a double is a short one. So a
value is added at the place of its lowest bit, to at most three words, and the carry goes on.

In both walks the loop over a cell's values is written out: as a function they share, even an
inlined one, it took a third longer.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float64, int64, njit, types, uint64

from millpond.model.compiled import F64, I64, READ_F64, READ_I64, compiled
from millpond.synopses.wide_integers import (
    add_at,
    bits_of,
    double_of,
    high_word,
    leading_zeros,
    negate,
    subtract_at,
)

_CELLS = (READ_I64, READ_I64, READ_I64)
_U64_2D = types.Array(types.uint64, 2, "C")
_I64_2D = types.Array(types.int64, 2, "C")

#: Stands for the exponent of the lowest bit where no bit is set.
NONE = 1 << 20


@njit(inline="always")
def _parts(value):  # type: ignore[no-untyped-def]
    """Take a finite double's magnitude apart: mantissa * 2^exponent."""
    bits = bits_of(value)
    exponent = int64((bits >> uint64(52)) & uint64(0x7FF))
    mantissa = bits & uint64(0xFFFFFFFFFFFFF)
    if exponent == 0:
        return mantissa, int64(-1074)
    return mantissa | uint64(0x10000000000000), exponent - int64(1075)


@compiled(types.Tuple((int64, int64, int64))(READ_F64, READ_I64))
def measure_extent(values, weights):  # type: ignore[no-untyped-def]
    """Measure the finite values that are not zero.

    Returns the least exponent of a lowest bit, one more than the greatest of a highest bit, and
    the greatest weight.
    """
    low, high, greatest = int64(NONE), int64(-NONE), int64(0)
    for i in range(len(values)):
        value = values[i]
        if weights[i] == 0 or value == 0.0 or not math.isfinite(value):
            continue
        _, exponent = _parts(value)
        if exponent < low:
            low = exponent
        if exponent > high:
            high = exponent
        weight = abs(weights[i])
        if weight > greatest:
            greatest = weight
    return low, high + 53, greatest


@compiled(types.UniTuple(int64, 2)(READ_F64, READ_I64, types.boolean))
def measure_range(numbers, rows, every):  # type: ignore[no-untyped-def]
    """As `measure_extent` without weights, of the numbers in some rows, or in every one."""
    low, high = int64(NONE), int64(-NONE)
    for i in range(len(numbers) if every else len(rows)):
        value = numbers[i] if every else numbers[rows[i]]
        if value == 0.0 or not math.isfinite(value):
            continue
        _, exponent = _parts(value)
        low = min(low, exponent)
        high = max(high, exponent)
    return low, high + 53


@njit(inline="always")
def _add_shifted(words, low, high, shift, minus):  # type: ignore[no-untyped-def]
    """Add the two-word number (high, low) times 2^shift, or subtract it if `minus`."""
    place = shift >> 6
    off = uint64(shift & 63)
    first = low << off
    if off == uint64(0):
        second, third = high, uint64(0)
    else:
        back = uint64(64) - off
        second = (high << off) | (low >> back)
        third = high >> back
    if minus:
        subtract_at(words, first, place)
        if second != uint64(0):
            subtract_at(words, second, place + 1)
        if third != uint64(0):
            subtract_at(words, third, place + 2)
    else:
        add_at(words, first, place)
        if second != uint64(0):
            add_at(words, second, place + 1)
        if third != uint64(0):
            add_at(words, third, place + 2)


@njit(inline="always")
def _classify_special(value, weight, specials):  # type: ignore[no-untyped-def]
    if value == np.inf:
        specials[0] += weight
    elif value == -np.inf:
        specials[1] += weight
    else:
        specials[2] += weight


@njit(inline="always")
def _round_to_leading(words, scratch):  # type: ignore[no-untyped-def]
    """Round the number to 53 bits: mantissa (a double below 2^53, signed) and exponent."""
    n = len(words)
    negative = int64(words[n - 1]) < 0
    for i in range(n):
        scratch[i] = words[i]
    if negative:
        negate(scratch)
    top = n - 1
    while top >= 0 and scratch[top] == uint64(0):
        top -= 1
    if top < 0:
        return 0.0, int64(0)
    zeros = leading_zeros(scratch[top])
    # The highest 64 bits, and (`sticky`) whether any bit below them is set.
    window = scratch[top] << zeros
    sticky = False
    if zeros != uint64(0) and top > 0:
        window |= scratch[top - 1] >> (uint64(64) - zeros)
        sticky = (scratch[top - 1] << zeros) != uint64(0)
        rest = top - 2
    else:
        rest = top - 1
    while not sticky and rest >= 0:
        sticky = scratch[rest] != uint64(0)
        rest -= 1
    mantissa = window >> uint64(11)
    tail = window & uint64(0x7FF)
    if tail > uint64(0x400) or (
        tail == uint64(0x400) and (sticky or (mantissa & uint64(1)) == uint64(1))
    ):
        mantissa += uint64(1)
    value = float64(mantissa)
    exponent = int64(64 * top + 64 - int64(zeros) - 53)
    return (-value if negative else value), exponent


@njit(inline="always")
def _scale(value, exponent):  # type: ignore[no-untyped-def]
    """Compute value * 2^exponent for a value below 2^53.

    No double is smaller than the unit of a sum, so the sum of tiny ones is never rounded here.
    """
    if exponent > 1100:
        exponent = int64(1100)
    if exponent < -2200:
        exponent = int64(-2200)
    if -1000 < exponent < 900:
        return value * _power(exponent)
    return math.ldexp(value, exponent)


@njit(inline="always")
def _power(exponent):  # type: ignore[no-untyped-def]
    """Compute 2^exponent for an exponent of a normal double."""
    return double_of(uint64(exponent + 1023) << uint64(52))


@compiled(types.void(READ_I64, *_CELLS, READ_I64, READ_F64, int64, _U64_2D, _I64_2D, F64))
def walk_doubles(order, bounds, starts, groups, weights, values, base, kept, specials, trace):  # type: ignore[no-untyped-def]
    """Add up weighted doubles; the trace has the sums, rounded."""
    scratch = np.empty(kept.shape[1], np.uint64)
    for t in range(len(groups)):
        g = groups[t]
        words, odd = kept[g], specials[g]
        for c in range(starts[t] - 1, starts[t + 1]):
            if c >= starts[t]:
                for j in range(bounds[c], bounds[c + 1]):
                    weight = weights[j]
                    if weight == 0:
                        continue
                    value = values[order[j]]
                    if not math.isfinite(value):
                        _classify_special(value, weight, odd)
                        continue
                    mantissa, exponent = _parts(value)
                    if mantissa == uint64(0):
                        continue
                    times = uint64(abs(weight))
                    _add_shifted(
                        words,
                        mantissa * times,
                        high_word(mantissa, times),
                        exponent - base,
                        (value < 0.0) != (weight < 0),
                    )
            if odd[2] > 0 or (odd[0] > 0 and odd[1] > 0):
                total = np.nan
            elif odd[0] > 0:
                total = np.inf
            elif odd[1] > 0:
                total = -np.inf
            else:
                value, exponent = _round_to_leading(words, scratch)
                total = _scale(value, exponent + base)
            trace[c + t + 1] = total


#: So many halves of values fit into a digit before carries must go on: each is below 2^52.
_BEFORE_CARRY = 1_024


@njit(inline="always")
def _carry(digits):  # type: ignore[no-untyped-def]
    """Bring digits back to 32 bits each; together they are the same two's complement."""
    carry = int64(0)
    for k in range(len(digits)):
        total = digits[k] + carry
        digits[k] = total & int64(0xFFFFFFFF)
        carry = total >> 32


@compiled(types.void(READ_F64, READ_I64, types.boolean, READ_I64, int64, _U64_2D, _I64_2D))
def run_doubles(numbers, rows, every, ends, base, sums, specials):  # type: ignore[no-untyped-def]
    """Fill the i-th sum with that of the values before place ends[i]; the ends ascend.

    The values are the numbers in some rows, or in every one. Those that are not finite are counted
    in `specials`. The sums are not rounded. Values are added into signed digits of 32 bits each,
    whose carries go on only now and then (Neal, Fast exact summation using small and large
    superaccumulators, 2015).
    """
    digits = np.zeros(2 * sums.shape[1] + 2, np.int64)
    odd = np.zeros(3, np.int64)
    place, added = 0, 0
    for i in range(len(ends)):
        while place < ends[i]:
            value = numbers[place] if every else numbers[rows[place]]
            place += 1
            if not math.isfinite(value):
                _classify_special(value, 1, odd)
                continue
            bits = bits_of(value)
            mantissa, exponent = _parts(value)
            shift = exponent - base
            if mantissa == uint64(0):
                continue
            at, off = shift >> 5, uint64(shift & 31)
            low = int64((mantissa << off) & uint64(0xFFFFFFFF))
            high = int64(mantissa >> (uint64(32) - off))
            # Signs are as random as can be, so there is no branch: -1 negates, 0 does not.
            sign = int64(bits) >> 63
            digits[at] += (low ^ sign) - sign
            digits[at + 1] += (high ^ sign) - sign
            added += 1
            if added == _BEFORE_CARRY:
                _carry(digits)
                added = 0
        _carry(digits)
        added = 0
        for k in range(sums.shape[1]):
            sums[i, k] = uint64(digits[2 * k]) | (uint64(digits[2 * k + 1]) << uint64(32))
        specials[i, :] = odd


@njit(inline="always")
def _compute_spread(words, squares, count, magnitude, spread):  # type: ignore[no-untyped-def]
    """Compute count * squares − words^2 into `spread`; `magnitude` is room for |words|."""
    n = len(words)
    for i in range(n):
        magnitude[i] = words[i]
    if int64(words[n - 1]) < 0:
        negate(magnitude)
    for i in range(len(spread)):
        spread[i] = uint64(0)
    for i in range(len(squares)):
        add_at(spread, squares[i] * count, i)
        add_at(spread, high_word(squares[i], count), i + 1)
    for i in range(n):
        if magnitude[i] == uint64(0):
            continue
        for k in range(n):
            if magnitude[k] == uint64(0):
                continue
            subtract_at(spread, magnitude[i] * magnitude[k], i + k)
            subtract_at(spread, high_word(magnitude[i], magnitude[k]), i + k + 1)


@compiled(
    types.void(
        READ_I64, *_CELLS, READ_I64, READ_F64, int64, _U64_2D, _U64_2D, _I64_2D, I64, F64, I64
    )
)
def walk_moments(  # type: ignore[no-untyped-def]
    order,
    bounds,
    starts,
    groups,
    weights,
    values,
    base,
    kept,
    squares,
    specials,
    counts,
    trace,
    exponents,
):
    """Add up weighted doubles and their squares.

    The trace has n * sum(x^2) − sum(x)^2, computed exactly and rounded to 53 bits, as a number
    below 2^53 and its exponent; NaN where there is an infinity or a NaN. `counts` is a trace of
    the number n of values.
    """
    n, m = kept.shape[1], squares.shape[1]
    size = max(2 * n, m + 1)
    scratch = np.empty(size, np.uint64)
    spread = np.empty(size, np.uint64)
    magnitude = np.empty(n, np.uint64)
    for t in range(len(groups)):
        g = groups[t]
        words, twos, odd = kept[g], squares[g], specials[g]
        for c in range(starts[t] - 1, starts[t + 1]):
            if c >= starts[t]:
                for j in range(bounds[c], bounds[c + 1]):
                    weight = weights[j]
                    if weight == 0:
                        continue
                    value = values[order[j]]
                    if not math.isfinite(value):
                        _classify_special(value, weight, odd)
                        continue
                    mantissa, exponent = _parts(value)
                    if mantissa == uint64(0):
                        continue
                    minus = weight < 0
                    times = uint64(abs(weight))
                    shift = exponent - base
                    _add_shifted(
                        words,
                        mantissa * times,
                        high_word(mantissa, times),
                        shift,
                        (value < 0.0) != minus,
                    )
                    low, high = mantissa * mantissa, high_word(mantissa, mantissa)
                    # (high, low) is below 2^106: with a weight below 2^22 it stays in two words.
                    while times > uint64(0):
                        part = times & uint64(0x3FFFFF)
                        top = high * part + high_word(low, part)
                        _add_shifted(twos, low * part, top, 2 * shift, minus)
                        times >>= uint64(22)
                        shift += 11
            place = c + t + 1
            if odd[0] > 0 or odd[1] > 0 or odd[2] > 0:
                trace[place] = np.nan
                exponents[place] = 0
                continue
            _compute_spread(words, twos, uint64(counts[place]), magnitude, spread)
            value, exponent = _round_to_leading(spread, scratch)
            trace[place] = value
            exponents[place] = exponent + 2 * base
