"""Answers, definitions and receipts as JSON, NDJSON and Arrow.

Values are JSON's as `millpond.service.json_values` says; `types` beside the columns gives the SQL
type of each column.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import orjson
import pyarrow as pa

from millpond.api.json_pieces import Write, is_large, write_objects, write_rows
from millpond.catalog.objects import (
    REDUCED,
    Definition,
    QueryDef,
    RelationDef,
    StreamDef,
    given_options,
)
from millpond.errors import MillpondError
from millpond.service import json_values
from millpond.service.results import (
    Answer,
    Changes,
    IngestReceipt,
    StatementResult,
)
from millpond.work import current_work, hold_memory

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"

#: The forms of an answer that are a file of its rows.
FILES = (ARROW, PARQUET)

#: The key of an Arrow schema's metadata that holds an answer's facts besides its rows.
ANSWER_KEY = b"millpond.answer"


#: The most characters of bounds as a header.
_MOST_HEADER = 8_000


def answer_facts(answer: Answer) -> dict[str, Any]:
    """Return the facts of an answer besides its rows."""
    return {
        "query": answer.query,
        "as_of": json_values.instant_text(answer.as_of),
        "final": answer.final,
        **promise_facts(answer),
        "epoch": answer.epoch,
        "part": None if answer.part is None else asdict(answer.part),
        "estimated": list(answer.estimated),
    }


def promise_facts(given: Answer | Changes) -> dict[str, Any]:
    """What an answer or a page of changes says of its exactness, as JSON values."""
    return {
        "exact": given.exact,
        "loss": [json_values.loss_json(loss) for loss in given.loss],
        "bounds": None
        if given.bounds is None
        else json_values.to_json_value(given.bounds.to_json()),
    }


def promise_headers(given: Answer | Changes) -> dict[str, str]:
    """Exactness as HTTP headers, for the forms whose body has no room for it.

    `Millpond-Loss` is one line of JSON in ASCII, as a header must be.
    """
    headers = {"Millpond-Exact": str(given.exact).lower()}
    facts = promise_facts(given)
    for name in ("loss", "bounds"):
        text = json.dumps(facts[name]) if facts[name] else ""
        # Clients take headers of some 16 KB alone; JSON and Arrow have the bounds of every row.
        if text and (name != "bounds" or len(text) <= _MOST_HEADER):
            headers[f"Millpond-{name.capitalize()}"] = text
    return headers


def answer_json(answer: Answer) -> bytes:
    """An answer as one JSON object."""
    return _written(
        lambda write: _write_rows(answer_facts(answer), answer.table, write), answer.table.nbytes
    )


def answer_body(answer: Answer) -> dict[str, Any]:
    """An answer as JSON values; the rows of a large one are encoded already."""
    if not is_large(answer.table):
        return {**answer_facts(answer), **_table_json(answer.table)}

    def write_all(write: Write) -> None:
        write(b"[")
        write_rows(answer.table, write)
        write(b"]")

    rows = orjson.Fragment(_written(write_all, answer.table.nbytes))
    return {**answer_facts(answer), **_columns_json(answer.table), "rows": rows}


def answer_ndjson(answer: Answer) -> bytes:
    """An answer's rows as one JSON object a line."""
    return _written(lambda write: write_objects(answer.table, write), answer.table.nbytes)


def answer_arrow(answer: Answer) -> bytes:
    """An answer as an Arrow IPC stream whose schema metadata says what it is."""
    return table_arrow(_with_facts(answer))


def answer_parquet(answer: Answer) -> bytes:
    """An answer as a Parquet file whose schema metadata says what it is.

    Raises:
        MillpondError: SERVE-709, Parquet has no type for a column.
    """
    from pyarrow import parquet  # clients import this module, and read no Parquet

    sink = _Body(answer.table.nbytes)
    try:
        parquet.write_table(_with_facts(answer), sink)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise MillpondError(
            "SERVE-709",
            "the answer cannot be written as Parquet",
            detail=f"{error}.",
            hint="Cast the column, or accept another form.",
        ) from None
    return sink.getvalue()


def _with_facts(answer: Answer) -> pa.Table:
    """An answer's rows, with what they are in the metadata of the schema."""
    facts = answer_facts(answer) | {"as_of_us": answer.as_of}
    metadata = {**(answer.table.schema.metadata or {}), ANSWER_KEY: json_values.dumps(facts)}
    return answer.table.replace_schema_metadata(metadata)


