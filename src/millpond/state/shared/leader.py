"""Who leads a shared store, as far as anybody can tell: a hint that is written every second.

Nothing rests on it but when a waiting driver tries to lead, and where clients are sent. That only
one driver leads is the log's doing (`shared_log.py`): a leader that was taken for dead, and is not,
finds its next record's number taken.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from millpond.errors import MillpondError
from millpond.state.shared.place import PlaceError, SharedPlace, check_founded
from millpond.state.shared.shared_fold import SharedFold, lost_directory
from millpond.state.shared.shared_log import SharedLog, other_leads, steady_seconds

_KEY = "leader.json"
#: A leader says every so many seconds that it is there.
BEAT_SECONDS = 1.0
#: A leader that says nothing for so many seconds is taken for dead. A look that took longer than a
#: beat counts as one beat: if the storage stood still, so did the leader's word.
PATIENCE_SECONDS = 5.0
#: A leader that cannot say so for so many seconds ends: another may lead, and it would not know.
GIVE_UP_SECONDS = 30.0
#: A waiting driver looks every so many seconds.
LOOK_SECONDS = 0.25
#: No term is greater: a record of the log has room for eighteen digits.
_MOST_TERMS = 10**15
#: Who complains of the storage says it again after so many seconds.
_AGAIN_SECONDS = 10.0

log = logging.getLogger("millpond.store")


@dataclass(frozen=True)
class Leader:
    """What a leader says of itself.

    Attributes:
        driver: Its name in the log.
        term: The term in which it leads.
        url: Where clients reach it; "" if it serves none.
        beat: How often it has said this.
        has_left: Whether it leads no more, of its own will.
    """

    driver: str
    term: int
    url: str
    beat: int
    has_left: bool = False


def read_leader(place: SharedPlace) -> Leader | None:
    """Read who leads; None if nobody ever did, or what is there cannot be read.

    Raises:
        PlaceError: the storage gave no answer.
    """
    data = place.read(_KEY)
    if data is None:
        return None
    try:
        found = Leader(**json.loads(data))
    except (ValueError, TypeError):
        return None
    kinds = ((found.driver, str), (found.term, int), (found.url, str), (found.has_left, bool))
    is_word = all(isinstance(value, kind) for value, kind in kinds)
    return found if is_word and 0 <= found.term <= _MOST_TERMS else None


class LeadersWord:
    """Says every second that this driver leads, and notices if another does, or if it cannot."""

    def __init__(
        self, place: SharedPlace, shared_log: SharedLog, url: str, directory: Path
    ) -> None:
        """Say so from now on.

        Args:
            place: The shared place.
            shared_log: The log that this driver appends to.
            url: Where clients reach it.
            directory: Its own directory. Without it, it can do nothing and would go on to lead.
        """
        self._place, self._log, self._url, self._directory = place, shared_log, url, directory
        self._beat = 0
        #: Since when every try to say so has failed; None if the last one did not.
        self._failing_since: float | None = None
        self._complain = Complaint()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Say that this driver leads no more; closing again does nothing."""
        if not self._stop.is_set():
            self.fall_silent()
            self._say(has_left=True)

    def fall_silent(self) -> None:
        """Say nothing any more, without a word that this driver has left."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        self._say()
        while not self._stop.wait(BEAT_SECONDS):
            if not self._directory.exists() and self._log.ended is None:
                self._log.ended = lost_directory(self._directory)
            self._say()

    def _say(self, has_left: bool = False) -> None:
        try:
            check_founded(self._place)  # where the store is not, who leads is not said
            found = read_leader(self._place)
            if found is not None and found.term > self._log.term:
                if self._log.ended is None:
                    self._log.ended = other_leads(self._place)
                return
            self._beat += 1
            own = Leader(self._log.driver, self._log.term, self._url, self._beat, has_left)
            self._place.write(_KEY, json.dumps(asdict(own)).encode())
            self._failing_since = None
        except PlaceError as error:
            self._complain(error)
            self._give_up_in_time(error)

    def _give_up_in_time(self, error: PlaceError) -> None:
        """End this driver if its word has failed for long."""
        now = steady_seconds()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since > GIVE_UP_SECONDS and self._log.ended is None:
            self._log.ended = MillpondError(
                "STORE-603",
                f'the shared store "{self._place.url}" gives no answer',
                detail=f"It has given none for {GIVE_UP_SECONDS:.0f} s, and another driver may lead"
                f" meanwhile. {error}",
                hint="Make the storage reachable; the driver that opens the store next goes on.",
            )


class Complaint:
    """Warns of a storage that gives no answer, and not at each of many tries."""

    def __init__(self) -> None:
        self._warned_at: float | None = None

    def __call__(self, error: PlaceError) -> None:
        """Warn, if that was not done within the last ten seconds."""
        now = steady_seconds()
        if self._warned_at is None or now - self._warned_at >= _AGAIN_SECONDS:
            self._warned_at = now
            log.warning("the shared store gives no answer: %s", error)


def wait_to_lead(
    place: SharedPlace,
    fold: SharedFold,
    tell: Callable[[Leader], None],
    stop: threading.Event,
    clock: Callable[[], float] = steady_seconds,
) -> bool:
    """Keep a database up to date until nobody seems to lead.

    Args:
        place: The shared place.
        fold: The database.
        tell: Called with the leader whenever it is another one.
        stop: Ends the wait when it is set.
        clock: Seconds.

    Returns:
        Whether to lead now; False if the wait was ended.

    Raises:
        MillpondError: STORE-602, the log is damaged.
    """
    seen: tuple[Leader | None, int] | None = None
    told, complain = "", Complaint()
    silent, looked_at = 0.0, clock()
    while not stop.is_set():
        try:
            fold.catch_up()
            leader = read_leader(place)
        except PlaceError as error:
            complain(error)
            silent, looked_at = 0.0, clock()  # nothing is known of the leader
            stop.wait(LOOK_SECONDS)
            continue
        if _is_vacant(leader, fold):
            return True
        if leader is not None and leader.driver != told:
            told = leader.driver
            tell(leader)
        before, looked_at = looked_at, clock()
        silent += min(looked_at - before, BEAT_SECONDS)
        if seen != (leader, fold.number):
            seen, silent = (leader, fold.number), 0.0
        elif silent > PATIENCE_SECONDS:
            log.warning("the driver that leads is silent; taking over")
            return True
        stop.wait(LOOK_SECONDS)
    return False


def _is_vacant(leader: Leader | None, fold: SharedFold) -> bool:
    """Whether nobody leads, by the last word; one of before the log's last claim says nothing."""
    term, _ = fold.leader
    return term == 0 if leader is None else leader.has_left and leader.term >= term


def waiting_error(leader: Leader | None) -> MillpondError:
    """Return the error STORE-607: this driver waits while another leads."""
    at = f" at {leader.url}" if leader is not None and leader.url else ""
    return MillpondError(
        "STORE-607",
        f"another driver leads{at}",
        detail="This one keeps up with it, and takes over when it is gone.",
        hint="Send requests to the driver that leads.",
    )
