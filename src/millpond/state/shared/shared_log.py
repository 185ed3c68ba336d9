"""The shared log: record n is created only if it is absent, by the one driver that leads.

A driver that takes over creates the next record with a higher term. The driver that led before
finds its number taken by another's record, and stops at once: it acknowledges nothing more. No
clock and no lock service decides who leads; clocks only decide when somebody tries.

Invariants:
    INV-SHARED-1: `append` returns only if the record is in the log, at its number, for ever.
    INV-SHARED-2: who has appended knows every record before its own.
    INV-SHARED-3: a record is removed only an hour after a snapshot that contains it was there.
    INV-SHARED-4: `append` and `claim` create no record where the one before it is not.

The third is what makes removing safe. A driver that was stopped for long could create a record
anew whose number was removed. So a driver that has not appended for a minute looks, after it has
created a record and before it says so, whether a snapshot is beyond the record. The two times may
be apart by what clocks of one machine's processes never are: a minute taken for an hour.

The fourth is for a storage that has lost what it had: a bucket that was emptied, a directory that
was removed, a wrong one in its stead. What is acknowledged there nobody can ever read, because the
log before it is missing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millpond.errors import MillpondError
from millpond.state.journal.record import Statement
from millpond.state.shared.place import PlaceError, SharedPlace, check_founded
from millpond.state.shared.shared_record import (
    SharedRecord,
    decode_shared,
    encode_shared,
    key_of,
    list_records,
    number_of,
)

SNAPSHOTS = "snapshots/"
_SNAPSHOT = re.compile(r"snapshots/(\d{12})-([0-9a-f]{16})\.db")

#: After so many seconds without an append, a driver looks for snapshots before it acknowledges.
SURE_SECONDS = 60.0
#: For so many seconds a record stays after a snapshot that contains it.
TRIM_SECONDS = 3_600.0
#: For so many seconds an append is tried again; then what became of it is unknown.
_TRY_SECONDS = 30.0
#: The first and the longest wait between two tries, in seconds.
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0


def steady_seconds() -> float:
    """Return seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class SharedSnapshot:
    """A snapshot of the database: the last record it holds, and the checksum of its bytes."""

    number: int
    checksum: str

    @property
    def key(self) -> str:
        """The key of its object."""
        return f"{SNAPSHOTS}{self.number:012d}-{self.checksum}.db"


def list_shared_snapshots(place: SharedPlace, from_number: int = 0) -> list[SharedSnapshot]:
    """List the snapshots that hold record `from_number`, the oldest first."""
    keys = place.list_keys(SNAPSHOTS, f"{SNAPSHOTS}{from_number:012d}" if from_number else "")
    found = [m for key in keys if (m := _SNAPSHOT.fullmatch(key))]
    return [SharedSnapshot(int(m[1]), m[2]) for m in found]


class LogBehind(Exception):
    """The records that a reader wants may have been removed: it begins again from a snapshot."""


class _LogLost(Exception):
    """The place has a store, and its log lacks the record before the next one."""


class LogReader:
    """Reads the log record by record, from the record after `number` on."""

    def __init__(
        self,
        place: SharedPlace,
        incarnation: str,
        number: int,
        sure_at: float,
        clock: Callable[[], float] = steady_seconds,
    ) -> None:
        """Begin after a record.

        Args:
            place: Where the log is.
            incarnation: The store's incarnation.
            number: The last record that is known; 0 for none.
            sure_at: When no later record was removed yet, by the clock: a moment before the
                snapshots were listed.
            clock: Seconds that pass while the process is stopped, too.
        """
        self.place = place
        self.incarnation = incarnation
        #: The last record that was read, its term, and the driver that wrote it.
        self.number, self.term, self.driver = number, 0, ""
        self._sure_at = sure_at
        self._clock = clock

    def read_next(self) -> SharedRecord | None:
        """Read the next record; None if there is none yet.

        Raises:
            LogBehind: the record may have been removed, since a snapshot holds it.
            MillpondError: STORE-602, the record is damaged, or is missing though others are there.
            PlaceError: the storage gave no answer.
        """
        number = self.number + 1
        began = self._clock()
        data = self.place.read(key_of(number))
        if data is None and (later := list_records(self.place, number + 1)):
            data = self.place.read(key_of(number))  # both came between the two calls, or
            if data is None:
                self._check_behind(number)
                why = f"Record {number} is missing; {number_of(later[0])} is there."
                raise damaged_log(self.place, why)
        if self._clock() - self._sure_at > SURE_SECONDS:
            # What is there may have been created anew by a driver that was stopped as long.
            self._check_behind(number)
        self._sure_at = began
        if data is None:
            return None
        record = decode_shared(self.incarnation, number, data)
        if record is None or record.term < self.term:
            raise damaged_log(self.place, f"Record {number} is damaged.")
        self.number, self.term, self.driver = number, record.term, record.driver
        return record

    def _check_behind(self, number: int) -> None:
        if list_shared_snapshots(self.place, number):
            raise LogBehind(f"record {number}")


