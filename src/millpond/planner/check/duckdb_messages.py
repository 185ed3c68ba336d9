"""DuckDB's objections to a query, in our words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from millpond.model.function_names import names_inside, restore_names
from millpond.planner.resolve.estimates import show_estimate

_NO_MATCH = re.compile(r"No function matches the given name and argument types '(.+?)\((.*)\)'")
_COMPARE = re.compile(
    r"Cannot (?:compare|mix) values of type (.+?) and (?:type )?(.+?)(?: in | - |$)"
)
_CAST = re.compile(r"Unimplemented type for cast \((.+) -> (.+?)\)(?: when|$)")
_GROUP = re.compile(r'column "(.+?)" must appear in the GROUP BY clause')
_TYPE = re.compile(r"Type with name (\S+) does not exist")
_SUBQUERY = re.compile(r"Subquery returns (\d+) columns - expected (\d+)")
_MISSING = re.compile(r'(?:Referenced column|does not have a column named) "(.+?)"')
_AMBIGUOUS = re.compile(r'Ambiguous reference to column name "(.+?)"')
_PREFIX = re.compile(r"^[A-Z][A-Za-z ]* Error: ")
#: How DuckDB names the arguments of a function that has no names for them.
_PLACE = re.compile(r"\bcol\d+ (?=[A-Z])")
_OPERATOR = re.compile(r"[^A-Za-z0-9_]+")
_OPERATORS = {"~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE"}
_LITERALS = {"INTEGER_LITERAL": "INTEGER", "STRING_LITERAL": "VARCHAR", '"NULL"': "NULL"}


_NUMBERS = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?(_LITERAL)?|DOUBLE|FLOAT|DECIMAL.*)")
_EPOCHS = (
    "Write the instant as '2024-12-31 10:00:00', or as epoch_ms(1735639200000) if it is a number "
    "of milliseconds since 1970."
)
_TEXT_AND_NUMBER = (
    "Cast the text to compare numbers: TRY_CAST(… AS DOUBLE), NULL where it is none; or put the "
    "number in quotes to compare texts."
)


@dataclass(frozen=True)
class TranslatedMessage:
    """An objection of DuckDB as a Millpond error: its code and wording.

    `column` is the name of the column that the objection is about, if there is one.
    """

    code: str
    primary: str
    detail: str | None = None
    hint: str | None = None
    column: str | None = None


def translate_message(message: str) -> TranslatedMessage:
    """Translate the text of a DuckDB exception.

    >>> message = "Binder Error: Cannot compare values of type DATE and type TIME - x"
    >>> translate_message(message).primary
    'DATE cannot be compared with TIME'
    """
    inside = names_inside(message)
    message = restore_names(message)
    text = _PREFIX.sub("", message.split("\n\nLINE ")[0]).strip()
    first = text.split("\n")[0].strip()
    if match := _NO_MATCH.search(text):
        own = any(restore_names(name) == match[1].strip('"') for name in inside)
        return _translate_no_match(match[1], match[2], text, own)
    if match := _COMPARE.search(first):
        return TranslatedMessage(
            "CQL-205",
            f"{_name_type(match[1])} cannot be compared with {_name_type(match[2])}",
            hint=_hint_comparison(match[1], match[2]),
        )
    if match := _CAST.search(first):
        return TranslatedMessage(
            "CQL-205",
            f"{match[1]} cannot be cast to {match[2]}",
            detail="Values that are compared or put together are cast to one type.",
            hint=_hint_cast(match[1], match[2]),
        )
    if match := _GROUP.search(text):
        return TranslatedMessage(
            "CQL-219",
            f'column "{match[1]}" is neither grouped nor aggregated',
            detail="A group has one row, and the column may have several values in it.",
            hint=f"Add {match[1]} to GROUP BY, or aggregate it: any_value({match[1]}).",
            column=match[1],
        )
    if match := _MISSING.search(text):
        return TranslatedMessage("CQL-202", f'no column "{match[1]}"', column=match[1])
    if match := _AMBIGUOUS.search(text):
        return TranslatedMessage("CQL-203", f'column "{match[1]}" is ambiguous', column=match[1])
    if match := _TYPE.search(text):
        return TranslatedMessage("CQL-210", f'no type "{match[1]}"')
    if match := _SUBQUERY.search(text):
        return TranslatedMessage(
            "CQL-219",
            f"subquery has {match[1]} columns where {match[2]} can stand",
            hint="Select only what is compared.",
        )
    if "WHERE clause cannot contain aggregates" in text:
        return TranslatedMessage("CQL-206", "aggregate in WHERE", hint="Filter groups with HAVING.")
    if re.search(r"aggregate", first) and re.search(r"cannot|nested", first):
        return TranslatedMessage("CQL-206", _lower_first(first))
    if message.startswith(("Conversion Error", "Out of Range Error")):
        return TranslatedMessage("CQL-205", _lower_first(first))
    if "cast" in first.lower() and "type" in first.lower():
        return TranslatedMessage("CQL-205", _lower_first(first))
    return TranslatedMessage("CQL-219", _lower_first(first))


def _hint_cast(source: str, target: str) -> str | None:
    """Say how a number becomes an instant, and an instant a number."""
    for time, number in ((source, target), (target, source)):
        if time.startswith(("TIMESTAMP", "DATE")) and _NUMBERS.fullmatch(number):
            return (
                "Write an instant as '2024-12-31 10:00:00'. epoch_ms(…) makes a number of an "
                "instant, and an instant of a number."
            )
    return None


def _hint_comparison(one: str, other: str) -> str:
    for type_, against in ((one, other), (other, one)):
        if _NUMBERS.fullmatch(against):
            if type_.startswith(("TIMESTAMP", "DATE")):
                return _EPOCHS
            if type_ == "VARCHAR":
                return _TEXT_AND_NUMBER
    return "Cast one side: CAST(… AS type)."


def _translate_no_match(name: str, arguments: str, text: str, own: bool) -> TranslatedMessage:
    types = [_name_type(t) for t in _split(arguments)]
    if _OPERATOR.fullmatch(name):
        symbol = _OPERATORS.get(name, name)
        return TranslatedMessage(
            "CQL-205",
            f"operator {symbol} does not apply to {' and '.join(types)}",
            hint="Cast one side: CAST(… AS type).",
        )
    forms = [
        _PLACE.sub("", line.strip().replace(", /", ""))
        for line in text.split("\n")[1:]
        if line.strip().startswith((f"{name}(", f'"{name}"('))
    ]
    shown = show_estimate(name)
    forms = [form.replace(name, shown, 1) for form in forms]
    called = f'function "{name}"' if shown == name else shown
    given = ", ".join(types) if types else "no arguments"
    return TranslatedMessage(
        "CQL-220" if own else "CQL-205",
        f"{called} does not take ({given})" if types else f"{called} needs arguments",
        detail=f"It takes: {'; '.join(forms[:4])}{'; …' if len(forms) > 4 else ''}."
        if forms
        else None,
        hint="Cast the arguments: CAST(… AS type)." if types else None,
    )


def _split(arguments: str) -> list[str]:
    """Split an argument list into its types; a type may have parentheses of its own."""
    parts: list[str] = []
    depth = 0
    for piece in re.split(r"(,\s*)", arguments):
        if piece.strip() == "," and depth == 0:
            parts.append("")
            continue
        depth += piece.count("(") - piece.count(")")
        if not parts:
            parts.append("")
        parts[-1] += piece
    return [p.strip() for p in parts if p.strip()]


def _name_type(type_: str) -> str:
    return _LITERALS.get(type_.strip(), type_.strip())


def _lower_first(text: str) -> str:
    text = text.rstrip("!.")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
