"""Values of parameters in the bodies of calls: exact numbers, and dates and times with a type."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.json_schema import SkipJsonSchema

from millpond.api.contract import DocumentedRoute


class TimeValue(BaseModel):
    """A date or a time as the value of a parameter, for which JSON has no form of its own."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["DATE", "TIMESTAMP"]
    value: str

    def read(self) -> date:
        """The date, or the time."""
        return _READ_TIME[self.type](self.value)


_READ_TIME: dict[str, Callable[[str], date]] = {
    "DATE": date.fromisoformat,
    "TIMESTAMP": datetime.fromisoformat,
}


def _read_form(value: Any) -> Any:
    """The value of a parameter, a date or a time in its form for JSON as a `TimeValue`.

    Raises:
        ValueError: It is no form of a value; the words say which, and why.
    """
    if isinstance(value, list):
        raise ValueError("it is a list")
    if not isinstance(value, dict):
        return value
    kind, text = value.get("type"), value.get("value")
    if value.keys() != {"type", "value"} or not isinstance(text, str):
        raise ValueError(f"{_show(value)} is no value; {_FORM}")
    if kind not in ("DATE", "TIMESTAMP"):
        raise ValueError(f"the type {_show(kind)} is none that a value can have; {_FORM}")
    try:
        _READ_TIME[kind](text)
    except ValueError as error:
        raise ValueError(f"{_show(text)} is no {kind}: {error}") from error
    return TimeValue(type=kind, value=text)


_FORM = 'write {"type": "DATE" or "TIMESTAMP", "value": "2026-03-01"}, or a plain value'


def _show(value: Any) -> str:
    return f"{json.dumps(value, ensure_ascii=False, default=str):.100}"


#: The values of a text's parameters (`$name`), by name.
Parameters = dict[
    str,
    Annotated[
        str | bool | int | float | SkipJsonSchema[Decimal] | TimeValue | None,
        BeforeValidator(_read_form),
    ],
]


class ParameterRequest(Request):
    """A request whose `params` have numbers exactly as they are written."""

    async def json(self) -> Any:
        if not hasattr(self, "_read"):
            self._read = read_with_parameters(await self.body())
        return self._read


class ParameterRoute(DocumentedRoute):
    """A call whose body may have values of parameters."""

    request_class = ParameterRequest


def read_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of parameters by name; a date or a time may be in its form for JSON."""
    return {name: _read_value(name, value) for name, value in values.items()}


def _read_value(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        try:
            value = _read_form(value)
        except ValueError as error:
            place = ("body", "params", name)
            raise RequestValidationError(
                [{"type": "value_error", "loc": place, "msg": str(error), "input": value}]
            ) from error
    return value.read() if isinstance(value, TimeValue) else value


def read_with_parameters(body: bytes) -> Any:
    """Read a JSON body; a number without an exponent among `params` is a Decimal, as in SQL.

    A double has no room for 0.12345678901234567890, which a DECIMAL column may have.

    Raises:
        ValueError: It is no JSON.
    """
    read = json.loads(body, parse_float=_read_number)
    if isinstance(read, list):
        return [_round_all_but_parameters(item) for item in read]
    return _round_all_but_parameters(read)


def _read_number(text: str) -> float | Decimal:
    return float(text) if "e" in text or "E" in text else Decimal(text)


def _round_all_but_parameters(body: Any) -> Any:
    if not isinstance(body, dict):
        return _round(body)
    return {name: v if name == "params" else _round(v) for name, v in body.items()}


def _round(value: Any) -> Any:
    match value:
        case Decimal():
            return float(value)
        case dict():
            return {name: _round(item) for name, item in value.items()}
        case list():
            return [_round(item) for item in value]
    return value