class SharedLog:
    """Appends to the log, for the driver that leads. The caller holds a lock around every call."""

    def __init__(
        self,
        reader: LogReader,
        driver: str,
        clock: Callable[[], float] = steady_seconds,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """Continue after what `reader` has read; nothing is led before `claim`.

        Args:
            reader: A reader at the log's end, as far as is known.
            driver: Sixteen hexadecimal digits that no process had before.
            clock: Seconds that pass while the process is stopped, too.
            wait: Waits some seconds.
        """
        self._place = reader.place
        self.incarnation = reader.incarnation
        self.number, self.term = reader.number, reader.term
        self.driver = driver
        #: Bytes appended by this driver.
        self.appended = 0
        #: The error with which appending has ended: another driver leads, or nobody knows.
        self.ended: MillpondError | None = None
        self._clock, self._wait = clock, wait
        self._sure_at = -SURE_SECONDS
        self._trimmable: list[tuple[float, int]] = []

    def claim(self, heard: int = 0) -> bool:
        """Lead from here on: create the next record with a higher term.

        Args:
            heard: A term that a driver said it leads in. It may be higher than the log's, if the
                log was put back from a copy.

        Returns:
            False if the next number is taken. Then the log is to be read on, and claimed again.

        Raises:
            MillpondError: STORE-602, the last record is not in the log any more.
            PlaceError: the storage gives no answer; a record of this driver may be there.
        """
        try:
            return self._create(self.number + 1, max(self.term, heard) + 1, [], tries=1)
        except _LogLost as lost:
            raise damaged_log(self._place, str(lost)) from lost

    def append(self, statements: Iterable[Statement]) -> int:
        """Make the next record durable for everybody; return its number.

        Raises:
            MillpondError: STORE-606, another driver leads, and the record is not in the log;
                STORE-602, nor is it, because the last one is not there any more; STORE-603, the
                storage gives no answer, and nobody knows yet whether the record is in the log.
                Neither it nor a later one may be acknowledged by this driver.
        """
        if self.ended is not None:
            raise self.ended
        number = self.number + 1
        try:
            # The leader's word, which is looked at beside, may end this driver meanwhile; a record
            # that is in the log counts all the same.
            if self._create(number, self.term, statements):
                return number
            failed = other_leads(self._place)
        except _LogLost as lost:
            failed = damaged_log(self._place, str(lost))
        except PlaceError as error:
            failed = self._unknown(number, f"got no answer in {_TRY_SECONDS:.0f} s: {error}")
        except Exception:
            raise  # before anything was asked
        except BaseException:
            self.ended = self._unknown(number, "was interrupted")
            raise
        self.ended = failed
        raise failed

    def _unknown(self, number: int, what: str) -> MillpondError:
        """Return the error STORE-603: nobody knows whether a record is in the log."""
        return MillpondError(
            "STORE-603",
            f'the shared store "{self._place.url}" cannot be written',
            detail=f"Record {number} of the log {what}."
            " Whether it is there is read when the store is opened again.",
            hint="Make the storage reachable; the driver that opens the store next goes on.",
        )

    def _create(
        self, number: int, term: int, statements: Iterable[Statement], tries: int | None = None
    ) -> bool:
        """Create a record, and be sure of it; return whether it is this driver's."""
        data = encode_shared(self.incarnation, number, term, self.driver, statements)
        began = self._clock()
        wait = _FIRST_WAIT
        while True:
            try:
                own = self._is_next(number) and (
                    self._place.create(key_of(number), data) or self._is_own(number, data)
                )
                if own and self._clock() - self._sure_at > SURE_SECONDS:
                    # Long ago: the number may have been taken, contained in a snapshot and removed.
                    own = not list_shared_snapshots(self._place, number)
                break
            except PlaceError:
                tries = None if tries is None else tries - 1
                if tries == 0 or self._clock() - began > _TRY_SECONDS:
                    raise
            self._wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        if own:
            self.number, self.term, self._sure_at = number, term, began
            self.appended += len(data)
        return own

    def _is_next(self, number: int) -> bool:
        """Whether a record can be the next one: the one before is there, or a later snapshot.

        Raises:
            _LogLost: neither is there.
            PlaceError: the storage gave no answer, or has nothing of the store.
        """
        if number > 1 and self._place.has(key_of(number - 1)):
            return True
        if number > 1 and list_shared_snapshots(self._place, number):
            return False  # others have led for long, and have removed it
        check_founded(self._place)
        if number > 1:
            raise _LogLost(f"Record {number - 1}, the last one, is not there any more.")
        return True

    def _is_own(self, number: int, data: bytes) -> bool:
        """Whether the record that took a number is this one, of a try whose answer was lost."""
        found = self._place.read(key_of(number))
        if found is None:
            raise PlaceError("a record that is there cannot be read")
        return found == data

    def trim(self, kept: int) -> None:
        """Remove records up to `kept`, all of which a snapshot holds, an hour after the first call.

        Raises:
            PlaceError: the storage gave no answer; some may be removed.
        """
        now = self._clock()
        if not self._trimmable or self._trimmable[-1][1] < kept:
            self._trimmable.append((now, kept))
        ripe = [number for at, number in self._trimmable if now - at > TRIM_SECONDS]
        if not ripe:
            return
        for key in list_records(self._place):
            if number_of(key) > ripe[-1]:
                break
            self._place.remove(key)
        self._trimmable = [entry for entry in self._trimmable if entry[1] > ripe[-1]]


def other_leads(place: SharedPlace) -> MillpondError:
    """Return the error STORE-606: this driver leads no more."""
    return MillpondError(
        "STORE-606",
        f'another driver has taken over the shared store "{place.url}"',
        detail="This one was too slow to be heard, and stops. What it has acknowledged is there.",
        hint="Send requests to the driver that leads; this one may be started again, and waits.",
    )


def damaged_log(place: SharedPlace, why: str) -> MillpondError:
    """Return the error STORE-602 for the log."""
    return MillpondError(
        "STORE-602",
        f'the log of the shared store "{place.url}" is damaged',
        detail=f"{why} Opening the store would lose acknowledged changes.",
        hint="Put the object back from a version or a copy of the storage.",
    )
