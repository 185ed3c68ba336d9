"""Tables as HTML and as text: of many rows and columns the first are shown."""

from __future__ import annotations

import pyarrow as pa

from millpond.service.results import Answer


def test_a_notebook_shows_rows_the_instant_and_what_the_answer_is() -> None:
    table = pa.table({"a<b": ["<script>", None, "x" * 300], "n": [1, 2, 3]})
    answer = Answer(table, 5, final=False, query="q&a", estimated=("y",))
    shown = answer._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "a&lt;b" in shown
    assert "q&amp;a: 3 rows as of 1970-01-01 00:00:00.000005, not final, not exact" in shown
    assert "<i>NULL</i>" in shown
    assert "x" * 200 + "…" in shown
    assert "x" * 201 not in shown


def test_a_notebook_shows_the_first_rows_of_many() -> None:
    wide = pa.table({f"c{n}": list(range(1_000)) for n in range(60)})
    shown = Answer(wide, 5, final=True)._repr_html_()
    assert shown.count("<tr>") == 51
    assert shown.count("<th>") == 50
    assert "… 950 more rows and 10 more columns" in shown
    empty = Answer(pa.table({"v": pa.array([], pa.int64())}), 5, final=True)._repr_html_()
    assert "0 rows as of" in empty
    assert "more" not in empty


def test_a_terminal_shows_the_first_rows_and_columns() -> None:
    table = pa.table({"name": ["ann", None, "two\nlines", "x" * 90], "n": [1, 22, None, 4]})
    assert repr(Answer(table, 5, final=True)).splitlines() == [
        "<Answer 4 rows as of 1970-01-01 00:00:00.000005, final>",
        f"name{' ' * 57}     n",
        f"ann{' ' * 58}     1",
        f"NULL{' ' * 57}    22",
        f"two lines{' ' * 52}  NULL",
        f"{'x' * 60}…     4",
    ]
    wide = pa.table({f"c{n}": list(range(1_000)) for n in range(60)})
    assert repr(Answer(wide, 5, final=True)).endswith("\n… 980 more rows and 40 more columns")
    assert len(repr(Answer(wide, 5, final=True)).splitlines()) == 23
    assert len(repr(Answer(pa.table({"v": []}), 5, final=True)).splitlines()) == 2
