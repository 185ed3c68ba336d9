"""What a client asks to register: a query's text, its name and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from millpond.catalog.objects import QueryDef, Template, given_options
from millpond.cql import parse_statement
from millpond.cql.print.parameters import fill_constants, write_constant
from millpond.cql.tree import statements
from millpond.errors import MillpondError, Span
from millpond.model.unicode_text import check_unicode
from millpond.service.queries.parameter_places import check_places


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """One query to register: its text, its name (given one when None), its options."""

    text: str
    name: str | None = None
    options: Mapping[str, Any] | None = None
    #: Where the name stands, for errors.
    statement: str | None = None
    name_span: Span | None = None
    #: What the text was made of, if it had parameters.
    template: Template | None = None

    @classmethod
    def of(cls, cql: str, name: str | None, options: Mapping[str, Any]) -> RegistrationRequest:
        """A registration by text: a bare query, or CREATE QUERY with its own name and options.

        Among the options may be `params`: the values of the text's parameters (`$name`), by name.
        """
        if not isinstance(cql, str) or not isinstance(name, str | None):
            raise MillpondError(
                "CQL-103",
                "a query and its name are given as text",
                hint="register('SELECT …', 'name', option=value)",
            )
        if name is not None:
            check_unicode(name, "the name", "CQL-102")
        given = options.get("params")
        unfilled = cql
        cql, options = fill_registration(cql, options)
        if cql.lstrip()[:6].upper() == "CREATE":
            parsed = parse_statement(cql)
            if not isinstance(parsed, statements.CreateQuery):
                raise MillpondError(
                    "CQL-216",
                    "only queries are registered",
                    hint="Use execute() for other statements.",
                )
            if parsed.if_not_exists or parsed.or_replace:
                raise MillpondError(
                    "CQL-216",
                    "IF NOT EXISTS and OR REPLACE are of statements",
                    detail="Registering gives the handle of a new query.",
                    hint="Use execute() for the statement, or leave them out.",
                )
            request = cls.of_statement(parsed)
            template = request.template
            if template is None:
                text = request.text
                template = _make_template(_take_query(unfilled, cql, text), text, given)
            merged = {**parsed.options, **options}
            return replace(
                request, name=name or parsed.name, options=merged, statement=cql, template=template
            )
        return cls(cql, name, options, template=_make_template(unfilled, cql, given))

    @classmethod
    def of_statement(cls, statement: statements.CreateQuery) -> RegistrationRequest:
        """A registration by CREATE QUERY.

        Raises:
            MillpondError: CQL-103, a parameter stands where a column is named.
        """
        template, text = None, statement.query_text
        if statement.constants:
            template = Template(statement.written_query, statement.constants)
            check_places(template.text, template.constants, text)
        return cls(
            text,
            statement.name,
            statement.options,
            statement.text,
            statement.name_span,
            template,
        )

    @classmethod
    def with_parameters(
        cls, query: QueryDef, constants: Mapping[str, str], options: Mapping[str, Any]
    ) -> RegistrationRequest:
        """Another definition for a query: other values for some of its parameters, and options.

        Raises:
            MillpondError: CQL-103, it has no such parameter.
        """
        if query.template is None:
            raise MillpondError(
                "CQL-103",
                f'query "{query.name}" has no parameters',
                detail="It was registered without params.",
                hint="CREATE OR REPLACE QUERY gives it another text.",
            )
        template = Template(query.template.text, {**query.template.constants, **constants})
        text = _fill(template.text, template.constants)
        kept = {**given_options(query.options), **options}
        return cls(text, query.name, kept, template=template)


def fill_registration(cql: str, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Fill the parameters of a text with the values among the options; return both without them.

    Raises:
        MillpondError: CQL-102, CQL-103: a parameter without a value, or a value that is none.
    """
    if "params" not in options:
        return cql, options
    rest = {key: value for key, value in options.items() if key != "params"}
    _refuse_two_values(cql)
    return _fill(cql, write_constants(options["params"])), rest


def _refuse_two_values(cql: str) -> None:
    """Refuse a CREATE QUERY that has values of its parameters, where there are others beside it."""
    if cql.lstrip()[:6].upper() != "CREATE":
        return
    try:
        stated = parse_statement(cql)
    except MillpondError:
        return  # its parameters are not filled yet
    if isinstance(stated, statements.CreateQuery) and stated.constants:
        raise MillpondError(
            "CQL-103",
            "the parameters have values twice: in the text and beside it",
            hint="Leave out params, or the values in WITH (…).",
        )


def _fill(text: str, constants: Mapping[str, str]) -> str:
    filled = fill_constants(text, constants)
    check_places(text, constants, filled)
    return filled


def write_constants(given: Any) -> dict[str, str]:
    """Write values of parameters, by name, as constants of CQL.

    Raises:
        MillpondError: CQL-103, they have no names, or CQL has no constant for one of them.
    """
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise MillpondError(
            "CQL-103",
            "the parameters of a query are not values by name",
            hint='For example params={"most": 10}, for $most in the text.',
        )
    return {name: write_constant(value, name) for name, value in given.items()}


def _make_template(text: str, filled: str, given: Any) -> Template | None:
    """The template of a text; None without parameters, or if it does not give the filled text."""
    if not given:
        return None
    template = Template(text, write_constants(given))
    return template if fill_constants(text, template.constants) == filled else None


def _take_query(statement: str, filled: str, query: str) -> str:
    """The query in a statement with parameters, as long as there are none before the query."""
    start = filled.rfind(query)
    end = len(filled) - start - len(query)
    is_same = start >= 0 and statement[:start] == filled[:start]
    return statement[start : len(statement) - end] if is_same else query
