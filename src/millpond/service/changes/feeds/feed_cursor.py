"""Cursors of feeds: how far a reader is in the changes of many queries, as one text.

`3f2a9c.feed.3_5~40-4a2f~41-n7~90-4a2e` is a cursor of the store 3f2a9c. For the queries that read
the streams 3 and 5 it says: of the change logs with ids up to 40, every change up to the instant
4a2f was given; of log 41, the first 7 changes; of those up to 90, every change up to 4a2e. Change
logs of queries over the same streams are advanced together, so a few such runs are enough for
thousands of queries. Numbers are hexadecimal, and instants count from before the first instant.

Once the clock of a stream was set back, what a cursor says of the queries that read it names how
often that was done (`3_5-1~40-4a2f`), and a cursor of before is refused. A query that was redefined
and reads other streams since is a group by itself, under its log (`3l41~41-4a2f`).

A log whose id is beyond the last run belongs to a query that came after the cursor.

`3f2a9c.feed-1c2.3_5~…` says besides that the reader was told what happened to queries up to the
epoch 1c2. A cursor of a store before such epochs were kept says nothing of it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millpond.errors import MillpondError
from millpond.model.time import BEGINNING

#: The place before every change.
BEFORE_ALL = BEGINNING - 1


class Streams(NamedTuple):
    """The streams that a query reads.

    Attributes:
        ids: Their ids, in ascending order.
        resets: How often their clocks were set back, all together.
        log: The change log of a query that read other streams before it was redefined, which is a
            group by itself; 0 of all others.
    """

    ids: tuple[int, ...] = ()
    resets: int = 0
    log: int = 0

    @property
    def text(self) -> str:
        """The streams as a cursor has them."""
        log, resets = f"l{self.log}" * bool(self.log), f"-{self.resets}" * bool(self.resets)
        return ("_".join(map(str, self.ids)) or "0") + log + resets


#: What to do with a cursor that is refused.
BEGIN_AGAIN = "Begin again with snapshot=true: the answers, and the changes after them."

_RUN = r"\d{1,18}-n?[0-9a-f]{1,17}"
_GROUP = rf"\.[0-9]{{1,18}}(?:_[0-9]{{1,18}})*(?:l\d{{1,18}})?(?:-\d{{1,9}})?(?:~{_RUN})+"
_CURSOR = re.compile(rf"([0-9a-f]{{6}})\.feed(?:-([0-9a-f]{{1,16}}))?((?:{_GROUP})*)")


@dataclass(frozen=True, slots=True)
class Run:
    """A run of change logs of which a reader has as much.

    Attributes:
        last: The id of the last change log of the run.
        upto: The instant up to which every change was given; None if `number` says it.
        number: The number of the last change given, of the log `last` alone.
    """

    last: int
    upto: int | None
    number: int | None = None

    @property
    def text(self) -> str:
        """The run as a cursor has it."""
        if self.number is not None:
            return f"{self.last}-n{self.number:x}"
        assert self.upto is not None
        return f"{self.last}-{self.upto - BEFORE_ALL:x}"


Places = Mapping[Streams, Sequence[Run]]


def write_feed_cursor(head: str, places: Places) -> str:
    """Write a cursor; runs stand in ascending order of their last logs.

    >>> head = write_head("3f2a9c", 450)
    >>> write_feed_cursor(head, {Streams((3, 5)): [Run(40, BEFORE_ALL + 10), Run(41, None, 7)]})
    '3f2a9c.feed-1c2.3_5~40-a~41-n7'
    """
    return "".join([head, *(write_group(*item) for item in places.items())])


def write_head(incarnation: str, told: int | None) -> str:
    """Write how a cursor begins.

    Args:
        incarnation: The store's.
        told: The epoch up to which the reader was told what happened to queries; None if it is not
            known.
    """
    return f"{incarnation}.feed" + ("" if told is None else f"-{told:x}")


def find_told(text: str) -> int | None:
    """Find the epoch up to which a cursor's reader was told what happened to queries."""
    match = _match(text)
    return None if match is None or match[2] is None else int(match[2], 16)


def _match(text: str) -> re.Match[str] | None:
    return _CURSOR.fullmatch(text) if len(text) <= 10_000_000 else None


def write_group(streams: Streams, runs: Iterable[Run]) -> str:
    """Write what a cursor says of the queries over the same streams."""
    return f".{streams.text}~{'~'.join(run.text for run in runs)}"


def parse_feed_cursor(
    text: str, incarnation: str, count_resets: Callable[[Sequence[int]], int | None]
) -> Places:
    """Read a cursor that `write_feed_cursor` wrote.

    Args:
        text: The cursor.
        incarnation: The store's.
        count_resets: How often the clocks of streams were set back, all together; None if one of
            the streams is not there any more.

    Raises:
        MillpondError: POND-412, the text is no cursor of a feed, one of another store, or one of
            before the clock of a stream was set back.
    """
    match = _match(text)
    if match is None:
        raise MillpondError(
            "POND-412",
            f'"{text[:100]}" is not a cursor of a feed',
            detail="A feed's cursor is what came with its changes and marks.",
            hint="Without a cursor a feed begins with the first change of every query.",
        )
    if match[1] != incarnation:
        raise MillpondError(
            "POND-412",
            "the cursor is not one of this store's feeds",
            detail="It is of another store, or of this one before it was repaired or restored.",
            hint=BEGIN_AGAIN,
        )
    places: dict[Streams, list[Run]] = {}
    for group in match[3].split(".")[1:]:
        key, *runs = group.split("~")
        streams = _parse_streams(key)
        resets = count_resets(streams.ids)
        if resets is None:
            continue  # its queries are gone too
        if resets != streams.resets:
            raise MillpondError(
                "POND-412",
                "changes that may lie before the cursor were taken back",
                detail="The clock of a stream below was set back.",
                hint=BEGIN_AGAIN,
            )
        places[streams] = [_parse_run(run) for run in runs]
    return places


def _parse_streams(text: str) -> Streams:
    rest, _, resets = text.partition("-")
    ids, _, log = rest.partition("l")
    read = () if ids == "0" else tuple(map(int, ids.split("_")))
    return Streams(read, int(resets or 0), int(log or 0))


def _parse_run(text: str) -> Run:
    last, place = text.split("-")
    if place.startswith("n"):
        return Run(int(last), None, int(place[1:], 16))
    return Run(int(last), int(place, 16) + BEFORE_ALL)


def find_run(places: Places, streams: Streams, log_id: int) -> Run | None:
    """The run that says how far a reader is in a change log; None for one that came later."""
    runs = places.get(streams, ())
    index = bisect_left(runs, log_id, key=lambda run: run.last)
    if index == len(runs):
        return None
    if runs[index].number is not None and runs[index].last != log_id:
        # A log between those of the feed: as much of it counts as given as of the log before.
        return next((run for run in reversed(runs[:index]) if run.number is None), None)
    return runs[index]
