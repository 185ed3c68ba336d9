"""Reading definitions: CREATE, ALTER and DROP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.sinks import SinkParser
from millpond.cql.tree.nodes import RelationToStream
from millpond.cql.tree.statements import (
    AddColumn,
    Alter,
    AlterConstraint,
    AlterSystem,
    CreateDerived,
    CreateQuery,
    CreateRelation,
    CreateStream,
    Drop,
    ResetClock,
    SourceClause,
    Statement,
)
from millpond.errors import Span
from millpond.model.time import END

#: The kinds of what statements create, and drop.
CREATED = ("QUERY", "STREAM", "RELATION", "SUMMARY", "SINK")


class DefinitionParser(SinkParser):
    """Reads definitions."""

    def create(self) -> Statement:
        """Read what follows CREATE."""
        place = self.here()
        if self.accept("OR", "REPLACE"):
            if not self.accept("QUERY"):
                raise self.fault(
                    "only a query is replaced",
                    hint="ALTER the object, or DROP it first. Elements and readers depend on it.",
                    span=self.since(place),
                )
            return self._create_query(or_replace=True)
        if self.accept("QUERY"):
            return self._create_query(or_replace=False)
        if self.accept("STREAM"):
            return self._create_stream()
        if self.accept("NON"):
            self.expect("RETROACTIVE")
            self.expect("RELATION")
            return self._create_relation(non_retroactive=True)
        if self.accept("RELATION"):
            return self._create_relation(non_retroactive=False)
        if self.accept("SUMMARY"):
            return self.create_summary()
        if self.accept("SINK"):
            return self.create_sink()
        if self.sees("TABLE") or self.sees("VIEW") or self.sees("MATERIALIZED"):
            self.fail_expecting(
                "STREAM, RELATION, QUERY, SUMMARY or SINK behind CREATE",
                "A table is a RELATION, and a view is CREATE RELATION name AS SELECT ...",
            )
        self.fail_expecting(
            "STREAM, RELATION, NON RETROACTIVE RELATION, QUERY, SUMMARY or SINK behind CREATE"
        )

    def _create_query(self, *, or_replace: bool) -> CreateQuery:
        place = self.here()
        named = self.new_name("the new query")
        if or_replace and named["if_not_exists"]:
            raise self.fault(
                "a query is created unless it exists, or replaced",
                hint="Keep one of OR REPLACE and IF NOT EXISTS.",
                span=place,
            )
        if self._column_names():
            raise self.fault(
                "columns are named for a query",
                hint="Write SELECT expression AS name, ... in the query.",
            )
        constants: dict[str, str] = {}
        options = self.options("=", constants) if self.accept("WITH") else {}
        self.expect("AS", hint="Write CREATE QUERY name [WITH (...)] AS SELECT ...")
        start = self.here()
        filled, template = self.fill_parameters(constants) if constants else ("", "")
        query = self.query()
        return CreateQuery(
            query=query,
            options=options,
            constants=constants,
            template=template,
            filled_text=filled,
            or_replace=or_replace,
            query_span=self.since(start),
            **named,
            **self.frame(),
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
        named = self.new_name("the new stream")
        columns_named = self._column_names()
        if self.accept("AS"):
            return self._create_derived("stream", {**named, **columns_named})
        columns, keys, constraints = self.columns("stream")
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
            elif self.sees("WITH"):
                self._once(clauses, "options")
                clauses["options"] = self.options("=")
            elif self._using(clauses):
                clauses["source"] = self._history(clauses["source"])
            else:
                self.fail_expecting(
                    "TIMESTAMP BY, DELAY, IDLE AFTER, AHEAD, RETAIN, USING, WITH or the end of the"
                    " statement"
                )
        return CreateStream(
            columns=columns, constraints=constraints, **clauses, **named, **self.frame()
        )

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
        named = self.new_name("the new relation")
        columns_named = self._column_names()
        if self.sees("AS"):
            if non_retroactive:
                raise self.fault(
                    "a derived relation cannot be NON RETROACTIVE",
                    hint="Write CREATE RELATION name AS ..., or declare its columns.",
                )
            self._advance()
            return self._create_derived("relation", {**named, **columns_named})
        columns, keys, _ = self.columns("relation")
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

    # Sources

    def _using(self, clauses: dict[str, Any]) -> bool:
        if self.sees("OPTIONS"):
            raise self.fault("OPTIONS without USING", hint="Write USING format OPTIONS (...).")
        if not self.sees("USING"):
            return False
        start = self.here()
        self._once(clauses, "source")
        clauses["source"] = self._format_and_options(start)
        return True

    def _format_and_options(self, start: Span) -> SourceClause:
        name, _ = self.name("a source's format")
        format_name = name if self._prev.token_type is TokenType.IDENTIFIER else name.lower()
        options = {}
        if self.accept("OPTIONS"):
            options = {key: _as_text(value) for key, value in self.options("").items()}
        return SourceClause(format_name, options, self.since(start))

    def _history(self, source: SourceClause) -> SourceClause:
        """Read `[UNTIL TIMESTAMP '…'] THEN format OPTIONS (…)`: the source is history, then."""
        until = None
        written = "Write USING parquet OPTIONS (...) UNTIL TIMESTAMP '2026-01-01' THEN push."
        if self.accept("UNTIL"):
            self.expect("TIMESTAMP", hint=written)
            until = self.timestamp()
        elif not self.sees("THEN"):
            return source
        start = self.here()
        self.expect("THEN", hint=written)
        return replace(source, until=until, then=self._format_and_options(start))

    # ALTER and DROP

    def alter(self) -> AddColumn | Alter | AlterConstraint | AlterSystem | ResetClock:
        """Read what follows ALTER."""
        if self.accept("SYSTEM"):
            self.expect("SET", hint="Write ALTER SYSTEM SET (queue_memory = '256 MB', ...).")
            return AlterSystem(options=self._some_options(), **self.frame())
        kind = next((k for k in ("stream", "sink") if self.accept(k.upper())), "query")
        if kind == "query" and not self.accept("QUERY"):
            self.fail_expecting(
                "STREAM, QUERY, SINK or SYSTEM",
                "Write ALTER STREAM name ADD COLUMN column TYPE, or ALTER QUERY name SET (...)."
                " Anything else is dropped, and created otherwise.",
            )
        name, span = self.name(f"a {kind}")
        if kind == "stream" and self.accept("RESET"):
            self.expect("CLOCK", hint="Write RESET CLOCK TO TIMESTAMP '2024-01-01 00:00:00'.")
            self.expect("TO", hint="Write RESET CLOCK TO TIMESTAMP '2024-01-01 00:00:00'.")
            self.expect("TIMESTAMP", hint="Write TO TIMESTAMP 'YYYY-MM-DD HH:MM:SS'.")
            return ResetClock(name=name, to=self.timestamp(), name_span=span, **self.frame())
        if kind == "stream" and self.accept("ADD", "COLUMN"):
            return self._add_column(name, span)
        if kind == "stream" and self.accept("ADD"):
            if not (self.sees("CONSTRAINT") or self.sees("UNIQUE")):
                self.fail_expecting(
                    "COLUMN, CONSTRAINT or UNIQUE",
                    "Write ALTER STREAM name ADD COLUMN column TYPE, or ADD CONSTRAINT name ....",
                )
            add = self.constraint()
            return AlterConstraint(name=name, add=add, name_span=span, **self.frame())
        if kind == "stream" and self.accept("DROP"):
            self.expect(
                "CONSTRAINT",
                hint="Write ALTER STREAM name DROP CONSTRAINT name. A column that was added stays;"
                " queries can leave it out.",
            )
            drop, _ = self.name("a constraint")
            return AlterConstraint(name=name, drop=drop, name_span=span, **self.frame())
        self._expect_alteration(kind)
        constants: dict[str, str] = {}
        options = self._some_options(constants if kind == "query" else None)
        return Alter(
            kind=kind,
            name=name,
            options=options,
            constants=constants,
            name_span=span,
            **self.frame(),
        )

    def _expect_alteration(self, kind: str) -> None:
        if self.accept("SET"):
            return
        if kind == "stream":
            self.fail_expecting(
                "SET, ADD COLUMN, ADD CONSTRAINT, DROP CONSTRAINT or RESET CLOCK",
                "Write ALTER STREAM name SET (retain = '1 day', ...), or ADD COLUMN column TYPE."
                " Names and types of columns stay as they are.",
            )
        self.fail_expecting("SET", f"Write ALTER {kind.upper()} name SET (active = true, ...).")

    def _add_column(self, name: str, span: Span) -> AddColumn:
        if_not_exists = self.accept("IF", "NOT", "EXISTS")
        column = self.column()
        if self.sees("DEFAULT"):
            raise self.fault(
                "a default of a column",
                detail="Elements from before, and rows without the column, have NULL there.",
                hint=f"Leave DEFAULT out, and write coalesce({column.name}, ...) in queries.",
            )
        return AddColumn(
            name=name,
            column=column,
            if_not_exists=if_not_exists,
            name_span=span,
            **self.frame(),
        )

    def _some_options(self, constants: dict[str, str] | None = None) -> dict[str, Any]:
        start = self.here()
        options = self.options("=", constants)
        if not options and not constants:
            raise self.fault("no option is set", span=self.since(start))
        return options

    def drop(self) -> Drop:
        """Read what follows DROP."""
        kind = self.created_kind("DROP")
        if_exists = self.accept("IF", "EXISTS")
        name, span = self.name(f"a {kind}")
        cascade = self.accept("CASCADE")
        return Drop(
            kind=kind,
            name=name,
            if_exists=if_exists,
            cascade=cascade,
            name_span=span,
            **self.frame(),
        )

    def created_kind(self, behind: str) -> str:
        """Read a kind of what statements create, which stands behind some words."""
        for kind in CREATED:
            if self.accept(kind):
                return kind.lower()
        self.fail_expecting(f"{', '.join(CREATED[:-1])} or {CREATED[-1]} behind {behind}")


def _as_text(value: Any) -> str:
    """Write an option's value as the text that sources take."""
    return str(value).lower() if isinstance(value, bool) else str(value)
