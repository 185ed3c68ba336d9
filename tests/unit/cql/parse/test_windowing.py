"""TUMBLE and HOP: each row with the window of application time that it belongs to."""

from __future__ import annotations

import pytest
from tests.unit.cql.parse.reading import read, refuse


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE) FROM s", "("),
        ("SELECT * FROM TUMBLE(s, ts)", ")"),
    ],
)
def test_it_is_refused_at_its_place(text: str, place: str) -> None:
    assert refuse(text) == ("CQL-103", place)


def test_the_form_of_the_standard_means_the_short_one() -> None:
    short = read("SELECT * FROM TUMBLE(s, ts, INTERVAL '1' MINUTE)")
    standard = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
    assert read(f"SELECT * FROM {standard}") == short
    assert short.count("AS window_start") == short.count("AS window_end") == 1


def test_a_row_is_in_as_many_hops_as_the_size_has_slides() -> None:
    text = "SELECT * FROM HOP(s, ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTES)"
    assert read(text).count("UNION ALL") == 4


def test_a_size_is_a_multiple_of_its_slide() -> None:
    code, _ = refuse("SELECT * FROM HOP(s, ts, INTERVAL '2' MINUTE, INTERVAL '5' MINUTES)")
    assert code == "CQL-207"


def test_tumble_groups_rows_by_the_start_of_their_windows() -> None:
    text = read(
        "SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) FROM s "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
    )
    start = "time_bucket(to_microseconds(60000000), ts, make_timestamp(0))"
    assert text == f"SELECT {start} FROM s GROUP BY {start}"
