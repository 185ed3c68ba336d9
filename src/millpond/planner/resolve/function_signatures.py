"""How the functions that queries may call are called: names, parameters and types, of DuckDB."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import duckdb

from millpond.model.functions import ALLOWED, FUNCTIONS

#: The most forms of one function that are told: `+` of dates alone has twenty.
MOST_FORMS = 4

_FORMS = """
    SELECT lower(function_name), parameters, parameter_types, varargs, return_type
    FROM duckdb_functions() WHERE function_type IN ('scalar', 'aggregate', 'table', 'macro')
    ORDER BY ALL
"""


@dataclass(frozen=True)
class FunctionSignature:
    """A function that queries may call.

    Attributes:
        name: In lower case.
        kind: "scalar", "set", "aggregate" or "window".
        calls: Its forms, `round(x DOUBLE, precision INTEGER) DOUBLE`; none that DuckDB knows of
            for what is part of its grammar.
    """

    name: str
    kind: str
    calls: tuple[str, ...]


@cache
def list_signatures() -> tuple[FunctionSignature, ...]:
    """The functions that queries may call, by name."""
    forms: dict[str, list[str]] = {}
    with duckdb.connect() as connection:
        for name, *form in connection.execute(_FORMS).fetchall():
            text = _write_form(name, *form)
            known = forms.setdefault(name, [])
            if text not in known and len(known) < MOST_FORMS:
                known.append(text)
    return tuple(
        FunctionSignature(
            function.name, function.kind.name.lower(), tuple(forms.get(function.name, ()))
        )
        for function in sorted(FUNCTIONS.values(), key=lambda f: f.name)
        if function.name in ALLOWED
    )


def _write_form(
    name: str,
    parameters: list[str],
    types: list[str | None],
    varargs: str | None,
    returned: str | None,
) -> str:
    """Write one form of a function as people read it."""
    given = [
        " ".join(part for part in pair if part)
        for pair in zip(parameters, [*types, *[None] * len(parameters)], strict=False)
    ]
    if varargs:
        given.append(f"{varargs}…")
    return f"{name}({', '.join(given)}) {returned or ''}".rstrip()
