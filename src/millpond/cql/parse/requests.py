"""Reading statements that ask for answers, and any statement by its first word."""

from __future__ import annotations

import difflib
from typing import Any

from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.from_items import TO_STREAM
from millpond.cql.parse.other_dialects import show_hint, start_hint
from millpond.cql.parse.row_statements import RowStatementParser
from millpond.cql.tree.explain_levels import Level
from millpond.cql.tree.statements import (
    Ask,
    Describe,
    Explain,
    Fetch,
    Invoke,
    Show,
    ShowCreate,
    Statement,
)

#: The words statements start with.
FIRST_WORDS = (
    "SELECT",
    "WITH",
    "VALUES",
    *TO_STREAM,
    "CREATE",
    "ALTER",
    "DROP",
    "INVOKE",
    "FETCH",
    "INSERT",
    "UPDATE",
    "DELETE",
    "HEARTBEAT",
    "EXPLAIN",
    "SHOW",
    "DESCRIBE",
)
SHOWN = (
    "STREAMS",
    "RELATIONS",
    "QUERIES",
    "SUMMARIES",
    "SINKS",
    "ENTITIES",
    "FUNCTIONS",
    "CONSTRAINTS",
)


class StatementParser(RowStatementParser):
    """Reads any statement."""

    def statement(self) -> Statement:
        """Read a whole statement."""
        parsed = self._by_first_word()
        self.expect_end()
        return parsed

    def _by_first_word(self) -> Statement:
        if self.accept("CREATE"):
            return self.create()
        if self.accept("ALTER"):
            return self.alter()
        if self.accept("DROP"):
            return self.drop()
        if self.accept("INSERT"):
            return self.insert()
        if self.accept("UPDATE"):
            return self.update()
        if self.accept("DELETE"):
            return self.delete()
        if self.accept("HEARTBEAT"):
            return self.heartbeat()
        if self.accept("INVOKE"):
            return self._invoke()
        if self.accept("FETCH"):
            return self._fetch()
        if self.accept("EXPLAIN"):
            return self._explain()
        if self.accept("SHOW"):
            return self._show()
        if self.accept("DESCRIBE"):
            name, span = self.name("a stream, a relation or a query")
            return Describe(name=name, name_span=span, **self.frame())
        if self._starts_query():
            return Ask(query=self.query(), **self.frame())
        return self._unknown()

    def _unknown(self) -> Statement:
        word = self._curr.text
        near = difflib.get_close_matches(word.upper()[:40], FIRST_WORDS, 1)
        hint = start_hint(word) or (f"Did you mean {near[0]}?" if near else None)
        if word.upper() in TO_STREAM:
            hint = f"Write {word.upper()}(SELECT ...)."
        raise self.fault(
            f"{self._quote(self._curr)} starts no statement",
            code="CQL-101",
            detail=f"Statements start with {', '.join(FIRST_WORDS[:-1])} or {FIRST_WORDS[-1]}.",
            hint=hint,
        )

    def _invoke(self) -> Invoke:
        name, span = self.name("a query")
        at = self.at_timestamp()
        budget, after = None, None
        while not self.at_end():
            if budget is None and self.accept("BUDGET"):
                budget = self.budget()
            elif after is None and self.accept("AFTER"):
                after = self._cursor()
            else:
                break
        if after is not None and budget is None:
            raise self.fault(
                "AFTER goes with BUDGET here",
                hint="Write INVOKE name BUDGET '5000 probes' AFTER 'cursor'.",
                span=span,
            )
        return Invoke(name=name, at=at, budget=budget, after=after, name_span=span, **self.frame())

    def _fetch(self) -> Fetch:
        name, span = self.name("a query")
        after, limit = None, None
        while not self.at_end():
            if after is None and self.accept("AFTER"):
                after = self._cursor()
            elif limit is None and self.accept("LIMIT"):
                limit, place = self.whole_number("the number of rows behind LIMIT")
                if limit < 0:
                    raise self.fault("LIMIT is negative", hint="Write LIMIT n.", span=place)
            else:
                break
        return Fetch(name=name, after=after, limit=limit, name_span=span, **self.frame())

    def _cursor(self) -> str:
        """Read a cursor: a text, or a bare number."""
        if self._curr.token_type is TokenType.NUMBER and self._curr.text.isdigit():
            self._advance()
            return self._prev.text
        if self._curr.token_type is not TokenType.STRING:
            self.fail_expecting("a cursor ('…', or a whole number)")
        return self.string("a cursor")[0]

    def _explain(self) -> Explain:
        level = Level.LOGICAL
        for named in Level:
            # A word is a level only if more follows: EXPLAIN shared may mean a query's name.
            if self._next and self.accept(named.name):
                level = named
                break
        options: dict[str, Any] = {}
        is_paren = self._next is not None and self._next.token_type is TokenType.L_PAREN
        if level is Level.APPROXIMATION and is_paren and self.accept("WITH"):
            options = self.options("=")
        if options or self._starts_query():
            start = self.here()
            query = self.query()
            return Explain(
                level=level,
                query=query,
                options=options,
                query_span=self.since(start),
                **self.frame(),
            )
        name, span = self.name("a query, or a query itself")
        if not self.at_end() and level is Level.LOGICAL:
            raise self.fault(
                f'"{name}" is no level of EXPLAIN',
                detail=f"The levels are {', '.join(level.name for level in Level)}.",
                hint="Write EXPLAIN [level] followed by a query or a query's name.",
                span=span,
            )
        return Explain(level=level, name=name, name_span=span, **self.frame())

    def _show(self) -> Show | ShowCreate:
        if self.accept("CREATE"):
            kind = self.created_kind("SHOW CREATE")
            name, span = self.name(f"a {kind}")
            return ShowCreate(kind=kind, name=name, name_span=span, **self.frame())
        for word in SHOWN:
            if self.accept(word):
                return Show(what=word.lower(), **self.frame())
        self.fail_expecting(
            f"{', '.join(SHOWN[:-1])} or {SHOWN[-1]} behind SHOW", show_hint(self._curr.text)
        )
