"""Declarations: what CREATE STREAM and CREATE RELATION refuse, and what they make."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.versions import stream, version_of

from millpond.catalog.objects import RelationDef, SourceDef, StreamDef
from millpond.cql import parse_statement
from millpond.errors import MillpondError
from millpond.service.definitions.declarations import relation_definition, stream_definition

VERSION = version_of(stream(1, "Taken"))


def declared(text: str) -> StreamDef | RelationDef:
    statement: Any = parse_statement(text)
    make = stream_definition if "STREAM" in text else relation_definition
    return make(statement, 7, VERSION)


def test_a_stream_is_as_declared() -> None:
    text = (
        "CREATE STREAM Flights (at DATE, Delay DECIMAL(10, 2), n int, s text) TIMESTAMP BY AT "
        "DELAY 5 SECONDS IDLE AFTER 1 MINUTE RETAIN 1 HOUR "
        "USING CSV OPTIONS (Path '/data', HEADER 'true')"
    )
    found = declared(text)
    assert isinstance(found, StreamDef)
    assert (found.id, found.name, found.text) == (7, "Flights", text)
    assert [(f.name, f.type) for f in found.schema.fields] == [
        ("at", "DATE"),
        ("Delay", "DECIMAL(10,2)"),
        ("n", "INTEGER"),
        ("s", "VARCHAR"),
    ]
    assert found.timestamp_by == "at"
    assert (found.delay, found.idle_after, found.retain) == (5_000_000, 60_000_000, 3_600_000_000)
    assert found.source == SourceDef("csv", {"path": "/data", "header": "true"})


def test_a_relation_has_its_keys_columns() -> None:
    found = declared("CREATE RELATION r (a INTEGER, B STRING, PRIMARY KEY (b, A))")
    assert isinstance(found, RelationDef)
    assert (found.primary_key, found.source, found.non_retroactive) == (("B", "a"), None, False)
    assert declared("CREATE NON RETROACTIVE RELATION r (a INTEGER)").non_retroactive  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("CREATE STREAM «taken» (v INTEGER)", "CQL-208", None),
        ("CREATE RELATION «TAKEN» (v INTEGER)", "CQL-208", None),
        ("CREATE STREAM «x$rejects» (v INTEGER)", "CQL-208", "rejects"),
        ("CREATE STREAM s (v INTEGER, «V STRING»)", "CQL-209", None),
        ("CREATE STREAM s (v INTEGER, «__ts TIMESTAMP»)", "CQL-103", None),
        ("CREATE STREAM s (seen TIMESTAMP) TIMESTAMP BY «sen»", "CQL-202", 'Did you mean "seen"?'),
        ("CREATE STREAM s (v INTEGER) TIMESTAMP BY «v»", "CQL-211", "TIMESTAMP"),
        ("CREATE RELATION r (tail STRING, PRIMARY KEY (tale))", "CQL-202", 'Did you mean "tail"?'),
        (
            "CREATE «NON RETROACTIVE» RELATION r (t TIMESTAMP, PRIMARY KEY (t)) TIMESTAMP BY t",
            "CQL-301",
            None,
        ),
    ],
)
def test_what_is_refused(text: str, code: str, place: str | None) -> None:
    plain = text.replace("«", "").replace("»", "")
    with pytest.raises(MillpondError) as failure:
        declared(plain)
    error = failure.value
    assert error.code == code
    if "«" in text:
        assert error.span is not None
        marked = text[text.index("«") + 1 : text.index("»")]
        assert plain[error.span.start : error.span.end] == marked
    if place is not None:
        assert place in f"{error.detail} {error.hint}"


def test_a_type_there_is_not_is_told_which_there_are() -> None:
    with pytest.raises(MillpondError, match='CQL-210: no column type "INTEGR"') as failure:
        declared("CREATE STREAM s (v INTEGR)")
    assert failure.value.hint == 'Did you mean "INTEGER"?'
