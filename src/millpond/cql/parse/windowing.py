"""Reading TUMBLE and HOP: each row with the window of application time it belongs to.

`TUMBLE(s, ts, INTERVAL 1 MINUTE)` in FROM is a query over s with two more columns, `window_start`
and `window_end`; `TUMBLE(ts, INTERVAL 1 MINUTE)` among expressions is the start of the window.
Windows are counted from 1970, so every window of a length begins at a multiple of it.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.values import ValuesParser, unite
from millpond.cql.tree.places import place, span_of
from millpond.errors import Span

#: The most windows HOP puts a row into.
_MOST_HOPS = 1000
#: The column that numbers the windows of a row, inside HOP's query.
_HOP = "window$hop"
_HOPS = "window$hops"
#: How TUMBLE and HOP are written in FROM.
_TUMBLE_FORM = "TUMBLE(stream, column, INTERVAL 1 MINUTE)"
_HOP_FORM = "HOP(stream, column, INTERVAL 1 MINUTE, INTERVAL 5 MINUTES)"
#: Windows of other systems that depend on other rows, or have no end.
_OTHERS = ("SESSION", "CUMULATE", "TUMBLING", "HOPPING", "SLIDING")


class WindowingParser(ValuesParser):
    """Reads TUMBLE and HOP."""

    def sees_windowing(self) -> bool:
        """Whether TUMBLE(...) or HOP(...) comes next, or TABLE(...) around it."""
        if self._next.token_type is not TokenType.L_PAREN:
            return False
        return any(map(self.sees, ("TUMBLE", "HOP", "TABLE", *_OTHERS)))

    def windowing(self) -> exp.Subquery:
        """Read TUMBLE(...) or HOP(...) in FROM as the query it means."""
        start = self.here()
        if self.sees("TABLE") and self._next.token_type is TokenType.L_PAREN:
            self._advance(2)
            found = self.windowing()
            self.expect_symbol(TokenType.R_PAREN, ")")
            return found
        if any(map(self.sees, _OTHERS)):
            raise self.fault(
                f"{self._curr.text.upper()} is not part of CQL",
                hint="Write TUMBLE(stream, column, INTERVAL 1 MINUTE), HOP(stream, column, slide, "
                "size), or a window in brackets: stream [RANGE 1 MINUTE].",
            )
        hops = self.sees("HOP")
        if not hops and not self.sees("TUMBLE"):
            self.fail_expecting("TUMBLE or HOP")
        self._advance(2)
        self._argument_name("DATA")
        item = self._windowed_item()
        hint = f"Write {_HOP_FORM if hops else _TUMBLE_FORM}."
        self.expect_symbol(TokenType.COMMA, ",", hint)
        self._argument_name("TIMECOL")
        time = self._descriptor()
        self.expect_symbol(TokenType.COMMA, ",", hint)
        slide_start = self.here()
        self._argument_name("SLIDE" if hops else "SIZE")
        slide = self.duration("the slide" if hops else "the window")
        size = slide
        if hops:
            self.expect_symbol(
                TokenType.COMMA, ",", "Write HOP(stream, column, slide, size of a window)."
            )
            self._argument_name("SIZE")
            size = self.duration("the window")
            self._check_hops(slide, size, self.since(slide_start))
        offset = self._offset()
        self.expect_symbol(TokenType.R_PAREN, ")", "Write TUMBLE(stream, column, length).")
        subquery = _make_subquery(item, time, slide, size, offset)
        place(subquery, self.since(start))
        return subquery

    def _argument_name(self, name: str) -> None:
        """Read `DATA =>`, as Flink names arguments, if a name stands before the next one."""
        if self._next.token_type is not TokenType.FARROW:
            return
        if not self.sees(name):
            raise self.fault(
                f'the argument {name} was expected here, not "{self._curr.text}"',
                hint="Write TUMBLE(DATA => stream, TIMECOL => column, SIZE => INTERVAL 1 MINUTE), "
                "and SLIDE before SIZE for HOP; the names may be left out.",
            )
        self._advance(2)

    def _windowed_item(self) -> exp.Expr:
        if self.sees("TABLE"):
            self._advance()
        item = self._parse_table()
        if not isinstance(item, exp.Table | exp.Subquery):
            self.fail_expecting("a stream, a relation or a query in brackets")
        return item

    def _descriptor(self) -> exp.Column:
        """Read the column of times, which Flink puts into DESCRIPTOR(...)."""
        described = self.sees("DESCRIPTOR") and self._next.token_type is TokenType.L_PAREN
        if described:
            self._advance(2)
        name, span = self.name("the column of times")
        identifier = exp.Identifier(this=name, quoted=self._prev.token_type is TokenType.IDENTIFIER)
        place(identifier, span)
        if described:
            self.expect_symbol(TokenType.R_PAREN, ")")
        return exp.Column(this=identifier)

    def _offset(self) -> int:
        if not self.accept_symbol(TokenType.COMMA):
            return 0
        self._argument_name("OFFSET")
        return self.duration("the offset", zero=True)

    def _check_hops(self, slide: int, size: int, span: Span) -> None:
        if size % slide:
            raise self.fault(
                "the size of HOP's windows is no multiple of their slide",
                code="CQL-207",
                hint="Write for example HOP(stream, column, INTERVAL 1 MINUTE, INTERVAL 5 MINUTES)."
                " The slide comes first.",
                span=span,
            )
        if size // slide > _MOST_HOPS:
            raise self.fault(
                f"HOP puts every row into {size // slide} windows",
                code="CQL-207",
                detail=f"At most {_MOST_HOPS} are possible.",
                hint="Write a greater slide, or a window in brackets: stream [RANGE length].",
                span=span,
            )

    def window_of_time(self, which: str) -> exp.Expr:
        """Read the arguments of TUMBLE(time, length), TUMBLE_START and TUMBLE_END."""
        hint = f"Write {which}(column, INTERVAL 1 MINUTE) in an expression."
        if self._curr.token_type is TokenType.R_PAREN:
            raise self.fault(f"{which} has no column of times", hint=hint)
        time = self.scalar("a time")
        self.expect_symbol(TokenType.COMMA, ",", hint)
        length = self.duration("the window")
        start = _start_of(time, length, self._offset())
        found = _add(start, exp.Literal.number(length)) if which == "TUMBLE_END" else start
        if (span := span_of(time)) is not None:
            place(found, span)
        return exp.Paren(this=found) if which == "TUMBLE_END" else found

    def refuse_hops(self, which: str) -> exp.Expr:
        """Fail at HOP among expressions: a row is in several windows."""
        raise self.fault(
            f"{which} stands in FROM only",
            detail="A row is in several windows of HOP, so it is several rows.",
            hint="Write FROM HOP(stream, column, slide, size) and GROUP BY window_start, "
            "window_end.",
            span=self.behind(),
        )


def _make_subquery(
    item: exp.Expr, time: exp.Column, slide: int, size: int, offset: int
) -> exp.Subquery:
    """Make the query that TUMBLE or HOP means, under the name of the item it is over."""
    name = item.alias_or_name or "given"
    if not item.alias_or_name:
        item.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
    quoted = exp.to_identifier(name, quoted=True)
    time.set("table", quoted.copy())
    start = _start_of(time, slide, offset)
    query = exp.Select(
        expressions=[exp.Column(this=exp.Star(), table=quoted.copy())],
        from_=exp.From(this=item),
    )
    if size > slide:
        rows = [exp.Select(expressions=[exp.Literal.number(n)]) for n in range(size // slide)]
        numbers = exp.Subquery(
            this=unite(rows),
            alias=exp.TableAlias(
                this=exp.to_identifier(_HOPS, quoted=True),
                columns=[exp.to_identifier(_HOP, quoted=True)],
            ),
        )
        query.set("joins", [exp.Join(this=numbers, kind="CROSS")])
        hop = exp.Mul(
            this=exp.column(_HOP, table=_HOPS, quoted=True), expression=exp.Literal.number(slide)
        )
        start = exp.Sub(this=start, expression=_length(hop))
    query.append("expressions", exp.alias_(start, "window_start"))
    end = _add(start.copy(), exp.Literal.number(size))
    query.append("expressions", exp.alias_(end, "window_end"))
    return exp.Subquery(this=query, alias=exp.TableAlias(this=quoted))


def _start_of(time: exp.Expr, length: int, offset: int) -> exp.Expr:
    """Make an expression for the start of the window a time is in."""
    origin = exp.Anonymous(this="make_timestamp", expressions=[exp.Literal.number(offset)])
    return exp.Anonymous(
        this="time_bucket", expressions=[_length(exp.Literal.number(length)), time, origin]
    )


def _add(time: exp.Expr, microseconds: exp.Expr) -> exp.Expr:
    return exp.Add(this=time, expression=_length(microseconds))


def _length(microseconds: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="to_microseconds", expressions=[microseconds])
