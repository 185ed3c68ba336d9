"""Reading the items of a FROM clause: names with their windows, queries in brackets, samples."""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.other_dialects import (
    clause_error,
    file_error,
    is_file_reader,
    table_function_hint,
)
from millpond.cql.parse.selected_streams import move_window
from millpond.cql.parse.windowing import WindowingParser
from millpond.cql.tree.nodes import QUALIFIER, STREAM_SAMPLE, WINDOW, RelationToStream
from millpond.cql.tree.places import place, span_of
from millpond.errors import MillpondError

#: The operators that turn a relation into a stream.
TO_STREAM = ("ISTREAM", "DSTREAM", "RSTREAM")
#: The tokens that begin a query.
QUERY_STARTS = {TokenType.SELECT, TokenType.WITH, TokenType.VALUES}
#: The tokens that combine two queries.
SET_OPERATIONS = {TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT}


class FromParser(WindowingParser):
    """Reads the items of a FROM clause."""

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
        if kind is TokenType.L_PAREN or kind in QUERY_STARTS:
            return self._derived_table(joins)
        if kind is TokenType.LATERAL and self._next.token_type is TokenType.L_PAREN:
            self._advance()  # a subquery sees the items before it, with the word or without
            return self._derived_table(joins)
        if self.sees_windowing():
            windowed = self.windowing()
            self._alias_and_sample(windowed, alias_tokens)
            return self._append_joins(windowed, joins)
        if self._next.token_type is TokenType.L_PAREN and kind is not TokenType.IDENTIFIER:
            if self._is_to_stream_ahead():
                start = self.here()
                subquery = exp.Subquery(this=self.to_stream())
                place(subquery, self.since(start))
                return self._behind_query(subquery, joins)
            if is_file_reader(self._curr.text):
                raise file_error(self, self._curr.text)
            if kind in self.ID_VAR_TOKENS:
                raise self.fault(
                    "FROM takes streams, relations and queries only",
                    detail=f"{self._quote(self._curr)} is called like a function here.",
                    hint=table_function_hint(self._curr.text),
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

    def _check_qualifiers(self, table: exp.Table | exp.Subquery) -> None:
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
        self._advance()
        query: exp.Expr | None = None
        if self._is_to_stream_ahead():
            query = self.to_stream()
        elif self._is_query_ahead() or self.is_united_ahead():
            query = self.plain_query()
        if query is None:
            raise self.fault(
                "expected a query in the brackets",
                hint="Joins need no brackets; write (SELECT * FROM a JOIN b ON ...) to group them.",
            )
        self.expect_symbol(TokenType.R_PAREN, ")")
        subquery = exp.Subquery(this=query)
        place(subquery, self.since(start))
        return self._behind_query(subquery, joins)

    def _behind_query(self, subquery: exp.Subquery, joins: bool) -> exp.Expr:
        """Read what stands behind a query in FROM: a window, an alias, a sample, joins."""
        is_windowed = self._window_on_query(subquery)
        self._alias_and_sample(subquery, None)
        if is_windowed and self.sees_symbol(TokenType.L_BRACKET):
            raise self.fault(
                "a second window on one stream", code="CQL-218", hint="Keep one of the two."
            )
        self._window_on_query(subquery)
        self._sample(subquery)
        self._check_qualifiers(subquery)
        return self._append_joins(subquery, joins)

    def to_stream(self) -> RelationToStream:
        """Read ISTREAM(query), DSTREAM(query) or RSTREAM(query)."""
        start = self.here()
        kind = self._curr.text.upper()
        self._advance(2)
        this = self.plain_query()
        self.expect_symbol(TokenType.R_PAREN, ")")
        node = RelationToStream(this=this, kind=kind)
        place(node, self.since(start))
        return node

    def _is_to_stream_ahead(self) -> bool:
        return self._next.token_type is TokenType.L_PAREN and any(map(self.sees, TO_STREAM))

    def _is_query_ahead(self) -> bool:
        index = self._index
        while self._tokens[index].token_type is TokenType.L_PAREN:
            index += 1
        return self._tokens[index].token_type in QUERY_STARTS

    def is_united_ahead(self) -> bool:
        return self._next.token_type in SET_OPERATIONS and self.is_bare_relation_ahead()

    def _parse_table_alias(
        self, alias_tokens: Collection[TokenType] | None = None
    ) -> exp.TableAlias | None:
        """Read an alias; `BY (…)` behind a query in brackets is none."""
        return None if self.is_by_ahead() else super()._parse_table_alias(alias_tokens)

    def _alias_and_sample(self, item: exp.Expr, alias_tokens: Collection[TokenType] | None) -> None:
        if (error := clause_error(self)) is not None:
            raise error
        is_instant = self.sees("AT", "TIMESTAMP")  # of the INSERT around it
        if not self._is_sample_ahead() and not self.is_by_ahead() and not is_instant:
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

    def is_by_ahead(self) -> bool:
        return self._next.token_type is TokenType.L_PAREN and self.sees("BY")

    def _append_joins(self, item: exp.Expr, joins: bool) -> exp.Expr:
        if joins:
            for join in self._parse_joins():
                item.append("joins", join)
        return item

    def _window_on_query(self, subquery: exp.Subquery) -> bool:
        """Read a window behind a query: of the stream it selects from, or of the query itself."""
        if not self.sees_symbol(TokenType.L_BRACKET):
            return False
        window = self._parse_stream_window()
        if not move_window(window, subquery.this):
            subquery.set(WINDOW, window)
        return True

    def not_outermost(self) -> MillpondError:
        return self.fault(
            f"{self._curr.text.upper()} stands inside a query",
            detail="It makes a stream of a relation, and streams stand in FROM.",
            hint="Write it in FROM, or define it with CREATE STREAM ... AS and query that.",
        )

    # Queries

    def plain_query(self) -> exp.Expr:
        start = self._curr
        query: exp.Expr | None
        if start.token_type in QUERY_STARTS or start.token_type is TokenType.L_PAREN:
            query = self._parse_select(nested=True, parse_subquery_alias=False)
        elif self.is_bare_relation_ahead():
            query = self.bare_relation()
        else:
            self.fail_expecting("a query", "A query starts with SELECT or WITH.")
        query = self._parse_query_modifiers(self._parse_set_operations(query))
        if not isinstance(query, exp.Query):
            raise self.fault(f"expected a query, but found {self._quote(start)}")
        return query

    def is_bare_relation_ahead(self) -> bool:
        """Whether the next name is a query by itself: `a UNION b`, `ISTREAM(s [NOW])`."""
        behind = self._next.token_type if self._next else None
        return self._curr.token_type in self.ID_VAR_TOKENS and (
            behind in (None, TokenType.R_PAREN, TokenType.L_BRACKET) or behind in SET_OPERATIONS
        )

    def bare_relation(self) -> exp.Select:
        """Read a name and its window as a query for all rows of it."""
        start = self.here()
        table = self._parse_table()
        query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=table))
        place(query, self.since(start))
        return query
