"""CREATE SUMMARY and DROP SUMMARY, and what SHOW SUMMARIES and the control tables say."""

from __future__ import annotations

from typing import Any

from millpond.catalog.objects import StreamDef, SummaryDef, fold_name
from millpond.cql.tree.statements import CreateSummary, Drop
from millpond.engine.joins.keys import Axis, axis_of
from millpond.errors import MillpondError
from millpond.model.summaries import DEFAULT_MEMORY, MOST_TOGETHER
from millpond.model.time import END, format_instant
from millpond.planner.resolve.names import did_you_mean
from millpond.service.answers.summary_states import SummaryStates, plan_of, position_of
from millpond.service.queries.dependencies import list_derived_texts, list_query_texts
from millpond.service.queries.registration import Registrar
from millpond.state.epoch.epoch_change import EpochChange, StaleChange
from millpond.state.epoch_log import EpochLog
from millpond.state.version import Version
from millpond.synopses.summaries.stream_summary import count_least_bytes
from millpond.synopses.summaries.zones import Grid

#: Types of which a histogram has no use.
_INSTANTS = ("TIMESTAMP", "DATE")


class SummaryDefinitions:
    """The summaries of a pond. The caller holds the lock of the definitions."""

    def __init__(self, log: EpochLog, registrar: Registrar, states: SummaryStates) -> None:
        self._log = log
        self._registrar = registrar
        self._states = states

    def create(self, statement: CreateSummary) -> SummaryDef:
        """Create a summary; it has all kept elements at once.

        Raises:
            MillpondError: CQL-201, 202, 205, 207, 208 or 216.
        """
        definition = _define(statement, self._log.next_id(), self._log.version)
        self._log.commit(EpochChange(kind="summary", add_summaries=[definition]))
        return definition

    def find(self, name: str) -> SummaryDef:
        """The summary of a name. Raises CQL-201."""
        version = self._log.version
        found = version.summaries.get(fold_name(name))
        if found is None:
            names = [s.name for s in version.summaries.values()]
            raise MillpondError(
                "CQL-201",
                f'no summary "{name}"',
                hint=did_you_mean(name, names) or "SHOW SUMMARIES lists them.",
            )
        return found

    def drop(self, statement: Drop) -> None:
        """Drop a summary that nothing asks. Raises CQL-201."""
        definition = self.find(statement.name)
        try:
            self._log.commit(EpochChange(kind="drop summary", drop_summaries=[definition]))
        except StaleChange as error:
            raise MillpondError("CQL-201", f'no summary "{definition.name}" any more') from error
        self._states.forget(definition)

    def users_of(self, definition: SummaryDef) -> list[str]:
        """The standing queries, derived streams and relations that ask a summary.

        Only those with its name in their text are bound.
        """
        version = self._log.version
        name = definition.name.lower().replace('"', '""')
        users = []
        for user in (*list_query_texts(version), *list_derived_texts(version)):
            if name in user.text.lower() and "summary" in user.text.lower():
                try:
                    bound = self._registrar.bind_registered(user.text, user.text_epoch)
                except Exception:  # it does not bind any more: to be named counts
                    users.append(user.name)
                    continue
                if any(s.id == definition.id for s in bound.summaries):
                    users.append(user.name)
        return users


def _define(statement: CreateSummary, id: int, version: Version) -> SummaryDef:
    text = statement.text
    stream = version.find(statement.stream)
    if not isinstance(stream, StreamDef) or stream.is_pseudo:
        streams = [s.name for s in version.named_streams()]
        raise MillpondError(
            "CQL-201" if stream is None else "CQL-216",
            f'no stream "{statement.stream}"'
            if stream is None
            else f'"{statement.stream}" is not a stream that has summaries',
            hint=did_you_mean(statement.stream, streams) or "SHOW STREAMS lists them.",
            text=text,
            span=statement.stream_span,
        )
    field = stream.schema.find(statement.attribute)
    if field is None:
        raise MillpondError(
            "CQL-202",
            f'no column "{statement.attribute}" in stream "{stream.name}"',
            detail=f"The columns are {', '.join(stream.schema.names)}.",
            hint=did_you_mean(statement.attribute, stream.schema.names),
            text=text,
            span=statement.attribute_span,
        )
    axis = axis_of(field.type, field.type)
    if statement.kind == "histogram" and field.type.startswith(_INSTANTS):
        raise MillpondError(
            "CQL-205",
            f"no histogram of a {field.type}",
            detail="A histogram tells magnitudes apart: its bars would be years wide.",
            hint="Write USING SAMPLE.",
            text=text,
            span=statement.attribute_span,
        )
    if axis is None or (statement.kind != "count sketch" and not axis.is_ordered):
        served = "numbers, instants and texts" if axis is None else "numbers and instants"
        raise MillpondError(
            "CQL-205",
            f"no {statement.kind} of a {field.type}",
            detail=f"A {statement.kind} is of {served}.",
            hint=None if axis is None else "Leave out USING for a count sketch.",
            text=text,
            span=statement.attribute_span,
        )
    grid = Grid.of(statement.granularity, statement.rate, statement.depth)
    if grid.reach > END // 4:
        raise MillpondError(
            "CQL-207",
            "the granularities together are longer than all instants there are",
            hint="Choose a smaller depth or rate of COLLAPSE.",
            text=text,
        )
    memory = statement.memory or DEFAULT_MEMORY
    least = count_least_bytes(statement.kind, grid, axis is Axis.FLOAT)
    least_kb = -(-least // 1024)
    if memory < least:
        raise MillpondError(
            "CQL-207",
            f"a {statement.kind} of this shape takes {least_kb} KB at least",
            detail=f"It has up to {grid.most_cells:,} cells.",
            hint=f"Write MEMORY '{least_kb} KB', or a smaller rate or depth of COLLAPSE.",
            text=text,
        )
    together = memory + sum(other.memory for other in version.summaries.values())
    if together > MOST_TOGETHER:
        raise MillpondError(
            "CQL-207",
            f"the summaries would take {together >> 20:,} MB together",
            detail=f"All summaries of a pond may take {MOST_TOGETHER >> 20:,} MB.",
            hint="DROP SUMMARY some, or declare a smaller MEMORY.",
            text=text,
        )
    return SummaryDef(
        id,
        statement.name,
        stream.id,
        stream.name,
        field.name,
        statement.granularity,
        statement.rate,
        statement.depth,
        statement.kind,
        memory,
        text,
    )


def describe_summary(
    version: Version, states: SummaryStates, definition: SummaryDef
) -> dict[str, Any]:
    """The figures of a summary: what is in it, its zones, what it takes."""
    stream = version.streams.get(definition.stream_id)
    if stream is None:
        return {}
    summary = states.at(version, definition)
    return {
        "elements": int(summary.top[0, 0]),
        "zones": len(summary.zones),
        "zones of the newest granularity": int((summary.zones.granularity == 1).sum()),
        "bytes": summary.bytes,
        "bytes held": states.measure(definition),
        "bytes declared": definition.memory,
        "confidence": round(float(summary.kind.confidence(summary.top)[0]), 4),
        "upto": format_instant(position_of(version, stream, plan_of(definition, stream))),
    }