def table_arrow(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = _Body(table.nbytes)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def answer_headers(answer: Answer) -> dict[str, str]:
    """The facts as HTTP headers, for the forms whose body has no room for them."""
    headers = {
        "Millpond-As-Of": json_values.instant_text(answer.as_of) or "",
        "Millpond-Final": str(answer.final).lower(),
        "Millpond-Epoch": str(answer.epoch),
    }
    if answer.part is not None:
        headers["Millpond-Part"] = json.dumps(asdict(answer.part))
    if answer.estimated:
        headers["Millpond-Estimated"] = json.dumps(answer.estimated)
    return headers | promise_headers(answer)


def results_json(results: Sequence[StatementResult]) -> bytes:
    """The results of a request's statements as one JSON object."""

    def write_all(write: Write) -> None:
        write(b'{"results":')
        _write_results(results, write)
        write(b"}")

    return _written(write_all, sum(result.nbytes for result in results))


def results_array(results: Sequence[StatementResult]) -> bytes:
    """The results of a request's statements as one JSON array."""
    return _written(lambda write: _write_results(results, write), sum(r.nbytes for r in results))


def results_ndjson(results: Sequence[StatementResult]) -> bytes:
    """The results of a request's statements, each a JSON object on a line."""

    def write_all(write: Write) -> None:
        for result in results:
            _write_result(result, write)
            write(b"\n")

    return _written(write_all, sum(result.nbytes for result in results))


def _write_results(results: Sequence[StatementResult], write: Write) -> None:
    head = b"["
    for result in results:
        write(head)
        _write_result(result, write)
        head = b","
    write(b"]" if results else b"[]")


def _write_result(result: StatementResult, write: Write) -> None:
    """Write a statement's result as one JSON object."""
    head: dict[str, Any] = {"statement": result.statement, "query": result.name}
    if result.answer is not None:
        facts = answer_facts(result.answer)
        facts["query"] = facts["query"] or result.name
        _write_rows({**head, **facts}, result.answer.table, write)
    elif result.changes is not None:
        _write_changes(head, result.changes, write)
    elif result.table is not None:
        facts = {} if result.facts is None else {"facts": result.facts}
        _write_rows({**head, "as_of": None, "final": None, **facts}, result.table, write)
    elif result.text is not None:
        write(json_values.dumps({**head, "text": result.text}))
    else:
        write(json_values.dumps({**head, "message": result.message}))


def definition_json(definition: Definition) -> dict[str, Any]:
    """A stream, relation or query as JSON values; durations are microseconds."""
    head: dict[str, Any] = {"id": definition.id, "name": definition.name}
    match definition:
        case StreamDef():
            return head | {
                "columns": definition.schema.to_json(),
                "timestamp_by": definition.timestamp_by,
                "delay_us": definition.delay,
                "idle_after_us": definition.idle_after,
                "ahead_us": definition.ahead,
                "retain_us": definition.retain,
                "retain_rows": definition.retain_rows,
                "overload": definition.overload,
                "derived": definition.derived is not None,
                "source": definition.source_name,
                "cql": definition.text,
            }
        case RelationDef():
            return head | {
                "columns": definition.schema.to_json(),
                "primary_key": list(definition.primary_key),
                "non_retroactive": definition.non_retroactive,
                "derived": definition.view is not None,
                "source": definition.source.format if definition.source else None,
                "cql": definition.text,
            }
        case QueryDef():
            template = definition.template
            return head | {
                "cql": definition.text,
                "template": None if template is None else template.text,
                "parameters": {} if template is None else dict(template.constants),
                "options": json_values.to_json_value(given_options(definition.options)),
                "reduced": definition.options.get(REDUCED),
                "active": definition.active,
                "suspended": definition.suspended,
                "registered_epoch": definition.registered_epoch,
                "registered_at": json_values.instant_text(definition.registered_at),
                "changes_after": json_values.instant_text(definition.changes_after),
            }


def receipt_json(receipt: IngestReceipt) -> dict[str, Any]:
    """A receipt as JSON values."""
    return {
        "accepted": receipt.accepted,
        "rejected": receipt.rejected,
        "shed": receipt.shed,
        "rejects": json_values.to_json_value(receipt.rejects),
        "duplicate": receipt.duplicate,
    }


def changes_json(changes: Changes) -> bytes:
    """Changes as one JSON object; their instants are texts."""
    return _written(lambda write: _write_changes({}, changes, write), changes.table.nbytes)


def _write_changes(head: dict[str, Any], changes: Changes, write: Write) -> None:
    """Write one JSON object of the members of `head` and a page's; its instants are texts."""
    facts = {
        "query": changes.query,
        "as_of": json_values.instant_text(changes.as_of),
        "final": changes.final,
        **promise_facts(changes),
        "cursor": changes.cursor,
        "newest": changes.newest,
        "redefined": changes.redefined,
    }
    _write_rows({**head, **facts}, json_values.format_instants(changes), write)


class _Body(io.BytesIO):
    """A body that is written piece by piece, in a buffer that is not copied in the end.

    What it has beyond the bytes of its rows counts as an answer's memory does: rows and bodies
    together then have at most twice of what answers may have.
    """

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._counted = rows

    def write(self, data: Any) -> int:
        """Append bytes.

        Raises:
            MillpondError: POND-405, it is larger than it may be; SERVE-715, the answers of all
                requests are too large together.
        """
        size = super().write(data)
        written = self.tell()
        if written > self._counted:
            hold_memory(written - self._counted)
            self._counted = written
        work = current_work()
        if work is not None and written > work.most_body:
            raise MillpondError(
                "POND-405",
                f"the answer is larger than {work.most_body >> 20:,} MiB as it is sent",
                hint="Ask for fewer rows or values, or accept Arrow, which takes fewer bytes.",
            )
        return size


def _written(write_all: Callable[[Write], None], rows: int) -> bytes:
    """What a function writes of rows that have so many bytes."""
    body = _Body(rows)
    write_all(body.write)
    return body.getvalue()


def _write_rows(head: dict[str, Any], table: pa.Table, write: Write) -> None:
    """Write one JSON object of the members of `head` and a table's."""
    facts = json_values.dumps({**head, **_columns_json(table)})
    write(facts[:-1] + b',"rows":[')
    write_rows(table, write)
    write(b"]}")


def _columns_json(table: pa.Table) -> dict[str, Any]:
    return {
        "columns": list(table.column_names),
        "types": [json_values.type_name(field.type) for field in table.schema],
    }


def _table_json(table: pa.Table) -> dict[str, Any]:
    rows = list(zip(*json_values.json_columns(table), strict=True))
    return {**_columns_json(table), "rows": rows}
