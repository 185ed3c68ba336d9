"""Cursors of feeds: what is read is what was written, and what is none is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import MillpondError
from millpond.model.time import BEGINNING, END
from millpond.service.changes.feeds.feed_cursor import (
    BEFORE_ALL,
    Run,
    Streams,
    find_run,
    find_told,
    parse_feed_cursor,
    write_feed_cursor,
    write_head,
)

runs = st.one_of(
    st.builds(Run, st.integers(0, 2**40), st.integers(BEGINNING - 1, END)),
    st.builds(Run, st.integers(0, 2**40), st.none(), st.integers(0, 2**40)),
)
places = st.dictionaries(
    st.builds(
        Streams,
        st.lists(st.integers(1, 99), unique=True, max_size=3).map(lambda ids: tuple(sorted(ids))),
        st.integers(0, 3),
        st.integers(0, 2**40),
    ),
    st.lists(runs, min_size=1, max_size=4, unique_by=lambda run: run.last).map(
        lambda found: sorted(found, key=lambda run: run.last)
    ),
    max_size=3,
)


def never_reset(ids: Sequence[int]) -> int:
    """How often clocks of streams were set back, where none ever was."""
    return 0


@given(places, st.one_of(st.none(), st.integers(0, 2**60)))
def test_a_cursor_is_read_as_it_was_written(
    found: dict[Streams, list[Run]], told: int | None
) -> None:
    found = {
        streams: runs
        for streams, runs in found.items()
        if resets_of(found)[streams.ids] == streams.resets
    }
    text = write_feed_cursor(write_head("3f2a9c", told), found)
    assert parse_feed_cursor(text, "3f2a9c", lambda ids: resets_of(found)[tuple(ids)]) == found
    assert find_told(text) == told
    assert text.replace(".", "").replace("~", "").replace("-", "").replace("_", "").isalnum()


def resets_of(found: dict[Streams, list[Run]]) -> dict[tuple[int, ...], int]:
    """How often the clocks of each group of streams were set back."""
    return {streams.ids: streams.resets for streams in found}


def test_groups_whose_streams_are_gone_are_left_out() -> None:
    found = {Streams((1,)): [Run(5, 50)], Streams((2, 3), 1): [Run(6, 50)]}
    text = write_feed_cursor(write_head("3f2a9c", None), found)
    kept = parse_feed_cursor(text, "3f2a9c", lambda ids: None if 2 in ids else 0)
    assert kept == {Streams((1,)): [Run(5, 50)]}


@pytest.mark.parametrize(("written", "now"), [(0, 1), (1, 2), (2, 1)])
def test_a_cursor_of_before_a_clock_was_set_back(written: int, now: int) -> None:
    text = write_feed_cursor(write_head("3f2a9c", None), {Streams((1, 2), written): [Run(5, 50)]})
    with pytest.raises(MillpondError, match="POND-412: changes that may lie") as raised:
        parse_feed_cursor(text, "3f2a9c", lambda ids: now)
    assert "snapshot=true" in str(raised.value.hint)


def test_which_run_speaks_of_a_log() -> None:
    found = {Streams((3,)): [Run(5, 50), Run(6, None, 2), Run(9, 40)]}
    asked = {id: find_run(found, Streams((3,)), id) for id in (1, 5, 6, 7, 9, 10)}
    assert asked == {
        1: Run(5, 50),
        5: Run(5, 50),
        6: Run(6, None, 2),
        7: Run(9, 40),
        9: Run(9, 40),
        10: None,
    }
    assert find_run(found, Streams((3, 5)), 1) is None


@pytest.mark.parametrize(
    "text", ["", "7", "3f2a9c.17.42", "3f2a9c.feed.3~x", "3f2a9c.feed.3~5-zz", "3f2a9c.feed.3"]
)
def test_what_is_no_cursor_of_a_feed(text: str) -> None:
    with pytest.raises(MillpondError, match=r"POND-412: .* is not a cursor of a feed"):
        parse_feed_cursor(text, "3f2a9c", never_reset)


def test_a_cursor_of_another_store() -> None:
    text = write_feed_cursor(write_head("3f2a9c", None), {Streams((1,)): [Run(2, BEFORE_ALL)]})
    with pytest.raises(MillpondError, match="POND-412: the cursor is not one of this store"):
        parse_feed_cursor(text, "aaaaaa", never_reset)
