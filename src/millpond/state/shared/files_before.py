"""The files that were in the shared place before this process led, of which some are nobody's.

A driver that dies between writing a file and committing what refers to it leaves the file in the
shared place. Which files those are cannot be seen by looking at the place: another driver may be
about to commit one. But of a file that was there *before* this process claimed the log, everything
is known after the claim: its writer leads no more, so it will never commit anything; what it has
committed is in the log, which this process has read to its end. And no path is ever used twice.

INV-ORPHAN-1: a path that was listed before a claim, and that nothing in the log up to the claim
refers to, is referred to by nothing, ever. No clock is asked, and it does not matter how long this
process is stopped between looking, claiming and removing.

The files are listed in the background: a driver that waits has long done so when it takes over.
What was not listed by then is left to the next driver.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping

from millpond.state.shared.place import PlaceError, SharedPlace
from millpond.state.version import REFERENCED

log = logging.getLogger("millpond.store")

_FILES, _INBOX = "files/", "inbox"
#: A driver that waits lists the files again after so many seconds.
_AGAIN_SECONDS = 3_600.0


class FilesBefore:
    """Lists the files that a log refers to, and others beside them, until this process leads."""

    def __init__(self, place: SharedPlace) -> None:
        self._place, self._kinds = place, (*REFERENCED, _INBOX)
        self._found: dict[str, list[str]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="files-before", daemon=True)
        self._thread.start()

    def take(self) -> list[str]:
        """Return the paths that were listed so far, relative to a store; call it before a claim."""
        return [path for paths in list(self._found.values()) for path in paths]

    def close(self) -> None:
        """List no more; a call of the storage that is under way ends by itself."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            for kind in self._kinds:
                if self._stop.is_set():
                    return
                try:
                    keys = self._place.list_keys(f"{_FILES}{kind}/")
                except PlaceError as error:
                    log.debug("the files of the shared store cannot be listed: %s", error)
                    continue
                self._found[kind] = [key.removeprefix(_FILES) for key in keys]
            self._stop.wait(_AGAIN_SECONDS)


def find_orphans(
    before: Iterable[str],
    referenced: Mapping[str, object],
    pushes: Mapping[int, str],
    last_push: int,
) -> list[str]:
    """Find the files that nothing refers to, nor ever will.

    Args:
        before: The paths that were there before this process claimed the log.
        referenced: The paths that the log refers to up to the claim.
        pushes: The names, in the shared place, of the pushes that are still needed, by number.
        last_push: The number of the last push in the log.
    """
    return [path for path in before if not _is_needed(path, referenced, pushes, last_push)]


def _is_needed(
    path: str, referenced: Mapping[str, object], pushes: Mapping[int, str], last_push: int
) -> bool:
    kind, _, name = path.partition("/")
    if kind != _INBOX:
        return path in referenced
    try:
        number = int(name.partition("-")[0])
    except ValueError:
        return True
    # A number behind the last one will be given anew, perhaps to the same rows, whose sender tries
    # again: then the file is called the same.
    return number > last_push or pushes.get(number) == name
