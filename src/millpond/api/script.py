"""A script, statement by statement: what it gives comes out as it is given.

The script is parsed whole first, so a script with an error in its grammar does nothing at all. It
is then run in runs of statements that end with one that answers (INVOKE, a query, EXPLAIN, SHOW,
DESCRIBE): statements that only register or declare reach the pond together, which registers a
thousand queries at the price of a few, and answers are out before a later statement can fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millpond.api.surface import Statements
from millpond.cql import statements as cql
from millpond.cql import parse_script
from millpond.cql.statements import Statement
from millpond.errors import MillpondError
from millpond.service.results import StatementResult

#: The statements that answer with rows as of an instant.
ANSWERED = (cql.Invoke, cql.Ask, cql.Fetch)

#: The statements whose results a reader waits for.
_SHOWING = (*ANSWERED, cql.Explain, cql.Show, cql.Describe)


@dataclass(frozen=True)
class Script:
    """A text and its statements."""

    text: str
    statements: tuple[Statement, ...]

    @staticmethod
    def parse(text: str) -> Script:
        """The script of a text.

        Raises:
            MillpondError: CQL-1xx, with its place in `text`.
        """
        return Script(text, tuple(parse_script(text)))

    @property
    def answered(self) -> int:
        """How many statements answer with rows as of an instant."""
        return sum(isinstance(s, ANSWERED) for s in self.statements)

    def run(self, pond: Statements) -> Iterator[StatementResult]:
        """Each statement's result, in order.

        Raises:
            MillpondError: a statement's error, with its place in the script; the results of the
                runs before it have been given, and what they did stays done.
        """
        for part in _runs(self.statements):
            start = part[0].offset
            chunk = self.text[start : part[-1].offset + len(part[-1].text)]
            try:
                yield from pond.execute(chunk)
            except MillpondError as error:
                raise self._placed(error, start) from error

    def _placed(self, error: MillpondError, start: int) -> MillpondError:
        """The error with its place in the script, not in the statement or the run."""
        if error.span is not None and error.text is not None:
            offset = self.text.find(error.text, start)
            if offset >= 0:
                error.text, error.span = self.text, error.span.shifted(offset)
        return error


def _runs(statements: Sequence[Statement]) -> Iterator[list[Statement]]:
    run: list[Statement] = []
    for statement in statements:
        run.append(statement)
        if isinstance(statement, _SHOWING):
            yield run
            run = []
    if run:
        yield run
