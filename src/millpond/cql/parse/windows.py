"""Reading windows, periods and durations (SEMANTICS, section 2)."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.token_reader import TokenReader
from millpond.cql.tree.nodes import QUALIFIER, Period, PeriodBound, StreamWindow
from millpond.cql.tree.places import place
from millpond.errors import MillpondError, Span
from millpond.model.durations import LONGEST, UNIT_NAMES, amounts

_UNFIXED = {
    f"{unit}{plural}"
    for unit in ("MONTH", "QUARTER", "YEAR", "DECADE", "CENTURY", "MILLENNIUM")
    for plural in ("", "S")
} | {"MON", "MONS", "YR", "YRS", "CENTURIES", "DECADES", "MILLENNIA"}

#: The most rows a window may hold.
MOST_ROWS = 2**31 - 1

_NUMBER = re.compile(r"\d{1,30}(\.\d{0,12})?")
_KNOWN_UNITS = "Units are microseconds, milliseconds, seconds, minutes, hours, days and weeks."
_KINDS = "NOW, RANGE, ROWS or PARTITION BY"


class WindowParser(TokenReader):
    """Reads `[...]` windows, `BEGIN ... END ...` periods and durations."""

    def duration(self, what: str, *, zero: bool = False) -> int:
        """Read `[INTERVAL] 15 MINUTES`, `INTERVAL '15' MINUTES` or `INTERVAL '15 minutes'`.

        Args:
            what: A name for the duration, for messages.
            zero: Whether the duration may be zero.

        Returns:
            Microseconds.
        """
        start = self.here()
        self.accept("INTERVAL")
        token = self._curr
        lengths: list[tuple[str, str | None]] = []
        if token.token_type is TokenType.STRING:
            self._advance()
            lengths = amounts(token.text)
            number = self.behind()
        else:
            signed = self.here()
            sign = "-" if self.accept_symbol(TokenType.DASH) else ""
            if self._curr.token_type is not TokenType.NUMBER:
                self.fail_expecting(f"the length of {what}", "Write for example 15 MINUTES.")
            text = self._curr.text
            self._advance()
            number = self.since(signed)
            lengths = [(sign + text, None)] if _NUMBER.fullmatch(text) else []
        if not lengths:
            raise self._wrong_size(
                f"the length of {what} cannot be read",
                number,
                hint="Write a number and a unit, for example 15 MINUTES.",
            )
        if lengths[-1][1] is None:
            lengths[-1] = (lengths[-1][0], self._unit(what))
        total = sum((self._microseconds(n, u, what, start) for n, u in lengths), Fraction(0))
        if total.denominator != 1:
            raise self._wrong_size(
                f"the length of {what} is not a whole number of microseconds", number
            )
        if total < 0 or (total == 0 and not zero):
            sign_word = "negative" if total < 0 else "zero"
            raise self._wrong_size(
                f"the length of {what} is {sign_word}",
                number,
                hint="Write a length of at least one microsecond, or [NOW] for the present instant."
                if what == "RANGE"
                else "Write a positive length.",
            )
        if total > LONGEST:
            raise self._wrong_size(
                f"the length of {what} is too great",
                number,
                hint="Write [RANGE UNBOUNDED] for a window without a lower end."
                if what == "RANGE"
                else "Write a shorter length.",
            )
        return int(total)

    def _unit(self, what: str) -> str:
        word = self._curr.text.upper()
        if word not in UNIT_NAMES and word not in _UNFIXED:
            self.fail_expecting(
                f"a unit of time for {what}",
                _KNOWN_UNITS,
            )
        self._advance()
        return word

    def _microseconds(self, number: str, unit: str | None, what: str, start: Span) -> Fraction:
        assert unit is not None
        if unit in _UNFIXED:
            raise self._wrong_size(
                f"the length of {what} is given in {unit.lower()}",
                self.since(start),
                detail="Months and years have no fixed length, and a window's length is fixed.",
                hint="Write it in days or weeks.",
            )
        if unit not in UNIT_NAMES:
            raise self._wrong_size(
                f'"{unit.lower()}" is no unit of time',
                self.since(start),
                hint=_KNOWN_UNITS,
            )
        return Fraction(number) * UNIT_NAMES[unit]

    def _wrong_size(
        self, primary: str, span: Span, *, detail: str | None = None, hint: str | None = None
    ) -> MillpondError:
        return self.fault(primary, code="CQL-207", detail=detail, hint=hint, span=span)

    def row_count(self, what: str) -> int:
        """Read a positive number of rows."""
        count, span = self.whole_number(f"the number of rows of {what}")
        if count <= 0:
            raise self._wrong_size(
                f"the number of rows of {what} is {'zero' if count == 0 else 'negative'}",
                span,
                hint="Write at least 1 row.",
            )
        if count > MOST_ROWS:
            raise self._wrong_size(
                f"the number of rows of {what} is too great", span, hint=f"At most {MOST_ROWS}."
            )
        return count

    # Windows

    def _parse_stream_window(self) -> StreamWindow:
        """Read a window; the current token is its opening bracket."""
        start = self.here()
        self.expect_symbol(TokenType.L_BRACKET, "[")
        args: dict[str, Any] = {}
        if self.accept("NOW"):
            args["kind"] = "now"
        elif self.accept("RANGE"):
            self._range(args)
        elif self.accept("ROWS"):
            args["kind"], args["rows"] = "rows", self.row_count("ROWS")
            self.accept("PRECEDING")
        elif self._match(TokenType.PARTITION_BY) or self.accept("PARTITION", "BY"):
            self._partition(args)
        elif self.sees("SLIDE"):
            raise self.fault(
                "SLIDE without RANGE",
                code="CQL-207",
                detail="SLIDE says how often a window moves, not how much it holds.",
                hint="Write [RANGE length SLIDE length].",
            )
        else:
            self.fail_expecting(f"{_KINDS} in a window", "Write for example [RANGE 15 MINUTES].")
        self._contradictions()
        if self._match(TokenType.WHERE):
            where = self._parse_disjunction()
            if where is None:
                self.fail_expecting("a predicate behind WHERE")
            args["where"] = where
            self._contradictions()
        if not self.sees_symbol(TokenType.R_BRACKET):
            self.fail_expecting('"]" at the end of the window')
        self._advance()
        window = StreamWindow(**args)
        place(window, self.since(start))
        return window

    def _range(self, args: dict[str, Any]) -> None:
        if self.accept("UNBOUNDED"):
            args["kind"] = "unbounded"
            self.accept("PRECEDING")
            return
        if self.sees("NOW"):
            self.fail_expecting("a length or UNBOUNDED behind RANGE", "Write [NOW].")
        args["kind"], args["size"] = "range", self.duration("RANGE")
        self.accept("PRECEDING")
        if self.accept("SLIDE"):
            args["slide"] = self.duration("SLIDE")

    def _partition(self, args: dict[str, Any]) -> None:
        names: list[exp.Identifier] = []
        while True:
            name, span = self.name("a column to partition by")
            quoted = self._prev.token_type is TokenType.IDENTIFIER
            qualifier = None
            if self.accept_symbol(TokenType.DOT):
                qualifier, first = name, span
                name, span = self.name("a column to partition by")
                quoted = self._prev.token_type is TokenType.IDENTIFIER
                span = Span(first.start, span.end)
            identifier = exp.Identifier(this=name, quoted=quoted)
            place(identifier, span)
            if qualifier is not None:
                identifier.meta[QUALIFIER] = qualifier
            names.append(identifier)
            if not self.accept_symbol(TokenType.COMMA):
                break
        if self.sees("RANGE") or self.sees("NOW"):
            raise self._contradiction(
                f"PARTITION BY goes with ROWS, not with {self._curr.text.upper()}",
                detail="How long an element stays does not depend on the others of its group.",
                hint="Drop PARTITION BY, or write ROWS n.",
            )
        self.expect("ROWS", hint="Write [PARTITION BY a, b ROWS n].")
        args.update(kind="rows", rows=self.row_count("ROWS"), by=names)
        self.accept("PRECEDING")

    def _contradictions(self) -> None:
        """Fail at a second clause that gives the window's size."""
        if self.sees("SLIDE"):
            raise self._contradiction(
                "SLIDE goes with RANGE and a length only",
                detail="Other windows do not hold elements for a fixed time, so cannot slide.",
                hint="Write [RANGE length SLIDE length], or drop SLIDE.",
            )
        for word in ("NOW", "RANGE", "ROWS", "PARTITION BY", "PARTITION"):
            if self.sees(word):
                raise self._contradiction(
                    f"a second {word} in one window",
                    detail="A window is one of NOW, RANGE or ROWS.",
                    hint="Keep one of them.",
                )

    def _contradiction(self, primary: str, *, detail: str, hint: str) -> MillpondError:
        return self.fault(primary, code="CQL-218", detail=detail, hint=hint)

    # Periods

    def _parse_period(self) -> Period:
        """Read a period; BEGIN has just been read."""
        start = self.behind()
        begin = self._period_bound("BEGIN")
        self.expect("END", hint="Write BEGIN bound END bound.")
        end = self._period_bound("END")
        period = Period(begin=begin, end=end)
        span = self.since(start)
        place(period, span)
        for kind in ("instant", "offset"):
            low, high = begin.args.get(kind), end.args.get(kind)
            if low is not None and high is not None and low > high:
                raise self.fault(
                    "the period ends before it begins",
                    code="CQL-218",
                    detail="No element is at or after BEGIN and at or before END.",
                    hint="Exchange the two bounds.",
                    span=span,
                )
        return period

    def _period_bound(self, which: str) -> PeriodBound:
        start = self.here()
        if self.accept("NOW"):
            offset = 0
            if self.accept_symbol(TokenType.DASH):
                offset = -self.duration("the offset from NOW", zero=True)
            elif self.accept_symbol(TokenType.PLUS):
                offset = self.duration("the offset from NOW", zero=True)
            bound = PeriodBound(offset=offset)
        else:
            self.accept("TIMESTAMP")
            if self._curr.token_type is not TokenType.STRING:
                self.fail_expecting(
                    f"NOW or a timestamp behind {which}",
                    f"Write for example {which} NOW - INTERVAL 3 HOURS or {which} '2024-01-01'.",
                )
            bound = PeriodBound(instant=self.timestamp())
        place(bound, self.since(start))
        return bound
