"""Cursors of feeds: what is read is what was written, and what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, END
from millpond.service.changes.feed_cursor import (
    BEFORE_ALL,
    Run,
    find_run,
    parse_feed_cursor,
    write_feed_cursor,
)

runs = st.one_of(
    st.builds(Run, st.integers(0, 2**40), st.integers(BEGINNING - 1, END)),
    st.builds(Run, st.integers(0, 2**40), st.none(), st.integers(0, 2**40)),
)
places = st.dictionaries(
    st.lists(st.integers(1, 99), unique=True, max_size=3).map(lambda ids: tuple(sorted(ids))),
    st.lists(runs, min_size=1, max_size=4, unique_by=lambda run: run.last).map(
        lambda found: sorted(found, key=lambda run: run.last)
    ),
    max_size=3,
)


@given(places)
def test_a_cursor_is_read_as_it_was_written(found) -> None:
    text = write_feed_cursor("3f2a9c", found)
    assert parse_feed_cursor(text, "3f2a9c") == found
    assert text.replace(".", "").replace("~", "").replace("-", "").replace("_", "").isalnum()


def test_which_run_speaks_of_a_log() -> None:
    found = {(3,): [Run(5, 50), Run(6, None, 2), Run(9, 40)]}
    asked = {id: find_run(found, (3,), id) for id in (1, 5, 6, 7, 9, 10)}
    assert asked == {
        1: Run(5, 50),
        5: Run(5, 50),
        6: Run(6, None, 2),
        7: Run(9, 40),
        9: Run(9, 40),
        10: None,
    }
    assert find_run(found, (3, 5), 1) is None


@pytest.mark.parametrize(
    "text", ["", "7", "3f2a9c.17.42", "3f2a9c.feed.3~x", "3f2a9c.feed.3~5-zz", "3f2a9c.feed.3"]
)
def test_what_is_no_cursor_of_a_feed(text: str) -> None:
    with pytest.raises(MillpondError, match=r"POND-412: .* is not a cursor of a feed"):
        parse_feed_cursor(text, "3f2a9c")


def test_a_cursor_of_another_store() -> None:
    text = write_feed_cursor("3f2a9c", {(1,): [Run(2, BEFORE_ALL)]})
    with pytest.raises(MillpondError, match="POND-412: the cursor is not one of this store"):
        parse_feed_cursor(text, "aaaaaa")
