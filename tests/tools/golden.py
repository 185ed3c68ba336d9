"""Runs golden files: every golden in many ways, and the answers must be the same in all of them.

A golden describes a behaviour. A `Variation` says how to run the golden: how the feed is cut into
epochs, whether queries or data come first, among how many decoys, with which options, and how often
the pond is closed and opened again. By SEMANTICS section 7 none of that is part of the meaning, so
every variation has the same expected answers.

The oracle runs beside the pond under test, over the same epochs. Each answer is compared with the
file's table and with the oracle's `as_of`, `final` and exactness. A file that disagrees with the
oracle is wrong; running `run_golden` over an `OraclePond` finds such files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from sqlglot import exp
from tests.oracle.oracle_pond import OraclePond
from tests.tools import golden_table as cells
from tests.tools.decoys import decoys
from tests.tools.golden_feeds import GoldenFeeds
from tests.tools.golden_file import (
    Arrival,
    Expect,
    Failure,
    FeedRows,
    Golden,
    GoldenStep,
    MoveClock,
    Reopen,
    RunStatement,
    Table,
    read_golden,
)
from tests.tools.golden_ways import AS_WRITTEN, Variation, arrange
from tests.tools.under_pressure import choose_constraints, choose_settings

from millpond.cql import parse_statement
from millpond.cql.tree.statements import (
    AddColumn,
    Ask,
    CreateQuery,
    CreateRelation,
    CreateStream,
    Describe,
    Explain,
    Fetch,
    Show,
    ShowCreate,
    Statement,
)
from millpond.errors import MillpondError
from millpond.model import time
from millpond.service.pond import Pond
from millpond.testing.local_runtime import LocalRuntime
from millpond.testing.manual_clock import ManualClock


class PondUnderTest(Protocol):
    """The part of `millpond.service.pond.Pond` that a golden uses."""

    def execute(self, text: str) -> Sequence[Any]: ...
    def query(self, name: str) -> Any: ...
    def ingest(self, stream: str, rows: Any) -> Any: ...
    def catch_up(self) -> Any: ...
    def close(self) -> Any: ...


#: Opens the one store of a test, on the given clock; called again after every close.
MakePond = Callable[[ManualClock], PondUnderTest]


#: Types of columns that constraints by chance are about, as goldens write them.
_NUMBERS = ("INTEGER", "BIGINT", "SMALLINT")
_TEXTS = ("STRING", "VARCHAR")
_DROPS = (["DROP", "STREAM"], ["DROP", "RELATION"])


def run_golden(path: Path, make_pond: MakePond, variation: Variation = AS_WRITTEN) -> None:
    """Run a golden file in one way.

    Raises:
        AssertionError: the pond, the file and the oracle do not agree; it says what differs.
    """
    run_steps(read_golden(path), make_pond, variation)


def run_steps(golden: Golden, make_pond: MakePond, variation: Variation = AS_WRITTEN) -> None:
    """Run a golden that has been read."""
    _Performance(golden, make_pond, variation).run()


class _Performance:
    """One run of one golden: the pond under test, the oracle beside it, and the place reached."""

    def __init__(self, golden: Golden, make_pond: MakePond, variation: Variation) -> None:
        self.golden = golden
        self.make_pond = make_pond
        self.variation = variation
        self.clock = ManualClock()
        self.oracle = OraclePond(self.clock)
        self.feeds = GoldenFeeds(variation)
        self.steps = 0

    def run(self) -> None:
        self.pond = self._open()
        if isinstance(self.pond, OraclePond):
            self.oracle = self.pond
        try:
            for step in arrange(self.golden.steps, self.variation.order):
                self._take(step)
                self.steps += 1
                if self.variation.reopen_every and self.steps % self.variation.reopen_every == 0:
                    self._reopen()
        finally:
            self.pond.close()

    @property
    def alone(self) -> bool:
        """Whether the oracle is under test, so that answers are compared with the file only."""
        return isinstance(self.pond, OraclePond)

    def _take(self, step: GoldenStep) -> None:
        match step:
            case RunStatement(failure=Failure()) | Expect(failure=Failure()):
                self._fail(step)
            case RunStatement():
                self._execute(step)
            case FeedRows():
                self._feed(step)
            case MoveClock(_, at):
                self.clock.set(at)
                self.pond.catch_up()
            case Reopen():
                self._reopen()
            case Expect():
                self._catch_up()
                self._invoke(step)

    def _reopen(self) -> None:
        self.pond.close()
        self.pond = self._open()

    def _open(self) -> PondUnderTest:
        pond = self.make_pond(self.clock)
        if isinstance(pond, Pond):
            policy, shards = self.variation.routing
            pond.entities.set("eddies:all", {"routing": policy})
            pond.entities.set("joins:all", {"shards": shards})
            eager, lazy = self.variation.expiring
            pond.entities.set("changes:all", {"eager_expiration": eager, "lazy_expiration": lazy})
            runtime = pond._components.runtime
            if self.variation.spread and isinstance(runtime, LocalRuntime):
                runtime.spreads = True
                pond._components.invoker.scans.least_rows = 1
            if self.variation.pressure is not None:
                pond.alter_system(**choose_settings(self.variation.pressure))
                pond._components.advancer.sharded.always = 3
        return pond

    def _catch_up(self) -> None:
        if self.variation.is_matched and isinstance(self.pond, Pond):
            self.pond.wait_until_matched()
        else:
            self.pond.catch_up()

    # ── statements ──────────────────────────────────────────────────────────

    def _execute(self, step: RunStatement) -> None:
        statement = parse_statement(step.text)
        text = self._with_options(step.text) if isinstance(statement, CreateQuery) else step.text
        try:
            (result,) = self.pond.execute(text)
        except MillpondError as error:
            raise self._disagreement(step, error.render()) from error
        self._constrain(statement)
        expected = result if self.alone else self.oracle.execute(step.text)[0]
        self.pond.catch_up()
        if step.table is not None and isinstance(statement, Fetch):
            self._compare_changes(step, step.table, result.changes, expected.changes)
        elif isinstance(statement, Show | ShowCreate | Describe | Explain):
            if self.variation == AS_WRITTEN and not self.alone:
                self._look(step, result)  # with decoys and other options it would say more
        elif step.table is not None:
            ordered = (
                _is_ordered(statement.query)
                if isinstance(statement, Ask)
                else self._must_be_ordered(expected.name or "")
            )
            self._compare(step, step.table, result.answer, expected.answer, ordered)
        if isinstance(statement, CreateStream | CreateRelation):
            self._note_declaration(statement)
        if isinstance(statement, AddColumn):
            self.feeds.add_column(statement)

    def _look(self, step: RunStatement, result: Any) -> None:
        """Compare the output of a statement about the catalog, or of EXPLAIN."""
        if step.lines is not None and step.lines != tuple(result.text.split("\n")):
            expected = "\n".join(step.lines)
            raise self._disagreement(step, f"{result.text}\nexpected:\n{expected}")
        if step.table is None:
            return
        columns = tuple(result.table.column_names)
        shown = cells.show_rows([tuple(row.values()) for row in result.table.to_pylist()])
        if columns != step.table.columns:
            raise self._disagreement(step, f"columns {columns}, expected {step.table.columns}")
        if not cells.same_rows(step.table.rows, shown, ordered=True):
            raise self._disagreement(step, cells.diff(columns, step.table.rows, shown, True))

    def _with_options(self, text: str) -> str:
        """Add the variation's options to a CREATE QUERY, unless it has its own options."""
        if not self.variation.options or re.match(r"(?is)CREATE\s+QUERY\s+\S+\s+WITH\s*\(", text):
            return text
        options = ", ".join(f"{name} = '{value}'" for name, value in self.variation.options)
        return re.sub(r"(?is)^(CREATE\s+QUERY\s+\S+)\s+AS\b", rf"\1 WITH ({options}) AS", text)

    def _note_declaration(self, statement: CreateStream | CreateRelation) -> None:
        """Remember a stream's columns for its feeds, and register the decoys on the stream."""
        named = self.feeds.declare(statement)
        if any(isinstance(s, RunStatement) and s.words[:2] in _DROPS for s in self.golden.steps):
            return  # a decoy would still use the stream that the golden drops
        for name, cql in decoys(statement, named, self.variation.decoys):
            self.pond.execute(f"CREATE QUERY {name} AS {cql}")

    def _constrain(self, statement: Statement) -> None:
        """Give a stream that was created constraints by chance; one that has its own, none."""
        seed = self.variation.pressure
        if seed is None or self.alone or not isinstance(statement, CreateStream):
            return
        if statement.constraints or statement.if_not_exists:
            return
        of = {
            kind: [c.name for c in statement.columns if c.type.upper() in types]
            for kind, types in (("numbers", _NUMBERS), ("texts", _TEXTS))
        }
        for text in choose_constraints(seed, statement.name, **of):
            self.pond.execute(text)

    def _fail(self, step: RunStatement | Expect) -> None:
        expected = step.failure
        assert expected is not None
        if self.alone:
            return  # the oracle defines what queries mean, not which statements are wrong
        try:
            if isinstance(step, RunStatement):
                self.pond.execute(step.text)
            else:
                self.pond.query(step.query).invoke(at=step.at)
        except MillpondError as error:
            wrong = _mismatch(expected, error)
            if wrong:
                raise self._disagreement(step, f"{wrong}\n{error.render()}") from error
        else:
            raise self._disagreement(step, f"expected error {expected.code}, but it succeeded")

    # ── feeds ───────────────────────────────────────────────────────────────

    def _feed(self, step: FeedRows) -> None:
        for batch in self.feeds.epochs(step):
            self._epoch(step, batch)

    def _epoch(self, step: FeedRows, batch: list[Arrival]) -> None:
        if batch[0].clock is not None:
            self.clock.set(batch[0].clock)
        rows = [self._row(step, arrival) for arrival in batch]
        receipt = self.pond.ingest(step.stream, rows)
        if not self.alone:
            self.oracle.ingest(step.stream, rows)
        self.pond.catch_up()
        wanted = {place: a.rejected for place, a in enumerate(batch) if a.rejected is not None}
        rejects = {reject["row"]: str(reject["reason"]) for reject in receipt.rejects}
        agree = wanted.keys() == rejects.keys() and all(
            words.lower() in rejects[place].lower() for place, words in wanted.items()
        )
        counts = (receipt.accepted, receipt.rejected) == (len(rows) - len(wanted), len(wanted))
        if not agree or not counts:
            shown = "\n".join(f"  row {r} of the epoch: {why}" for r, why in rejects.items())
            raise self._disagreement(
                step,
                f"{receipt.accepted} rows accepted, {receipt.rejected} rejected:\n{shown}\n"
                f"expected rejects: {wanted}",
            )

    def _row(self, step: FeedRows, arrival: Arrival) -> dict[str, Any]:
        named = self.feeds.columns(step)
        if len(named) != len(arrival.cells):
            raise self._disagreement(step, f"{arrival.cells} does not fit {named}")
        return {
            name: cells.parse_cell(cell, kind)
            for (name, kind), cell in zip(named, arrival.cells, strict=True)
        }

    # ── answers ─────────────────────────────────────────────────────────────

    def _invoke(self, step: Expect) -> None:
        assert step.table is not None
        try:
            answer = self.pond.query(step.query).invoke(at=step.at)
        except MillpondError as error:
            raise self._disagreement(step, error.render()) from error
        expected = answer if self.alone else self.oracle.query(step.query).invoke(at=step.at)
        if step.as_of is not None and answer.as_of != step.as_of:
            raise self._disagreement(
                step, f"answered as of {time.format_instant(answer.as_of)}, not {step.as_of}"
            )
        if step.final is not None and answer.final != step.final:
            raise self._disagreement(step, f"the answer says final = {answer.final}")
        self._compare(step, step.table, answer, expected, self._must_be_ordered(step.query))

    def _must_be_ordered(self, query: str) -> bool:
        return _is_ordered(self.oracle.query(query).tree)

    def _compare(
        self, step: GoldenStep, table: Table, answer: Any, expected: Any, ordered: bool
    ) -> None:
        actual = cells.show_rows(answer.rows())
        columns = tuple(answer.columns)
        if columns != table.columns:
            raise self._disagreement(step, f"columns {columns}, expected {table.columns}")
        if not cells.same_rows(table.rows, actual, ordered):
            shown = cells.diff(table.columns, table.rows, actual, ordered)
            raise self._disagreement(step, f"as of {time.format_instant(answer.as_of)}\n{shown}")
        for name in ("as_of", "final"):
            one, other = getattr(answer, name), getattr(expected, name)
            if one != other:
                raise self._disagreement(step, f"{name} is {one}; by the definition it is {other}")
        if expected.exact and not answer.exact:
            raise self._disagreement(step, f"the answer says it is not exact: {answer.loss}")

    def _compare_changes(self, step: GoldenStep, table: Table, found: Any, expected: Any) -> None:
        """Compare FETCH's rows (cursor, instant, sign, values); their order has a meaning."""
        columns = ("cursor", "at", "change", *found.columns)
        if columns != table.columns:
            raise self._disagreement(step, f"columns {columns}, expected {table.columns}")
        for rows, by in ((expected.rows(), "the definition"), (found.rows(), "the pond")):
            actual = [
                (str(cursor), cells.show_instant(at), sign, *map(cells.show_cell, row))
                for cursor, at, sign, *row in rows
            ]
            if not cells.same_rows(table.rows, actual, True):
                shown = cells.diff(table.columns, table.rows, actual, True)
                raise self._disagreement(step, f"by {by}\n{shown}")
        if found.as_of != expected.as_of:
            one, other = map(time.format_instant, (found.as_of, expected.as_of))
            raise self._disagreement(step, f"changes up to {one}; by the definition to {other}")

    def _disagreement(self, step: GoldenStep, what: str) -> AssertionError:
        head = step.query if isinstance(step, Expect) else getattr(step, "text", "")
        at = getattr(step, "at", None)
        when = f" at {time.format_instant(at)}" if isinstance(at, int) else ""
        return AssertionError(
            f"{self.golden.path}:{step.line}: {head}{when}\n"
            f"({self.golden.behaviour}; run {self.variation})\n{what}"
        )


def _is_ordered(query: exp.Expression) -> bool:
    return query.args.get("order") is not None


def _mismatch(expected: Failure, error: MillpondError) -> str | None:
    if error.code != expected.code:
        return f"expected error {expected.code}, got {error.code}"
    if expected.words.lower() not in error.render().lower():
        return f"expected a message with {expected.words!r}"
    if expected.snippet is not None:
        marked = [line.rstrip().rstrip(";") for line in (error.snippet() or "").split("\n")]
        if [line[2:] for line in marked] != expected.snippet.split("\n"):
            return f"expected the mark\n{expected.snippet}"
    return None
