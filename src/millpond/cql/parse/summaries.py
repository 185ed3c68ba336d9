"""Reading CREATE SUMMARY."""

from __future__ import annotations

from typing import Any

from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.columns import ColumnParser
from millpond.cql.tree.statements import CreateSummary
from millpond.model.summaries import (
    MOST_DEPTH,
    MOST_RATE,
    SHORTEST_GRANULARITY,
    parse_size,
)


class SummaryParser(ColumnParser):
    """Reads declarations of summaries. `offset` is where the statement starts in its script."""

    offset: int = 0

    def frame(self) -> dict[str, Any]:
        """Return the fields that every statement has."""
        return {"text": self.sql, "offset": self.offset}

    def new_name(self, what: str) -> dict[str, Any]:
        """Read `[IF NOT EXISTS] name`: the name of what is created."""
        unless = self.accept("IF", "NOT", "EXISTS")
        name, span = self.name(what)
        return {"name": name, "name_span": span, "if_not_exists": unless}

    def create_summary(self) -> CreateSummary:
        """Read what follows CREATE SUMMARY."""
        named = self.new_name("the new summary")
        self.expect("ON", hint="Write ON stream (attribute).")
        stream, stream_span = self.name("a stream")
        self.expect_symbol(TokenType.L_PAREN, "(", "Write ON stream (attribute).")
        attribute, attribute_span = self.name("the attribute")
        self.expect_symbol(TokenType.R_PAREN, ")", "A summary is of one attribute.")
        shape = "Write WITH GRANULARITY INTERVAL 1 MINUTE AND COLLAPSE (4, 6)."
        self.expect("WITH", "GRANULARITY", hint=shape)
        place = self.here()
        granularity = self.duration("GRANULARITY")
        if granularity < SHORTEST_GRANULARITY:
            raise self.fault(
                "the granularity is too short",
                hint="The shortest is 1 millisecond.",
                span=self.since(place),
            )
        self.expect("AND", "COLLAPSE", hint=shape)
        self.expect_symbol(TokenType.L_PAREN, "(", shape)
        rate = self._within("the rate of COLLAPSE", MOST_RATE)
        self.expect_symbol(TokenType.COMMA, ",", shape)
        depth = self._within("the depth of COLLAPSE", MOST_DEPTH)
        self.expect_symbol(TokenType.R_PAREN, ")", shape)
        more: dict[str, Any] = {}
        while not self.at_end():
            if "kind" not in more and self.accept("USING"):
                more["kind"] = self._summary_kind()
            elif "memory" not in more and self.accept("MEMORY"):
                more["memory"] = self._memory()
            else:
                self.fail_expecting("USING, MEMORY or the end of the statement")
        return CreateSummary(
            stream=stream,
            attribute=attribute,
            granularity=granularity,
            rate=rate,
            depth=depth,
            stream_span=stream_span,
            attribute_span=attribute_span,
            **more,
            **named,
            **self.frame(),
        )

    def _within(self, what: str, most: int) -> int:
        number, span = self.whole_number(what)
        if not 1 <= number <= most:
            raise self.fault(f"{what} is between 1 and {most}", span=span)
        return number

    def _summary_kind(self) -> str:
        for words in (("COUNT", "SKETCH"), ("HISTOGRAM",), ("SAMPLE",)):
            if self.accept(*words):
                return " ".join(words).lower()
        self.fail_expecting("COUNT SKETCH, HISTOGRAM or SAMPLE behind USING")

    def _memory(self) -> int:
        text, span = self.string("a size")
        try:
            return parse_size(text)
        except ValueError as error:
            raise self.fault(
                f"'{text[:40]}' is no size of a summary", hint=f"{error}.", span=span
            ) from None
