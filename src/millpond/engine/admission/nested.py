"""Admission of arrays and structs: their leaves are cast as columns of their own.

A value with parts is an element's value if each of its parts is. So a part means what it would mean
in a column of its own, and the reason of a reject names the part: `column "s.a": 'x' is not an
INTEGER`. A struct's fields are found by name, in any case; a field that is missing is NULL, and one
that is not declared is passed over. A text is read as JSON.

Cost: parts that come as Arrow's arrays and structs are cast by columns; texts are parsed row by
row.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.model.schema import Field, ListOf, StructOf, arrow_type, parts_of

#: The reasons against rows, by row.
Reasons = dict[int, str]
#: Casts a column without parts: its values, and the reasons against those that do not fit.
CastLeaf = Callable[[pa.ChunkedArray, Field], tuple[pa.ChunkedArray, Reasons]]


def cast_nested(
    column: pa.ChunkedArray, field: Field, cast_leaf: CastLeaf
) -> tuple[pa.ChunkedArray, Reasons]:
    """Cast a column to an array's or struct's type.

    Returns:
        The values, arbitrary where there is a reason; and the reasons, by row.
    """
    reasons: Reasons = {}
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if isinstance(array, pa.StringArray | pa.LargeStringArray):
        array = _parse(array, field, reasons)
    cast = _cast(array, field, cast_leaf, reasons)
    return pa.chunked_array([cast]), reasons


def _cast(array: pa.Array, field: Field, cast_leaf: CastLeaf, reasons: Reasons) -> pa.Array:
    want = arrow_type(field.type)
    parts = parts_of(field.type)
    if array.type == want and not _may_be_odd(want):
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), want)
    match parts:
        case ListOf(element) if _is_list(array.type):
            return _cast_list(array, field, element, cast_leaf, reasons)
        case StructOf(fields) if pa.types.is_struct(array.type):
            return _cast_struct(array, field, fields, cast_leaf, reasons)
        case None:
            cast, found = cast_leaf(pa.chunked_array([array]), field)
            for row, reason in found.items():
                reasons.setdefault(row, reason)
            return pa.concat_arrays(cast.chunks) if cast.num_chunks else pa.array([], want)
    # A value of another shape: parts where a struct was wanted, or a struct where an array was.
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return _cast(_parse(array, field, reasons), field, cast_leaf, reasons)
    for place in np.flatnonzero(np.asarray(array.is_valid())):
        reasons.setdefault(int(place), f'column "{field.name}": {array.type} is not {field.type}')
    return pa.nulls(len(array), want)


def _may_be_odd(type_: pa.DataType) -> bool:
    """Whether values of a type may have to be looked at although they have the type: texts."""
    if pa.types.is_list(type_):
        return _may_be_odd(type_.value_type)
    if pa.types.is_struct(type_):
        return any(_may_be_odd(part.type) for part in type_)
    return bool(pa.types.is_string(type_))


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
    )


def _cast_list(
    array: pa.Array, field: Field, element: str, cast_leaf: CastLeaf, reasons: Reasons
) -> pa.Array:
    found: Reasons = {}
    inner = _cast(array.flatten(), Field(f"{field.name}[]", element), cast_leaf, found)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    parents = np.repeat(np.arange(len(array)), lengths)
    for place, reason in found.items():
        reasons.setdefault(int(parents[place]), reason)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    absent = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(
        pa.array(offsets), inner, type=arrow_type(field.type), mask=absent
    )


def _cast_struct(
    array: pa.Array,
    field: Field,
    fields: tuple[tuple[str, str], ...],
    cast_leaf: CastLeaf,
    reasons: Reasons,
) -> pa.Array:
    names = [part.name for part in array.type]
    lower = {name.lower(): place for place, name in reversed(list(enumerate(names)))}
    columns = []
    # Flattening gives a part NULL where the whole is NULL.
    given = array.flatten()
    for name, type_ in fields:
        place = names.index(name) if name in names else lower.get(name.lower())
        part = pa.nulls(len(array)) if place is None else given[place]
        columns.append(_cast(part, Field(f"{field.name}.{name}", type_), cast_leaf, reasons))
    wanted = list(arrow_type(field.type))
    return pa.StructArray.from_arrays(
        columns, fields=wanted, mask=array.is_null() if array.null_count else None
    )


def _parse(texts: pa.Array, field: Field, reasons: Reasons) -> pa.Array:
    """Read texts as JSON of the shape that is wanted, its leaves as texts."""
    values: list[Any] = []
    for row, text in enumerate(texts.to_pylist()):
        value = None
        if text is not None:
            try:
                value = read_json(text, field)
            except Misfit as misfit:
                reasons.setdefault(row, str(misfit))
        values.append(value)
    return pa.array(values, _texts_of(field.type))


class Misfit(Exception):
    """A text is no JSON of its type's shape; the message is the reason."""


def read_json(text: str, field: Field) -> Any:
    """Read the JSON of an array or a struct: lists and dictionaries, with texts as leaves.

    Raises:
        Misfit: the text is no JSON, or has another shape than the type.
    """
    try:
        return _shape(json.loads(text, parse_float=Decimal), field.type, field.name)
    except (ValueError, RecursionError):
        shown = repr(text) if len(text) <= 60 else repr(text[:57]) + "…"
        raise Misfit(f'column "{field.name}": {shown} is not {field.type}') from None


def _texts_of(type_: str) -> pa.DataType:
    """The Arrow type of a type's values with texts as leaves."""
    match parts_of(type_):
        case ListOf(element):
            return pa.list_(_texts_of(element))
        case StructOf(fields):
            return pa.struct([pa.field(name, _texts_of(part)) for name, part in fields])
    return pa.string()


def _shape(value: Any, type_: str, path: str) -> Any:
    """Bring a value of JSON into a type's shape, its leaves as texts."""
    if value is None:
        return None
    match parts_of(type_):
        case ListOf(element):
            if not isinstance(value, list):
                raise _misfit(value, type_, path)
            return [_shape(item, element, f"{path}[]") for item in value]
        case StructOf(fields):
            if not isinstance(value, dict):
                raise _misfit(value, type_, path)
            lower = {key.lower(): item for key, item in value.items()}
            return {
                name: _shape(
                    value[name] if name in value else lower.get(name.lower()),
                    part,
                    f"{path}.{name}",
                )
                for name, part in fields
            }
    return _leaf_text(value)


def _leaf_text(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case dict() | list():
            return json.dumps(value, default=float)
    return str(value)


def _misfit(value: Any, type_: str, path: str) -> Misfit:
    shown = json.dumps(value, default=float)
    shown = shown if len(shown) <= 60 else shown[:57] + "…"
    return Misfit(f'column "{path}": {shown} is not {type_}')
