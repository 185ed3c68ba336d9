"""What bodies of answers count, and what they may have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from millpond.api import change_forms, encode
from millpond.errors import MillpondError
from millpond.service.results import Answer, Changes, StatementResult
from millpond.work import Work, begin_work, finish_work

#: A bit each, and five characters of JSON.
TRUTHS = pa.table({"v": pa.array([[False] * 100_000])})
ENCODERS = {
    "JSON": lambda answer: encode.results_json([StatementResult("ask", answer=answer)]),
    "NDJSON": encode.answer_ndjson,
    "an answer": encode.answer_json,
}


@contextmanager
def working(work: Work) -> Iterator[Work]:
    token = begin_work(work)
    try:
        yield work
    finally:
        finish_work(token)


@pytest.mark.parametrize("name", ENCODERS)
def test_what_a_body_has_beyond_its_rows_counts(name: str) -> None:
    encode_answer: Callable[[Answer], bytes] = ENCODERS[name]
    with working(Work()) as work:
        body = encode_answer(Answer(TRUTHS, 0, final=True))
        assert work.held == len(body) - TRUTHS.nbytes > 400_000


@pytest.mark.parametrize("name", [*ENCODERS, "Arrow", "Parquet"])
def test_a_body_is_no_larger_than_it_may_be(name: str) -> None:
    encode_answer = ENCODERS | {"Arrow": encode.answer_arrow, "Parquet": encode.answer_parquet}
    with (
        working(Work(most_body=100)),
        pytest.raises(MillpondError, match="POND-405: the answer is larger than 0 MiB as it is"),
    ):
        encode_answer[name](Answer(TRUTHS, 0, final=True))


def test_results_beside_an_error_are_what_they_are_elsewhere() -> None:
    results = [
        StatementResult("ask", answer=Answer(TRUTHS, 0, final=True)),
        StatementResult("create stream", "s", message="stream s: created"),
    ]
    each = [json.loads(line) for line in encode.results_ndjson(results).splitlines()]
    assert json.loads(encode.results_array(results)) == each
    assert json.loads(encode.results_json(results))["results"] == each
    assert encode.results_array([]) == b"[]"


@pytest.mark.parametrize("form", [encode.NDJSON, change_forms.EVENTS])
def test_a_wide_change_is_what_a_narrow_one_is(form: str) -> None:
    def changes(values: int) -> Changes:
        row = pa.array([["a"] * values], pa.list_(pa.string()))
        columns = {"cursor": [7], "timestamp": [0], "change": ["+"], "l": row, "n": [1]}
        return Changes(pa.table(columns), "q", "i.1.7", 7, 0)

    wide, narrow = (b"".join(change_forms.encode_piece(changes(n), form)) for n in (200_000, 3))
    a_lot = b",".join([b'"a"'] * 200_000)
    assert wide == narrow.replace(b'"a","a","a"', a_lot)
    assert len(wide) > 800_000
