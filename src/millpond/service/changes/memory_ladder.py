"""The ladder of memory: what gives way when the state of followed queries grows (STREAM, 2.4).

State is **spilled** into files first: the processes that hold it do that as it grows, the state of
the lightest dataflows first. Only beyond `state_limit` the changes of queries are **suspended**,
those of the lightest first, and tried again later. Both are told here, from what jobs say, and are
recorded in `system$actions`. Spilling changes no answer, so it is recorded after it began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from millpond.errors import MillpondError
from millpond.service.changes.dataflow_accounts import DataflowAccounts
from millpond.service.ingest.door import Recorder
from millpond.state.version import Version

SPILL, SUSPEND = "spill", "suspend"


class MemoryLadder:
    """Records the steps of the ladder of memory; for use by the advancer's thread.

    Attributes:
        spilled_weight: The weight up to which state of dataflows lies in files; 0: none does.
    """

    def __init__(
        self,
        recorder: Recorder,
        accounts: DataflowAccounts,
        find_limit: Callable[[Version], int],
    ) -> None:
        """Begin at the bottom; `find_limit` gives the bytes of `memory`."""
        self.spilled_weight = 0.0
        self._recorder = recorder
        self._accounts = accounts
        self._find_limit = find_limit
        #: The derivations that are suspended, by id, with their names.
        self._suspended: dict[int, str] = {}

    def look(self, version: Version, failures: Mapping[int, MillpondError]) -> None:
        """Record what gave way, or no longer does, since the last look.

        Args:
            version: The version that is current.
            failures: The derivations that fail now.
        """
        weighed = self._accounts.list_weighed_state(version).values()
        memory = sum(memory for _, memory, _ in weighed)
        files = sum(files for _, _, files in weighed)
        limit = self._find_limit(version)
        fill = (memory + files) / limit
        after = max((weight for weight, _, files in weighed if files), default=0.0)
        if after != self.spilled_weight:
            why = f"{files} of {memory + files} bytes of state lie in files; {limit} may be memory"
            with suppress(MillpondError):  # told at the next look
                self._recorder.record(SPILL, "", self.spilled_weight, after, fill, why)
                self.spilled_weight = after
        self._note_suspended(version, failures, fill)

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


def is_beyond_limit(error: MillpondError) -> bool:
    """Whether changes fail because their state is beyond `state_limit`."""
    return error.code == "POND-405" and "state_limit" in (error.detail or "")
