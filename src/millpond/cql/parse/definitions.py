"""Reading definitions: CREATE, ALTER and DROP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.durations import duration_text
from millpond.cql.parse.queries import QueryParser
from millpond.cql.tree.nodes import RelationToStream
from millpond.cql.tree.statements import (
    Alter,
    ColumnDef,
    CreateDerived,
    CreateQuery,
    CreateRelation,
    CreateStream,
    CreateSummary,
    Drop,
    SourceClause,
    Statement,
)
from millpond.errors import Span
from millpond.model.summaries import (
    MOST_DEPTH,
    MOST_RATE,
    SHORTEST_GRANULARITY,
    parse_size,
)
from millpond.model.time import END

_DROPPABLE = ("QUERY", "STREAM", "RELATION", "SUMMARY")
_MORE_TYPE_WORDS = (
    ("PRECISION",),
    ("VARYING",),
    ("WITH", "TIME", "ZONE"),
    ("WITHOUT", "TIME", "ZONE"),
)


class DefinitionParser(QueryParser):
    """Reads definitions. `offset` is where the statement starts in its script."""

    offset: int = 0

    def frame(self) -> dict[str, Any]:
        """Return the fields that every statement has."""
        return {"text": self.sql, "offset": self.offset}

    def create(self) -> Statement:
        """Read what follows CREATE."""
        if self.sees("OR", "REPLACE"):
            raise self.fault("OR REPLACE is not part of CQL", hint="DROP the old one first.")
        if self.accept("QUERY"):
            return self._create_query()
        if self.accept("STREAM"):
            return self._create_stream()
        if self.accept("NON"):
            self.expect("RETROACTIVE")
            self.expect("RELATION")
            return self._create_relation(non_retroactive=True)
        if self.accept("RELATION"):
            return self._create_relation(non_retroactive=False)
        if self.accept("SUMMARY"):
            return self._create_summary()
        if self.sees("TABLE") or self.sees("VIEW") or self.sees("MATERIALIZED"):
            self.fail_expecting(
                "STREAM, RELATION, QUERY or SUMMARY behind CREATE",
                "A table is a RELATION, and a view is CREATE RELATION name AS SELECT ...",
            )
        self.fail_expecting(
            "STREAM, RELATION, NON RETROACTIVE RELATION, QUERY or SUMMARY behind CREATE"
        )

    def _new_name(self, what: str) -> dict[str, Any]:
        if self.sees("IF", "NOT", "EXISTS"):
            raise self.fault("IF NOT EXISTS is not part of CQL", hint="Name what is to be created.")
        name, span = self.name(what)
        return {"name": name, "name_span": span}

    def _create_query(self) -> CreateQuery:
        named = self._new_name("the new query")
        if self._column_names():
            raise self.fault(
                "columns are named for a query",
                hint="Write SELECT expression AS name, ... in the query.",
            )
        options = self._options("=") if self.accept("WITH") else {}
        self.expect("AS", hint="Write CREATE QUERY name [WITH (...)] AS SELECT ...")
        start = self.here()
        query = self.query()
        return CreateQuery(
            query=query, options=options, query_span=self.since(start), **named, **self.frame()
        )

    def _create_derived(self, kind: str, named: dict[str, Any]) -> CreateDerived:
        start, first = self.here(), self._index
        query = self.query()
        relation = written = self.since(start)
        if isinstance(query, RelationToStream):
            relation = Span(self._tokens[first + 2].start, self._prev.start)
        return CreateDerived(
            kind=kind,
            query=query,
            query_span=written,
            relation_span=relation,
            **named,
            **self.frame(),
        )

    def _column_names(self) -> dict[str, Any]:
        """Read `(a, b)` if AS follows: the column names of a derived stream or relation."""
        place = self._index
        while place + 1 < len(self._tokens) and (
            self._tokens[place].token_type in (TokenType.L_PAREN, TokenType.COMMA)
            and self._tokens[place + 1].token_type in self.ID_VAR_TOKENS
        ):
            place += 2
        behind = [token.token_type for token in self._tokens[place : place + 2]]
        if place == self._index or behind != [TokenType.R_PAREN, TokenType.ALIAS]:
            return {}
        names: list[str] = []
        while not self.accept_symbol(TokenType.R_PAREN):
            self._advance()
            name, span = self.name("a column")
            if name.lower() in (other.lower() for other in names):
                raise self.fault(f'column "{name}" is named twice', code="CQL-209", span=span)
            names.append(name)
        return {"columns": tuple(names)}

    # Streams

    def _create_stream(self) -> Statement:
        named = self._new_name("the new stream")
        columns_named = self._column_names()
        if self.accept("AS"):
            return self._create_derived("stream", {**named, **columns_named})
        columns, keys = self._columns("stream")
        if keys is not None:
            raise self.fault(
                "a stream has no primary key",
                detail="A stream's elements are a bag, and equal ones may come again.",
                hint="Drop PRIMARY KEY, or declare a RELATION.",
                span=keys[1],
            )
        clauses: dict[str, Any] = {}
        while not self.at_end():
            if self._timestamp_by(clauses):
                clauses["timestamp_span"] = self.behind()
            elif self._lateness(clauses):
                continue
            elif self.sees("RETAIN"):
                self._once(clauses, "retain")
                self._retain(clauses)
            elif not self._using(clauses):
                self.fail_expecting(
                    "TIMESTAMP BY, DELAY, IDLE AFTER, AHEAD, RETAIN, USING or the end of the"
                    " statement"
                )
        return CreateStream(columns=columns, **clauses, **named, **self.frame())

    def _timestamp_by(self, clauses: dict[str, Any]) -> bool:
        if not self.sees("TIMESTAMP"):
            return False
        self._once(clauses, "timestamp_by")
        self.expect("BY", hint="Write TIMESTAMP BY column.")
        clauses["timestamp_by"], _ = self.name("the timestamp column")
        return True

    def _lateness(self, clauses: dict[str, Any]) -> bool:
        """Read DELAY, IDLE AFTER or AHEAD, which need timestamps in a column."""
        if self.sees("DELAY"):
            self._once(clauses, "delay", needs="timestamp_by")
            clauses["delay"] = self.duration("DELAY", zero=True)
            return True
        if self.sees("IDLE"):
            self._once(clauses, "idle_after", needs="timestamp_by")
            self.expect("AFTER", hint="Write IDLE AFTER INTERVAL 30 SECONDS.")
            clauses["idle_after"] = self.duration("IDLE AFTER")
            return True
        if self.sees("AHEAD"):
            self._once(clauses, "ahead", needs="timestamp_by")
            unbounded = self.accept("UNBOUNDED")
            clauses["ahead"] = END if unbounded else self.duration("AHEAD", zero=True)
            return True
        return False

    def _retain(self, clauses: dict[str, Any]) -> None:
        if self._curr.token_type is TokenType.NUMBER and self._next.text.upper() in ("ROWS", "ROW"):
            clauses["retain_rows"] = self.row_count("RETAIN")
            self._advance()
        elif self._curr.token_type is TokenType.DASH:
            clauses["retain_rows"] = self.row_count("RETAIN")
        else:
            clauses["retain"] = self.duration("RETAIN")

    def _once(self, clauses: dict[str, Any], key: str, needs: str | None = None) -> None:
        """Read a clause's first word, and check that the clause may stand here."""
        word = self._curr.text.upper()
        keys = ("retain", "retain_rows") if key == "retain" else (key,)
        if any(k in clauses for k in keys):
            raise self.fault(f"a second {word} clause", hint="Keep one of them.")
        if needs is not None and needs not in clauses:
            raise self.fault(
                f"{word} without TIMESTAMP BY",
                detail=f"{word} is about the timestamps in a column; without TIMESTAMP BY an "
                "element's timestamp is its arrival.",
                hint=f"Write TIMESTAMP BY column {word} ..., or drop {word}.",
            )
        self._advance()

    # Relations

    def _create_relation(self, *, non_retroactive: bool) -> Statement:
        named = self._new_name("the new relation")
        columns_named = self._column_names()
        if self.sees("AS"):
            if non_retroactive:
                raise self.fault(
                    "a derived relation cannot be NON RETROACTIVE",
                    hint="Write CREATE RELATION name AS ..., or declare its columns.",
                )
            self._advance()
            return self._create_derived("relation", {**named, **columns_named})
        columns, keys = self._columns("relation")
        clauses: dict[str, Any] = {}
        while not self.at_end():
            if self._timestamp_by(clauses):
                clauses["timestamp_span"] = self.behind()
            elif self._lateness(clauses) or self._using(clauses):
                continue
            elif self.sees("RETAIN"):
                raise self.fault(
                    "RETAIN is a clause of streams",
                    hint="Drop it, or declare a STREAM.",
                )
            else:
                self.fail_expecting(
                    "TIMESTAMP BY, DELAY, IDLE AFTER, AHEAD, USING or the end of the statement"
                )
        return CreateRelation(
            columns=columns,
            primary_key=keys[0] if keys else (),
            non_retroactive=non_retroactive,
            **clauses,
            **named,
            **self.frame(),
        )

    # Columns

    def _columns(
        self, kind: str
    ) -> tuple[tuple[ColumnDef, ...], tuple[tuple[str, ...], Span] | None]:
        self.expect_symbol(
            TokenType.L_PAREN,
            "(",
            f"Declare columns, CREATE {kind.upper()} name (column TYPE, ...), or derive it: "
            f"CREATE {kind.upper()} name AS SELECT ...",
        )
        columns: list[ColumnDef] = []
        keys: tuple[tuple[str, ...], Span] | None = None
        while True:
            start = self.here()
            if self._primary_key():
                found = self._key_columns(), self.since(start)
                keys = self._only_key(keys, found)
            else:
                columns.append(self._column())
                key_start = self.here()
                if self._primary_key():
                    keys = self._only_key(keys, ((columns[-1].name,), self.since(key_start)))
                    if self.accept("NOT", "NULL"):
                        columns[-1] = replace(columns[-1], required=True)
            if not self.accept_symbol(TokenType.COMMA):
                break
        if not self.sees_symbol(TokenType.R_PAREN):
            self.fail_expecting('"," or ")" behind a column')
        if not columns:
            raise self.fault("no column is declared", hint="Write (column TYPE, ...).")
        self._advance()
        return tuple(columns), keys

    def _primary_key(self) -> bool:
        return self.accept("PRIMARY KEY") or self.accept("PRIMARY", "KEY")

    def _key_columns(self) -> tuple[str, ...]:
        self.expect_symbol(TokenType.L_PAREN, "(", "Write PRIMARY KEY (column, ...).")
        names = [self.name("a key column")[0]]
        while self.accept_symbol(TokenType.COMMA):
            names.append(self.name("a key column")[0])
        self.expect_symbol(TokenType.R_PAREN, ")")
        return tuple(names)

    def _only_key(
        self,
        keys: tuple[tuple[str, ...], Span] | None,
        found: tuple[tuple[str, ...], Span],
    ) -> tuple[tuple[str, ...], Span]:
        if keys is not None:
            raise self.fault(
                "a second primary key",
                hint="Write one PRIMARY KEY (column, ...) over all its columns.",
                span=found[1],
            )
        return found

    def _column(self) -> ColumnDef:
        start = self.here()
        name, _ = self.name("a column")
        if self.sees_symbol(TokenType.COMMA) or self.sees_symbol(TokenType.R_PAREN):
            self.fail_expecting(f'the type of column "{name}"', "Write for example: delay DOUBLE.")
        words = [self.name(f'the type of column "{name}"')[0]]
        for more in _MORE_TYPE_WORDS:
            if self.accept(*more):
                words += more
        type_text = " ".join(words)
        if self.accept_symbol(TokenType.L_PAREN):
            numbers = [self.whole_number("a type's parameter")[0]]
            while self.accept_symbol(TokenType.COMMA):
                numbers.append(self.whole_number("a type's parameter")[0])
            self.expect_symbol(TokenType.R_PAREN, ")")
            type_text += f"({', '.join(map(str, numbers))})"
        span = self.since(start)
        return ColumnDef(name, type_text, span, required=self.accept("NOT", "NULL"))

    # Summaries

    def _create_summary(self) -> CreateSummary:
        named = self._new_name("the new summary")
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

    # Sources and options

    def _using(self, clauses: dict[str, Any]) -> bool:
        if self.sees("OPTIONS"):
            raise self.fault("OPTIONS without USING", hint="Write USING format OPTIONS (...).")
        if not self.sees("USING"):
            return False
        start = self.here()
        self._once(clauses, "source")
        name, _ = self.name("a source's format")
        format_name = name if self._prev.token_type is TokenType.IDENTIFIER else name.lower()
        options = {}
        if self.accept("OPTIONS"):
            options = {key: _as_text(value) for key, value in self._options("").items()}
        clauses["source"] = SourceClause(format_name, options, self.since(start))
        return True

    def _options(self, sign: str) -> dict[str, Any]:
        """Read `(key value, ...)`; a `sign` "=" must stand between key and value."""
        self.expect_symbol(TokenType.L_PAREN, "(", "Options stand in brackets.")
        options: dict[str, Any] = {}
        while not self.accept_symbol(TokenType.R_PAREN):
            start = self.here()
            key = self._option_key()
            if key in options:
                raise self.fault(
                    f'option "{key}" is given twice',
                    hint="Keep one of them.",
                    span=self.since(start),
                )
            if sign:
                self.expect_symbol(TokenType.EQ, "=", f"Write {key} = value.")
            else:
                self.accept_symbol(TokenType.EQ)
            options[key] = self._option_value(key)
            if not self.accept_symbol(TokenType.COMMA) and not self.sees_symbol(TokenType.R_PAREN):
                self.fail_expecting('"," or ")" behind an option')
        return options

    def _option_key(self) -> str:
        if self._curr.token_type is TokenType.STRING:
            self._advance()
            return self._prev.text.lower()
        key, _ = self.name("an option")
        while self.accept_symbol(TokenType.DOT):
            key += f".{self.name('an option')[0]}"
        return key.lower()

    def _option_value(self, key: str) -> Any:
        kind = self._curr.token_type
        if kind is TokenType.STRING:
            self._advance()
            return self._prev.text
        if self.sees("INTERVAL"):
            return duration_text(self.duration(f'option "{key}"', zero=True))
        if self.accept("TRUE"):
            return True
        if self.accept("FALSE"):
            return False
        negative = self.accept_symbol(TokenType.DASH)
        if self._curr.token_type is TokenType.NUMBER and len(self._curr.text) <= 30:
            self._advance()
            text = self._prev.text
            number: float = int(text) if text.isdigit() else float(text)
            if number != float("inf"):
                return -number if negative else number
            self._advance(-1)
        self.fail_expecting(
            f'a value of option "{key}": a string, a number, an INTERVAL, TRUE or FALSE',
            "Put words in 'single quotes'.",
        )

    # ALTER and DROP

    def alter(self) -> Alter:
        """Read what follows ALTER."""
        kind = "stream" if self.accept("STREAM") else "query"
        if kind == "query":
            self.expect("QUERY", hint="Queries are altered: ALTER QUERY name SET (...).")
        name, span = self.name(f"a {kind}")
        self.expect("SET", hint=f"Write ALTER {kind.upper()} name SET (active = true, ...).")
        start = self.here()
        options = self._options("=")
        if not options:
            raise self.fault("no option is set", span=self.since(start))
        return Alter(kind=kind, name=name, options=options, name_span=span, **self.frame())

    def drop(self) -> Drop:
        """Read what follows DROP."""
        for kind in _DROPPABLE:
            if self.accept(kind):
                if self.sees("IF", "EXISTS"):
                    raise self.fault("IF EXISTS is not part of CQL", hint="Name what is to go.")
                name, span = self.name(f"a {kind.lower()}")
                return Drop(kind=kind.lower(), name=name, name_span=span, **self.frame())
        self.fail_expecting("QUERY, STREAM, RELATION or SUMMARY behind DROP")


def _as_text(value: Any) -> str:
    """Write an option's value as the text that sources take."""
    return str(value).lower() if isinstance(value, bool) else str(value)
