"""Reading queries: SQL's SELECT over streams with windows, relations and derived names.

sqlglot's DuckDB parser reads queries; this module reads the items of FROM in its place and adds the
clauses of CQL. Other syntax that sqlglot reads but CQL does not have is refused afterwards by
`millpond.cql.parse.check_shape`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.check_shape import check_query
from millpond.cql.parse.other_dialects import clause_error, file_error, is_file_reader
from millpond.cql.parse.selected_streams import move_window
from millpond.cql.parse.windowing import WindowingParser
from millpond.cql.parse.with_clauses import put_with_before
from millpond.cql.tree.nodes import (
    BY_ATTRIBUTES,
    PERIOD,
    PREFERENCE,
    QUALIFIER,
    STREAM_SAMPLE,
    WINDOW,
    Preference,
    RelationToStream,
)
from millpond.cql.tree.places import place, span_of
from millpond.errors import MillpondError, Span
from millpond.model.budget import Budget, parse_budget

#: The operators that turn a relation into a stream.
TO_STREAM = ("ISTREAM", "DSTREAM", "RSTREAM")

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
_QUERY_STARTS = {TokenType.SELECT, TokenType.WITH, TokenType.VALUES}
_SET_OPERATIONS = {TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT}


class QueryParser(WindowingParser):
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
        if self._is_united_ahead():
            return True
        return self._next.token_type is TokenType.L_PAREN and any(map(self.sees, TO_STREAM))

    def query(self) -> exp.Expression:
        """Read a query, with ISTREAM(...), DSTREAM(...) or RSTREAM(...) around it if present."""
        query = self._outermost_query()
        self._read_preference(query)
        check_query(query, self.sql)
        return cast(exp.Expression, query)

    def _read_preference(self, query: exp.Expr) -> None:
        """Read `WITH PREFERENCE …` behind the outermost query into it, if it comes next."""
        if not self.sees("WITH", "PREFERENCE"):
            return
        start = self.here()
        self._advance(2)
        order = next((o for o in ("ASC", "DESC", "WEIGHTED") if self.accept(o)), "DESC").lower()
        value = self.scalar("an expression of estimates behind PREFERENCE")
        fade, budget = 1.0, None
        if self.accept("FADE"):
            self.expect("FACTOR", hint="Write FADE FACTOR 0.8.")
            fade = self._fade_factor()
        if self.accept("BUDGET"):
            budget = self.budget()
        node = Preference(order=order, this=value, fade=fade, budget=budget)
        place(node, self.since(start))
        if not isinstance(query, exp.Select):
            raise self.fault(
                "WITH PREFERENCE stands behind a SELECT",
                detail="A preference ranks the regions of one or two streams in FROM; what it "
                "finds is a stream of its own.",
                hint="Drop ISTREAM, UNION or the brackets around the query.",
                span=self.since(start),
            )
        query.set(PREFERENCE, node)

    def _fade_factor(self) -> float:
        token = self._curr
        if token.token_type is not TokenType.NUMBER or len(token.text) > 30:
            self.fail_expecting("a number behind FADE FACTOR", "Write FADE FACTOR 0.8.")
        self._advance()
        if not 0 < (fade := float(token.text)) <= 1:
            raise self.fault(
                "the fade factor is above 0 and at most 1",
                hint="1 makes old regions as promising as new ones.",
                span=self.behind(),
            )
        return fade

    def budget(self) -> Budget:
        """Read a budget's text behind BUDGET."""
        text, span = self.string("a budget")
        try:
            return parse_budget(text)
        except ValueError as error:
            raise self.fault(f"'{text[:40]}' is no budget", hint=f"{error}.", span=span) from None

    def _outermost_query(self) -> exp.Expr:
        for kind in TO_STREAM:
            if self.sees(kind) and self._next.token_type is TokenType.L_PAREN:
                start = self.here()
                self._advance(2)
                this = self._plain_query()
                self.expect_symbol(TokenType.R_PAREN, ")")
                node = RelationToStream(this=this, kind=kind)
                place(node, self.since(start))
                return node
        return self._plain_query()

    def _plain_query(self) -> exp.Expr:
        start = self._curr
        query: exp.Expr | None
        if start.token_type in _QUERY_STARTS or start.token_type is TokenType.L_PAREN:
            query = self._parse_select(nested=True, parse_subquery_alias=False)
        elif self._is_bare_relation_ahead():
            query = self._bare_relation()
        else:
            self.fail_expecting("a query", "A query starts with SELECT or WITH.")
        query = self._parse_query_modifiers(self._parse_set_operations(query))
        if not isinstance(query, exp.Query):
            raise self.fault(f"expected a query, but found {self._quote(start)}")
        return query

    def _is_bare_relation_ahead(self) -> bool:
        """Whether the next name is a query by itself: `a UNION b`, `ISTREAM(s [NOW])`."""
        behind = self._next.token_type if self._next else None
        return self._curr.token_type in self.ID_VAR_TOKENS and (
            behind in (None, TokenType.R_PAREN, TokenType.L_BRACKET) or behind in _SET_OPERATIONS
        )

    def _bare_relation(self) -> exp.Select:
        """Read a name and its window as a query for all rows of it."""
        start = self.here()
        table = self._parse_table()
        query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=table))
        place(query, self.since(start))
        return query

    def _parse_statement(self) -> exp.Expr | None:
        # sqlglot calls this behind WITH, and inside the brackets of a common table expression.
        starts = self._curr.token_type in _QUERY_STARTS or self.sees_symbol(TokenType.L_PAREN)
        if starts or self._is_bare_relation_ahead():
            return self._plain_query()
        if self._curr.text.upper() in TO_STREAM:
            raise self._not_outermost()
        self.fail_expecting("a query", "Only queries may stand here.")

    # FROM

    def _parse_table(
        self,
        schema: bool = False,
        joins: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
        parse_bracket: bool = False,
        is_db_reference: bool = False,
        parse_partition: bool = False,
        consume_pipe: bool = False,
    ) -> exp.Expr | None:
        """Read one item of FROM: a name with its window, or a query in brackets."""
        kind = self._curr.token_type
        if kind is TokenType.VALUES:
            raise self.fault(
                "VALUES stands in brackets in FROM",
                hint="Write FROM (VALUES (1, 'a'), (2, 'b')) AS t (number, letter).",
            )
        if kind is TokenType.L_PAREN or kind in _QUERY_STARTS:
            return self._derived_table(joins)
        if kind is TokenType.LATERAL and self._next.token_type is TokenType.L_PAREN:
            self._advance()  # a subquery sees the items before it, with the word or without
            return self._derived_table(joins)
        if self.sees_windowing():
            windowed = self.windowing()
            self._alias_and_sample(windowed, alias_tokens)
            return self._append_joins(windowed, joins)
        if self._next.token_type is TokenType.L_PAREN and kind is not TokenType.IDENTIFIER:
            if self._curr.text.upper() in TO_STREAM:
                raise self._not_outermost()
            if is_file_reader(self._curr.text):
                raise file_error(self, self._curr.text)
            if kind in self.ID_VAR_TOKENS:
                raise self.fault(
                    "FROM takes streams, relations and queries only",
                    detail=f"{self._quote(self._curr)} is called like a function here.",
                    hint="Name a stream or a relation, or write a query in brackets.",
                )
        if kind is TokenType.STRING:
            raise file_error(self, self._curr.text)
        name, span = self.name("a stream or a relation")
        identifier = exp.Identifier(this=name, quoted=self._prev.token_type is TokenType.IDENTIFIER)
        place(identifier, span)
        table = exp.Table(this=identifier)
        if self.sees_symbol(TokenType.DOT):
            raise self.fault(
                "names have no qualifier here",
                detail="Streams, relations and queries share one space of names.",
                hint="Write the name alone, or put it in double quotes if the dot belongs to it.",
            )
        if self.sees_symbol(TokenType.L_BRACKET):
            table.set(WINDOW, self._parse_stream_window())
        self._alias_and_sample(table, alias_tokens)
        if self.sees_symbol(TokenType.L_BRACKET):
            if table.args.get(WINDOW):
                raise self.fault(
                    "a second window on one stream", code="CQL-218", hint="Keep one of the two."
                )
            table.set(WINDOW, self._parse_stream_window())
            self._sample(table)
        self._check_qualifiers(table)
        return self._append_joins(table, joins)

    def _check_qualifiers(self, table: exp.Table) -> None:
        """Check the qualifiers in a window's PARTITION BY: the stream's name or its alias."""
        window = table.args.get(WINDOW)
        names = {table.name.lower(), table.alias_or_name.lower()}
        for column in (window.args.get("by") if window else None) or ():
            qualifier = column.meta.pop(QUALIFIER, None)
            if qualifier is not None and qualifier.lower() not in names:
                raise self.fault(
                    f'"{qualifier}" is not the stream whose window this is',
                    hint=f"Write {table.alias_or_name}.{column.name}, or {column.name} alone.",
                    span=span_of(column),
                )

    def _derived_table(self, joins: bool) -> exp.Expr | None:
        if not self.sees_symbol(TokenType.L_PAREN):
            return self._parse_select()
        start = self.here()
        if self._next.text.upper() in TO_STREAM:
            self._advance()
            raise self._not_outermost()
        self._advance()
        is_query = self._is_query_ahead() or self._is_united_ahead()
        query = self._plain_query() if is_query else None
        if query is None:
            raise self.fault(
                "expected a query in the brackets",
                hint="Joins need no brackets; write (SELECT * FROM a JOIN b ON ...) to group them.",
            )
        self.expect_symbol(TokenType.R_PAREN, ")")
        subquery = exp.Subquery(this=query)
        place(subquery, self.since(start))
        self._window_on_query(query)
        self._alias_and_sample(subquery, None)
        self._window_on_query(query)
        self._sample(subquery)
        return self._append_joins(subquery, joins)

    def _is_query_ahead(self) -> bool:
        index = self._index
        while self._tokens[index].token_type is TokenType.L_PAREN:
            index += 1
        return self._tokens[index].token_type in _QUERY_STARTS

    def _is_united_ahead(self) -> bool:
        return self._next.token_type in _SET_OPERATIONS and self._is_bare_relation_ahead()

    def _alias_and_sample(self, item: exp.Expr, alias_tokens: Collection[TokenType] | None) -> None:
        if (error := clause_error(self)) is not None:
            raise error
        is_instant = self.sees("AT", "TIMESTAMP")  # of the INSERT around it
        if not self._is_sample_ahead() and not self._is_by_ahead() and not is_instant:
            alias = self._parse_table_alias(alias_tokens=alias_tokens or self.TABLE_ALIAS_TOKENS)
            if self._prev.token_type is TokenType.ALIAS:
                self.fail_expecting("a name behind AS")
            if alias and not alias.this:
                raise self.fault(
                    "columns are renamed without an alias",
                    hint="Write name AS alias (column, ...).",
                    span=self.behind(),
                )
            if alias:
                item.set("alias", alias)
        if (error := clause_error(self)) is not None:
            raise error
        self._sample(item)

    def _sample(self, item: exp.Expr) -> None:
        if self._is_sample_ahead():
            self._advance(2)
            percentage = self._parse_number()
            if not isinstance(percentage, exp.Literal):
                self.fail_expecting("a percentage", "Write SAMPLE(10) for a tenth.")
            if not 0 <= float(percentage.name) <= 100:
                raise self.fault("a sample is between 0 and 100 per cent", span=span_of(percentage))
            self.expect_symbol(TokenType.R_PAREN, ")")
            item.set(STREAM_SAMPLE, percentage)

    def _is_sample_ahead(self) -> bool:
        return self._next.token_type is TokenType.L_PAREN and self.sees("SAMPLE")

    def _is_by_ahead(self) -> bool:
        return self._next.token_type is TokenType.L_PAREN and self.sees("BY")

    def _append_joins(self, item: exp.Expr, joins: bool) -> exp.Expr:
        if joins:
            for join in self._parse_joins():
                item.append("joins", join)
        return item

    def _window_on_query(self, query: exp.Expr) -> None:
        """Read a window behind a query in brackets, which has to be a selection from a stream."""
        if not self.sees_symbol(TokenType.L_BRACKET):
            return
        start = self.here()
        window = self._parse_stream_window()
        if not move_window(window, query):
            raise self.fault(
                "a window stands behind a query that is no selection from one stream",
                detail="A window turns a stream into a relation, and what joins, groups, orders or "
                "has a window gives a relation already.",
                hint="Put the window on the streams inside the query, or make the query a derived "
                "stream with CREATE STREAM ... AS and put the window on that.",
                span=self.since(start),
            )

    def _not_outermost(self) -> MillpondError:
        return self.fault(
            f"{self._curr.text.upper()} stands inside a query",
            detail="Only the outermost part of a query can make a stream of a relation.",
            hint="Define the inner part with CREATE STREAM ... AS and query that.",
        )

    # Clauses

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
                is_operand or self._curr.token_type in _SET_OPERATIONS
            ):
                query = exp.Subquery(this=query)
            return self._parse_set_operations(query) if parse_set_operation else query
        is_named = self._curr and self._curr.token_type in self.ID_VAR_TOKENS
        if is_named and (is_operand or self._is_united_ahead()):
            query = self._bare_relation()
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
        if self._is_by_ahead():
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
