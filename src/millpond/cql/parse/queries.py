"""Reading queries: SQL's SELECT over streams with windows, relations and derived names.

sqlglot's DuckDB parser reads queries; this module adds the clauses of CQL. Other syntax that
sqlglot reads but CQL does not have is refused afterwards by `millpond.cql.parse.check_shape`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.check_shape import check_query
from millpond.cql.parse.from_items import QUERY_STARTS, SET_OPERATIONS, TO_STREAM
from millpond.cql.parse.other_dialects import clause_error, top_error
from millpond.cql.parse.preferences import PreferenceParser
from millpond.cql.parse.with_clauses import put_with_before
from millpond.cql.tree.nodes import (
    BY_ATTRIBUTES,
    PERIOD,
)
from millpond.cql.tree.places import place, span_of
from millpond.errors import Span

_BEHIND_FROM = (
    "where",
    "group",
    "having",
    "qualify",
    "windows",
    PERIOD,
    "order",
    "limit",
    "offset",
)


class QueryParser(PreferenceParser):
    """Reads queries."""

    QUERY_MODIFIER_PARSERS = {  # noqa: RUF012
        **{
            token: Parser.QUERY_MODIFIER_PARSERS[token]
            for token in (
                TokenType.WHERE,
                TokenType.GROUP_BY,
                TokenType.HAVING,
                TokenType.QUALIFY,
                TokenType.WINDOW,
                TokenType.ORDER_BY,
                TokenType.LIMIT,
                TokenType.OFFSET,
            )
        },
        TokenType.BEGIN: lambda self: self._period_modifier(),
    }
    QUERY_MODIFIER_TOKENS = set(QUERY_MODIFIER_PARSERS)  # noqa: RUF012

    def expect_end(self) -> None:
        """Fail unless the statement ends here."""
        if (error := clause_error(self)) is not None:
            raise error
        super().expect_end()

    def _starts_query(self) -> bool:
        """Whether a query starts at the current token."""
        if self._curr.token_type in (
            TokenType.SELECT,
            TokenType.WITH,
            TokenType.VALUES,
            TokenType.L_PAREN,
        ):
            return True
        if self.is_united_ahead():
            return True
        return self._is_to_stream_ahead()

    def query(self) -> exp.Expression:
        """Read a query, with ISTREAM(...), DSTREAM(...) or RSTREAM(...) around it if present."""
        query = self._outermost_query()
        self.read_preference(query)
        check_query(query, self.sql)
        return cast(exp.Expression, query)

    def _outermost_query(self) -> exp.Expr:
        if self._is_to_stream_ahead():
            return self.to_stream()
        return self.plain_query()

    def _parse_statement(self) -> exp.Expr | None:
        # sqlglot calls this behind WITH, and inside the brackets of a common table expression.
        starts = self._curr.token_type in QUERY_STARTS or self.sees_symbol(TokenType.L_PAREN)
        if starts or self.is_bare_relation_ahead():
            return self.plain_query()
        if self._curr.text.upper() in TO_STREAM:
            raise self.not_outermost()
        self.fail_expecting("a query", "Only queries may stand here.")

    def _parse_select_query(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
    ) -> exp.Expr | None:
        start = self.here()
        is_operand = nested and not parse_set_operation
        query: exp.Expr | None
        if self.sees_symbol(TokenType.VALUES):
            query = self.values()
            if isinstance(query, exp.SetOperation) and (
                is_operand or self._curr.token_type in SET_OPERATIONS
            ):
                query = exp.Subquery(this=query)
            return self._parse_set_operations(query) if parse_set_operation else query
        is_named = self._curr and self._curr.token_type in self.ID_VAR_TOKENS
        if is_named and (is_operand or self.is_united_ahead()):
            query = self.bare_relation()
            return self._parse_set_operations(query) if parse_set_operation else query
        clause = self._parse_with()
        if clause is not None:
            body = self._parse_statement()
            assert body is not None
            query = put_with_before(clause, body)
        else:
            query = super()._parse_select_query(
                nested, table, parse_subquery_alias, parse_set_operation
            )
        if isinstance(query, exp.Query):
            place(query, self.since(start))
        return query

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        if (error := top_error(self)) is not None:
            raise error
        projections, exclude = super()._parse_projections()
        if not projections:
            self.fail_expecting("columns behind SELECT", "Write SELECT * for all columns.")
        return projections, exclude

    def _parse_from(
        self, joins: bool = False, skip_from_token: bool = False, consume_pipe: bool = False
    ) -> exp.From | None:
        if joins and self.sees_symbol(TokenType.FROM):
            raise self.fault(
                "a query starts with FROM", hint="Write SELECT * FROM ... for all columns."
            )
        return super()._parse_from(joins, skip_from_token, consume_pipe)

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        start = self._curr
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if (
            join is not None
            and start.token_type is not TokenType.COMMA
            and not (join.args.get("on") or join.args.get("using") or join.args.get("method"))
            and join.args.get("kind") != "CROSS"
        ):
            raise self.fault(
                "JOIN without a condition",
                hint="Write JOIN ... ON condition, JOIN ... USING (column), or CROSS JOIN.",
                span=Span(start.start, start.end + 1),
            )
        return join

    def _parse_query_modifiers(self, this: Any) -> Any:
        # sqlglot calls this again at the end of a query, and would read a comma that follows as
        # one more item of FROM.
        fresh = isinstance(this, exp.Select) and not any(map(this.args.get, _BEHIND_FROM))
        if not fresh and self._curr.token_type not in self.QUERY_MODIFIER_TOKENS:
            return this
        return super()._parse_query_modifiers(this)

    def _parse_limit(
        self,
        this: exp.Expr | None = None,
        top: bool = False,
        skip_limit_token: bool = False,
    ) -> exp.Expr | None:
        if top:
            return this
        limit = super()._parse_limit(this, top, skip_limit_token)
        if limit is not None and limit.args.get("offset"):
            raise self.fault(
                "LIMIT takes one number", hint="Write LIMIT n OFFSET m.", span=span_of(limit)
            )
        return limit

    def _parse_cte(self) -> exp.CTE | exp.FunctionSpecification | None:
        if self.sees_symbol(TokenType.ALIAS):
            self.fail_expecting("a name behind WITH")
        return super()._parse_cte()

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        group = super()._parse_group(skip_group_by_token)
        if group is not None and not any(group.args.values()):
            self.fail_expecting("columns behind GROUP BY")
        return group

    def _period_modifier(self) -> tuple[str, exp.Expr]:
        self._advance()
        return PERIOD, self._parse_period()

    def parse_set_operation(
        self, this: exp.Expr | None, consume_pipe: bool = False, intersect_only: bool = False
    ) -> exp.SetOperation | None:
        operation = super().parse_set_operation(this, consume_pipe, intersect_only)
        if operation is None:
            return None
        if operation.args.get("expression") is None:
            self.fail_expecting("a query")
        if self.is_by_ahead():
            if not isinstance(operation, exp.Except) or operation.args.get("distinct"):
                raise self.fault(
                    "BY goes with EXCEPT ALL only",
                    hint="Drop BY, or write EXCEPT ALL.",
                )
            self._advance(2)
            names = [self._by_attribute()]
            while self.accept_symbol(TokenType.COMMA):
                names.append(self._by_attribute())
            self.expect_symbol(TokenType.R_PAREN, ")")
            operation.set(BY_ATTRIBUTES, names)
        return operation

    def _by_attribute(self) -> exp.Identifier:
        name, span = self.name("a column")
        identifier = exp.Identifier(this=name, quoted=self._prev.token_type is TokenType.IDENTIFIER)
        place(identifier, span)
        return identifier
