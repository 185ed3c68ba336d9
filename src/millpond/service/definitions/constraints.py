"""Constraints of streams: checks what is declared, and adds and drops constraints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.catalog.objects import StreamDef
from millpond.cql.tree.statements import AlterConstraint, CreateStream
from millpond.model.constraints import FOREIGN_KEY, ORDERED, UNIQUE, Constraint
from millpond.model.schema import Schema, arrow_type
from millpond.operators.structures.release_rules import is_ordered_number
from millpond.planner.resolve.names import did_you_mean
from millpond.service.definitions.find_column import find_column
from millpond.state.version import Version

_OF_NO_CONSTRAINT = "The stream has no constraints."


def check_constraints(
    statement: CreateStream | AlterConstraint,
    constraints: Sequence[Constraint],
    schema: Schema,
    version: Version,
) -> tuple[Constraint, ...]:
    """Check a stream's constraints; return them with the columns' names as declared.

    Of ALTER the last constraint is new. Foreign keys that were there before refer to what may be
    gone, which costs nothing but memory.

    Raises:
        MillpondError: CQL-201, CQL-202, CQL-208, CQL-216, CQL-301.
    """
    found: list[Constraint] = []
    for constraint in constraints:
        if constraint.name.lower() in (other.name.lower() for other in found):
            raise statement.error(
                "CQL-208",
                f'the stream has two constraints "{constraint.name}"',
                hint="Give one of them another name: CONSTRAINT name ...",
            )
        names = []
        for column in constraint.columns:
            purpose = f'for the constraint "{constraint.name}"'
            field = find_column(schema, column, purpose, statement.text, statement.name_span)
            if constraint.kind == ORDERED and not is_ordered_number(arrow_type(field.type)):
                raise statement.error(
                    "CQL-301",
                    f"an order of values of the type {field.type} is not available yet",
                    detail="Whole numbers, timestamps and dates can be ordered by.",
                    hint=f'Leave out the constraint "{constraint.name}".',
                )
            names.append(field.name)
        found.append(replace(constraint, columns=tuple(names)))
    new = found if isinstance(statement, CreateStream) else found[-1:]
    for constraint in new:
        if constraint.kind == FOREIGN_KEY:
            _check_reference(statement, constraint, found, version)
    return tuple(found)


def alter_constraints(statement: AlterConstraint, stream: StreamDef, version: Version) -> StreamDef:
    """Add a constraint to a stream, or drop one.

    Raises:
        MillpondError: CQL-201 if there is no constraint to drop; as `check_constraints`.
    """
    if statement.add is not None:
        wanted = (*stream.constraints, statement.add)
        return replace(
            stream, constraints=check_constraints(statement, wanted, stream.schema, version)
        )
    drop = (statement.drop or "").lower()
    names = [constraint.name for constraint in stream.constraints]
    left = tuple(c for c in stream.constraints if c.name.lower() != drop)
    if len(left) == len(names):
        listed = f"The constraints are {', '.join(names)}." if names else _OF_NO_CONSTRAINT
        raise statement.error(
            "CQL-201",
            f'no constraint "{statement.drop}" of the stream "{stream.name}"',
            detail=listed,
            hint=did_you_mean(statement.drop or "", names) or "SHOW CONSTRAINTS lists them.",
        )
    return replace(stream, constraints=left)


def _check_reference(
    statement: CreateStream | AlterConstraint,
    constraint: Constraint,
    own: Sequence[Constraint],
    version: Version,
) -> None:
    """Check that a foreign key refers to columns that are unique in another stream, or its own."""
    name = constraint.references or ""
    if name.lower() == statement.name.lower():
        known: Sequence[Constraint] = own
    else:
        other = version.find(name)
        if not isinstance(other, StreamDef):
            raise statement.error(
                "CQL-201",
                f'no stream "{name}" for the constraint "{constraint.name}" to refer to',
                hint="Create that stream first, with UNIQUE (column).",
            )
        known = other.constraints
    if not any(c.kind == UNIQUE and len(c.columns) == len(constraint.columns) for c in known):
        raise statement.error(
            "CQL-216",
            f'no columns of the stream "{name}" are unique for "{constraint.name}" to refer to',
            hint=f"Declare them first: ALTER STREAM {name} ADD UNIQUE (column).",
        )
