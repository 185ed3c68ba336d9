"""The ladder of memory: what gives way when the state of followed queries grows (STREAM, 2.4, 5).

State is **spilled** into files first: the processes that hold it do that as it grows, the state of
the lightest dataflows first. When it takes much of what it may in memory and files together,
queries that tolerate it are **reduced**, the lightest first. While it takes nearly all of
`state_limit` and followers are behind, pushes are **held back**. Only beyond the limit the changes
of queries are **suspended**, those of the lightest first, and tried again later.

All of this is told here, from what jobs say, and recorded in `system$actions`. Spilling changes no
answer, so it is recorded after it began; a reduction is recorded before it acts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from millpond.catalog.option_values import parse_memory
from millpond.catalog.options import OPTIONS
from millpond.errors import MillpondError
from millpond.service.changes.dataflow_accounts import DataflowAccounts
from millpond.service.ingest.door import Recorder
from millpond.service.ingest.pressure import REDUCE, Rung, choose_weight
from millpond.service.queries.weights import weight_of
from millpond.state.version import Version

SPILL, SUSPEND = "spill", "suspend"
#: From which part of the room for state on queries are reduced; spilling has begun before.
RUNGS = (Rung(0.5, REDUCE, True), Rung(0.7, REDUCE, False))
#: From which part of `state_limit` on pushes are held back while followers are behind.
_HELD_AT = 0.9
#: Without `state_limit`, the room for state is so many times `memory`.
_ROOM = 4
#: A step is left when the state that whole queries would have takes so much of what climbed it.
_LEFT_AT = 0.8
#: After so many looks it is known how much a reduction saves.
_SETTLING = 8


class MemoryLadder:
    """Decides and records the steps of the ladder of memory; for use by the advancer's thread.

    Attributes:
        spilled_weight: The weight up to which state of dataflows lies in files; 0: none does.
        reduced_weight: The weight up to which queries are reduced; 0: none is.
        shortage: Why pushes are held back; None if they are not.
        fill: How much of the room for state was taken at the last look.
    """

    def __init__(
        self,
        recorder: Recorder,
        accounts: DataflowAccounts,
        find_memory: Callable[[Version], int],
    ) -> None:
        """Begin at the bottom; `find_memory` gives the bytes of `memory`."""
        self.spilled_weight = 0.0
        self.reduced_weight = 0.0
        self.shortage: str | None = None
        self.fill = 0.0
        self._recorder = recorder
        self._accounts = accounts
        self._find_memory = find_memory
        #: How many rungs are climbed; the state when the last was, and how many times smaller it
        #: became by that; looks until that is known.
        self._step = 0
        self._climbed_with = 0
        self._growth = 1.0
        self._settling = 0
        #: The state, and the room for it, when rungs were looked at last.
        self._seen = 0, 0
        #: The derivations that are suspended, by id, with their names.
        self._suspended: dict[int, str] = {}

    def look(
        self, version: Version, failures: Mapping[int, MillpondError], is_behind: bool = False
    ) -> None:
        """Take steps, and record what gave way, or no longer does, since the last look.

        Args:
            version: The version that is current.
            failures: The derivations that fail now.
            is_behind: Whether followers have more to catch up with.
        """
        weighed = self._accounts.list_weighed_state(version).values()
        memory = sum(memory for _, memory, _ in weighed)
        files = sum(files for _, _, files in weighed)
        limit = self._find_memory(version)
        fill = (memory + files) / limit
        after = max((weight for weight, _, files in weighed if files), default=0.0)
        if after != self.spilled_weight:
            why = f"{files} of {memory + files} bytes of state lie in files; {limit} may be memory"
            with suppress(MillpondError):  # told at the next look
                self._recorder.record(SPILL, "", self.spilled_weight, after, fill, why)
                self.spilled_weight = after
        self._reduce(version, memory + files)
        self._note_suspended(version, failures, fill)
        most = find_state_limit(version)
        self.shortage = None
        if is_behind and most is not None and memory + files >= _HELD_AT * most:
            self.shortage = f"{memory + files:,} of {most:,} bytes of state are taken"

    def rest(self, version: Version) -> None:
        """Leave what nobody needs any more, while followers have nothing to catch up with."""
        # Waiting would free nothing.
        self.shortage = None
        if not self._step:
            return
        weighed = self._accounts.list_weighed_state(version).values()
        total = sum(memory + files for _, memory, files in weighed)
        if (total, self._find_room(version)) != self._seen:
            self._reduce(version, total)

    def _reduce(self, version: Version, total: int) -> None:
        """Climb or leave rungs, by the bytes of state."""
        room = self._find_room(version)
        self._seen = total, room
        self.fill = total / room
        if self._settling and total < self._climbed_with:
            self._growth = self._climbed_with / max(total, 1)
            self._settling -= 1
        step = sum(total >= rung.fill * room for rung in RUNGS)
        if step < self._step:
            # What the state of whole queries would be: else they would be reduced again at once.
            whole = total * self._growth
            left = sum(whole > rung.fill * room * _LEFT_AT for rung in RUNGS)
            step = max(step, min(left, self._step))
        if step == self._step:
            return
        after = 0.0
        if step:
            after = float(choose_weight(list_tolerant_weights(version), RUNGS[step - 1]))
        if after != self.reduced_weight:
            why = f"{total} of {room} bytes of state are taken"
            try:
                args = (self.reduced_weight, after, self.fill, why)
                self._recorder.record(REDUCE, "state", *args)
            except MillpondError:
                return  # the step is taken when it can be recorded
            self.reduced_weight = after
        if step > self._step:
            self._climbed_with, self._settling = total, _SETTLING
        elif not step:
            self._growth = 1.0
        self._step = step

    def _find_room(self, version: Version) -> int:
        """The bytes that state may take, in memory and in files."""
        most = find_state_limit(version)
        return _ROOM * self._find_memory(version) if most is None else most

    def _note_suspended(
        self, version: Version, failures: Mapping[int, MillpondError], fill: float
    ) -> None:
        for id, error in failures.items():
            stream = version.streams.get(id)
            if stream is None or id in self._suspended or not is_beyond_limit(error):
                continue
            with suppress(MillpondError):
                name = version.name_of(stream)
                self._recorder.record(SUSPEND, name, 0.0, 1.0, fill, error.detail or "")
                self._suspended[id] = name
        for id, name in list(self._suspended.items()):
            if id not in failures:
                with suppress(MillpondError):
                    why = "there is room for its state, or it is not followed any more"
                    self._recorder.record(SUSPEND, name, 1.0, 0.0, fill, why)
                    del self._suspended[id]


def find_state_limit(version: Version) -> int | None:
    """The bytes of `state_limit`; None: state may take any."""
    given = version.settings.get("state_limit", OPTIONS["state_limit"].default)
    return None if given == "unbounded" else parse_memory(given)


def list_tolerant_weights(version: Version) -> list[float]:
    """The distinct weights of the followed queries that tolerate something, ascending."""
    logs = (stream for stream in version.streams.values() if stream.is_change_log)
    queries = (version.query_of(stream) for stream in logs)
    found = {weight_of(q) for q in queries if q is not None and "tolerate" in q.options}
    return sorted(found - {0.0})


def is_beyond_limit(error: MillpondError) -> bool:
    """Whether changes fail because their state is beyond `state_limit`."""
    return error.code == "POND-405" and "state_limit" in (error.detail or "")
