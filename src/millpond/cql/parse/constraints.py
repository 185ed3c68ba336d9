"""Reading constraints of streams."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from millpond.cql.parse.option_lists import OptionParser
from millpond.model.constraints import CLUSTERED, FOREIGN_KEY, ORDERED, UNIQUE, Constraint

_FORMS = "CLUSTERED BY, ORDERED BY, FOREIGN KEY or UNIQUE"


class ConstraintParser(OptionParser):
    """Reads constraints."""

    def sees_constraint(self) -> bool:
        """Whether a constraint begins here, and no column that is called so."""
        if self.sees("UNIQUE"):
            return bool(self._next) and self._next.token_type is TokenType.L_PAREN
        behind = self._tokens[self._index + 2 : self._index + 3]
        words = ("CLUSTERED", "ORDERED", "FOREIGN", "FOREIGN KEY", "UNIQUE")
        return self.sees("CONSTRAINT") and any(t.text.upper() in words for t in behind)

    def constraint(self) -> Constraint:
        """Read `CONSTRAINT name form`, or `UNIQUE (…)` without a name."""
        name = None
        if self.accept("CONSTRAINT"):
            name, _ = self.name("the constraint")
        if self.accept("UNIQUE"):
            columns = self._constrained_columns()
            return Constraint(name or f"unique_{'_'.join(columns)}".lower(), UNIQUE, columns)
        if name is None:
            self.fail_expecting("CONSTRAINT or UNIQUE", f"Write CONSTRAINT name {_FORMS}.")
        if self.accept("CLUSTERED"):
            self.expect("BY", hint="Write CLUSTERED BY (column, ...) WITHIN 5 ROWS.")
            return Constraint(
                name, CLUSTERED, self._constrained_columns(), None, *self._adherence()
            )
        if self.accept("ORDERED"):
            self.expect("BY", hint="Write ORDERED BY (column) WITHIN 5 ROWS.")
            start = self.here()
            columns = self._constrained_columns()
            if len(columns) > 1:
                raise self.fault(
                    "an order of several columns",
                    hint="Write ORDERED BY (column).",
                    span=self.since(start),
                )
            return Constraint(name, ORDERED, columns, None, *self._adherence())
        if self.accept("FOREIGN KEY") or self.accept("FOREIGN", "KEY"):
            columns = self._constrained_columns()
            self.expect("REFERENCES", hint="Write FOREIGN KEY (column) REFERENCES stream.")
            references, _ = self.name("the stream that is referred to")
            return Constraint(name, FOREIGN_KEY, columns, references, *self._adherence())
        self.fail_expecting(f"{_FORMS} behind CONSTRAINT {name}")

    def _constrained_columns(self) -> tuple[str, ...]:
        self.expect_symbol(TokenType.L_PAREN, "(", "Write (column, ...).")
        names: list[str] = []
        while not names or self.accept_symbol(TokenType.COMMA):
            name, span = self.name("a column")
            if name.lower() in [known.lower() for known in names]:
                raise self.fault(
                    f'the constraint names column "{name}" twice', hint="Name it once.", span=span
                )
            names.append(name)
        self.expect_symbol(TokenType.R_PAREN, ")")
        return tuple(names)

    def _adherence(self) -> tuple[int | None, int | None]:
        """Read `WITHIN n ROWS` or `WITHIN INTERVAL …`: k as a number, or as a length of time."""
        if not self.accept("WITHIN"):
            return 0, None
        start = self.here()
        if self.sees_symbol(TokenType.DASH):
            raise self.fault(
                "what stands behind WITHIN is below zero",
                hint="Write WITHIN 5 ROWS, or WITHIN INTERVAL 3 SECONDS.",
                span=start,
            )
        if self._next and self._next.text.upper() in ("ROW", "ROWS"):
            count, _ = self.whole_number("the number of rows behind WITHIN")
            self._advance()
            if count > MOST_ROWS:
                raise self.fault(
                    "the number of rows behind WITHIN is too great",
                    hint=f"At most {MOST_ROWS}.",
                    span=self.since(start),
                )
            return count, None
        return None, self.duration("WITHIN", zero=True)


#: The greatest k in rows: an order keeps so many values.
MOST_ROWS = 1_000_000
