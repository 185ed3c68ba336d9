"""UPDATE and DELETE: checks their expressions over a relation's rows, then changes the rows."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.catalog.objects import RelationDef
from millpond.cql import print_query, span_of, to_duckdb
from millpond.cql.tree import statements
from millpond.cql.tree.nodes import SummaryEstimate
from millpond.errors import MillpondError, Span
from millpond.model.casts import cast_value
from millpond.model.duckdb_words import quote_name
from millpond.model.schema import Field
from millpond.planner.resolve.names import did_you_mean
from millpond.planner.resolve.user_functions import name_functions
from millpond.service.components import Components
from millpond.service.ingest.relations import Uncomputable
from millpond.service.statements.answers_by_row import answer_by_row, look_up_row
from millpond.service.statements.insert_values import cast_expression
from millpond.service.statements.subqueries import answer_subqueries, reads_the_row


class RowChange:
    """The change an UPDATE or a DELETE makes to a relation's rows."""

    def __init__(
        self,
        components: Components,
        relation: RelationDef,
        statement: statements.Update | statements.Delete,
    ) -> None:
        self._components = components
        self._relation = relation
        self._statement = statement
        #: What the statement's expressions look up, by the names of the tables.
        self._answers: dict[str, pa.Table] = {}

    def apply_at(self, at: int) -> int:
        """Make the change at an instant; return the number of rows it changes.

        Raises:
            MillpondError: CQL-2xx for a wrong expression, CQL-205 for a constant that does not fit
                its column, POND-404 for a value that cannot be computed, POND-408 for the keys.
        """
        where = self._statement.where
        self._check(where)
        condition = self._sql(where, at) if where is not None else None
        relations = self._components.relations_state
        values: dict[str, exp.Expression] = {}
        try:
            if isinstance(self._statement, statements.Delete):
                return relations.delete(self._relation, condition, at, self._answers)
            assignments = {}
            for name, value in self._statement.assignments:
                field = self._field(name)
                self._check(value, boolean=False)
                is_text = isinstance(value, exp.Literal)
                assignments[field.name] = (
                    cast_expression(value, field) if is_text else self._sql(value, at)
                )
                values[field.name] = value
                if value.find(exp.Column) is None:
                    self._check_constant(field, value, assignments[field.name])
            return relations.update(self._relation, assignments, condition, at, self._answers)
        except Uncomputable as failure:
            failed = where if failure.column is None else values[failure.column]
            assert failed is not None
            raise failure.error.at(self._statement.text, span_of(failed)) from failure

    def _field(self, name: str) -> Field:
        schema = self._relation.schema
        if (field := schema.find(name)) is not None:
            return field
        raise self._statement.error(
            "CQL-202",
            f'no column "{name}" in "{self._relation.name}"',
            detail=f"Its columns are {', '.join(schema.names)}.",
            hint=did_you_mean(name, schema.names) or "Name one of these.",
        )

    def _sql(self, value: exp.Expression, at: int) -> str:
        """Print DuckDB's SQL, with user-defined functions under their names in DuckDB."""
        named = value.copy()
        if named.find(exp.Query) is not None:
            if reads_the_row(named, self._components):
                return self._look_up(named, at)
            named = answer_subqueries(named, self._components, at, self._statement.text)
        name_functions(named, self._components.registrar.names)
        return to_duckdb(named)

    def _look_up(self, value: exp.Expression, at: int) -> str:
        """Answer an expression for every row, and write the SQL that looks its value up."""
        table = f"__answers_{len(self._answers)}"
        try:
            answers = answer_by_row(value, self._relation, self._components, at)
        except MillpondError as error:
            raise error.at(self._statement.text, span_of(value)) from error
        self._answers[table] = answers
        return look_up_row(table, self._relation)

    def _check_constant(self, field: Field, value: exp.Expression, sql: str) -> None:
        """Refuse a constant that does not fit its column, even if the relation has no rows."""
        try:
            self._components.residual.evaluate(f"SELECT {cast_value(sql, field.type)}", {})
        except MillpondError as error:
            if error.code == "POND-405":
                raise error.at(self._statement.text, span_of(value)) from error
            raise MillpondError(
                "CQL-205",
                f'a value does not fit column "{field.name}" of "{self._relation.name}"',
                detail=error.detail,
                hint=f"The column is {field.type}.",
                text=self._statement.text,
                span=span_of(value),
            ) from error

    def _check(self, value: exp.Expression | None, boolean: bool = True) -> None:
        """Bind an expression as the WHERE or the SELECT list of a query over the relation.

        SET must compute one value for each row, so its expressions are bound in a WHERE too.
        """
        if value is None:
            return
        name = quote_name(self._relation.name)
        text = print_query(value)
        before = f"SELECT * FROM {name} WHERE " if boolean else "SELECT "
        behind = "" if boolean else f" FROM {name}"
        if value.find(SummaryEstimate) is not None:
            raise MillpondError(
                "CQL-224",
                f"an estimate in {'WHERE' if boolean else 'SET'}",
                detail="Rows are changed by their own values.",
                hint="Ask the estimate in a query, and write the number it gives.",
                text=self._statement.text,
                span=span_of(value),
            )
        try:
            self._components.registrar.bind(before + text + behind)
            if not boolean:
                self._check_row_wise(f"SELECT * FROM {name} WHERE ({text}) IS NULL")
        except MillpondError as error:
            error.text, error.span = self._statement.text, self._place(value, text, before, error)
            raise

    def _place(
        self, value: exp.Expression, printed: str, before: str, error: MillpondError
    ) -> Span | None:
        """Find an error's place in the statement: a part of the expression, or all of it."""
        whole = span_of(value)
        if whole is None:
            return self._statement.name_span
        start = self._statement.text.find(printed, whole.start)
        if error.span is None or start != whole.start or error.span.start < len(before):
            return whole
        return error.span.shift(start - len(before))

    def _check_row_wise(self, probe: str) -> None:
        try:
            self._components.registrar.bind(probe)
        except MillpondError as error:
            raise MillpondError(
                "CQL-206",
                "the value in SET is not computed from one row",
                detail="Aggregates, window functions and UNNEST speak of several rows.",
                hint="Compute it in a query, and set the constant it gives.",
            ) from error
