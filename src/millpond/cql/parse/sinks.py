"""Reading CREATE SINK."""

from __future__ import annotations

from typing import Any

from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.summaries import SummaryParser
from millpond.cql.tree.statements import CreateSink

_FROM = "Write FROM QUERY q, FROM QUERIES TAGGED t, or FROM QUERIES OF OWNER o."


class SinkParser(SummaryParser):
    """Reads declarations of sinks."""

    def create_sink(self) -> CreateSink:
        """Read what follows CREATE SINK."""
        named = self.new_name("the new sink")
        self.expect("USING", hint="Write USING http (url 'https://...', key_env 'NAME').")
        format_name, _ = self.name("a sink's format")
        options = self.options("")
        self.expect("FROM", hint=_FROM)
        selected: dict[str, Any] = {}
        if self.accept("QUERY"):
            selected["query"], selected["query_name_span"] = self.name("a query")
        else:
            self.expect("QUERIES", hint=_FROM)
            if self.accept("TAGGED"):
                selected["tag"] = self._word("a tag")
            else:
                self.expect("OF", "OWNER", hint=_FROM)
                selected["owner"] = self._word("an owner")
        if self.accept("KEY"):
            selected["key"] = self._key()
        return CreateSink(
            format=format_name.lower(), options=options, **selected, **named, **self.frame()
        )

    def _key(self) -> tuple[str, ...]:
        """Read the columns of KEY, in brackets."""
        self.expect_symbol(TokenType.L_PAREN, "(", "Write KEY (column, ...).")
        key = [self.name("a column of the key")[0]]
        while self.accept_symbol(TokenType.COMMA):
            key.append(self.name("a column of the key")[0])
        self.expect_symbol(TokenType.R_PAREN, ")", "Write KEY (column, ...).")
        return tuple(key)

    def _word(self, what: str) -> str:
        """Read a name or a text in single quotes."""
        if self._curr.token_type is TokenType.STRING:
            return self.string(what)[0]
        return self.name(what)[0]
