"""The Query SteMs of the pond: which predicates are live on which stream, and who shares them.

A slot is a predicate with a number in its stream's Query SteM. Queries with equal predicates share
one. The catalog (epoch log) has the slots; this module keeps the driver's working copy of them, and
writes snapshot files of it for workers.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from millpond.engine.eddy.eddy import Ledger
from millpond.engine.eddy.routing import Account
from millpond.engine.matching.query_stem import QuerySteM, snapshot_queries
from millpond.engine.matching.results_structure import OTHERS
from millpond.engine.predicates.factors import Factors
from millpond.model.owner_only import make_directory
from millpond.runtime.batch_tasks import BuiltSegment
from millpond.state.file_share import publish_scratch, withdraw_scratch
from millpond.state.store import new_path
from millpond.state.version import SlotRef, Version

#: Snapshots whose files stay: a batch may still run with one.
_SNAPSHOTS_KEPT = 16
_NONE = np.zeros(0, np.int64)


class _Stem:
    """One stream's Query SteM and the file its newest snapshot is in."""

    def __init__(self, stem: QuerySteM) -> None:
        self.stem = stem
        self.live = _NONE  # slots, ascending
        self.seen: tuple[SlotRef, ...] = ()
        self.upto = 0
        self.file: Path | None = None
        self.files: deque[list[Path]] = deque()
        self.ledger = Ledger()
        self.costs: dict[str, list[float]] = {}
        #: By attribute, the nanoseconds that matching took since the pond was opened.
        self.spent: Counter[str] = Counter()
        self._most_accounts = 256

    def forget_dropped(self) -> None:
        """Drop the accounts of expressions that no query has any more, now and then."""
        accounts = self.ledger.accounts
        if len(accounts) > self._most_accounts:
            live = self.stem.expressions() | set(self.stem.schema.names)
            self.ledger.accounts = {name: a for name, a in accounts.items() if name in live}
            self._most_accounts = max(256, 2 * len(self.ledger.accounts))


class QueryStems:
    """The Query SteMs of all streams; safe to use from any thread."""

    def __init__(self, store: Path) -> None:
        self._store = store
        #: The routing policy of the tasks' eddies.
        self.routing = "ticket"
        self._stems: dict[int, _Stem] = {}
        #: The parts of them that are matched while lighter queries wait.
        self._heavy: dict[int, _Stem] = {}
        self._users: defaultdict[int, Counter[int]] = defaultdict(Counter)  # by stream, slot
        self._kept: Counter[Path] = Counter()
        #: The files that workers on other machines were given.
        self._given: set[Path] = set()
        self._lock = threading.RLock()

    def load(self, version: Version) -> None:
        """Take over the catalog's slots at start, and remove snapshots of earlier processes."""
        for left in (self._store / "stems").iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        for query_id in version.queries:
            for leaf in version.leaves(query_id):
                if leaf.slot is not None:
                    self._users[leaf.stream_id][leaf.slot] += 1

    def use(self, slots: Iterable[tuple[int, int]]) -> None:
        """Count one more user of each (stream, slot): queries were registered."""
        with self._lock:
            for stream_id, slot in slots:
                self._users[stream_id][slot] += 1

    def find_unused_without(self, slots: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Find the slots that have no user any more once each has lost one."""
        leaving = Counter(slots)
        with self._lock:
            return [s for s, count in leaving.items() if self.users(*s) <= count]

    def disuse(self, slots: Iterable[tuple[int, int]]) -> None:
        """Count one user less of each (stream, slot): queries were dropped or deactivated."""
        with self._lock:
            for stream_id, slot in slots:
                users = self._users[stream_id]
                users[slot] -= 1
                if users[slot] <= 0:
                    del users[slot]

    def users(self, stream_id: int, slot: int) -> int:
        """How many leaves share a slot."""
        return self._users[stream_id][slot]

    def snapshot(self, version: Version, stream_id: int) -> tuple[str | None, int]:
        """The newest snapshot as of `version`: (file, upto).

        Only blocks that changed are built again; without a live slot there is no file.
        """
        with self._lock:
            held = self._stems.get(stream_id)
            if held is None or held.stem.schema != version.streams[stream_id].schema:
                held = _Stem(QuerySteM(version.streams[stream_id].schema))
                self._stems[stream_id] = held
            slots = version.slots(stream_id)
            upto = version.next_slot(stream_id)
            if self._synchronise(held, slots) or held.upto != upto:
                held.upto = upto
                self._write(held)
            return (str(held.file) if len(held.live) else None), upto

    def snapshot_of(
        self, version: Version, stream_id: int, slots: tuple[SlotRef, ...]
    ) -> tuple[str | None, int]:
        """As `snapshot`, of these slots alone."""
        with self._lock:
            held = self._heavy.get(stream_id)
            if held is None or held.stem.schema != version.streams[stream_id].schema:
                held = self._heavy[stream_id] = _Stem(QuerySteM(version.streams[stream_id].schema))
            if self._synchronise(held, slots):
                self._write(held)
            file = str(held.file) if len(held.live) else None
            return file, version.next_slot(stream_id)

    @staticmethod
    def _synchronise(held: _Stem, slots: tuple[SlotRef, ...]) -> bool:
        if slots is held.seen:
            return False
        held.seen = slots
        numbers = np.fromiter((s.slot for s in slots), np.int64, len(slots))
        gone, fresh = np.setdiff1d(held.live, numbers), ~np.isin(numbers, held.live)
        for slot in gone.tolist():
            held.stem.remove(slot)
        for index in np.flatnonzero(fresh).tolist():
            held.stem.add_packed(slots[index].slot, slots[index].factors)
        held.live = np.sort(numbers)
        return bool(len(gone) or fresh.any())

    def _write(self, held: _Stem) -> None:
        """Write the snapshot; files of the last few stay for batches that still run."""
        held.file = None
        if len(held.live):
            held.file = new_path(self._store, "stems")
            held.files.append(self._give(held.stem.snapshot().save(held.file)))
            held.stem.release(self._store / "stems")
        self._kept = +self._kept
        spare = len(held.files) - _SNAPSHOTS_KEPT
        old = [files for files in list(held.files)[: max(spare, 0)] if files[0] not in self._kept]
        for files in old:
            held.files.remove(files)
        stems = (*self._stems.values(), *self._heavy.values())
        # Blocks are shared by name: another stream with the same predicates has the same files.
        needed = {p for stem in stems for files in stem.files for p in files}
        for path in {path for files in old for path in files} - needed:
            path.unlink(missing_ok=True)
            self._given.discard(path)
            withdraw_scratch(path)

    def _give(self, files: list[Path]) -> list[Path]:
        """Give workers on other machines the files of a snapshot, each of them once."""
        for path in files:
            if path not in self._given:
                publish_scratch(path)
                self._given.add(path)
        return files

    @contextmanager
    def keep_files(self, stem: str | None) -> Iterator[None]:
        """Keep a snapshot's files until the block ends, however many newer ones are written."""
        with self._lock:
            if stem is not None:
                self._kept[Path(stem)] += 1
        try:
            yield
        finally:
            with self._lock:
                if stem is not None:
                    self._kept[Path(stem)] -= 1

    def part(
        self, version: Version, stream_id: int, low: int
    ) -> tuple[Path | None, int, list[Path]]:
        """A snapshot of the live slots ≥ `low` alone, for a backfill: (file, upto, all files)."""
        upto = version.next_slot(stream_id)
        # By number: a registration among tens of thousands looks at its own.
        slots = [s for n in range(low, upto) if (s := version.slot(stream_id, n)) is not None]
        if not slots:
            return None, upto, []
        schema = version.streams[stream_id].schema
        part = snapshot_queries([(s.slot, Factors.unpack(s.factors)) for s in slots], schema)
        # A folder of its own: blocks are shared by name, and these go when the backfill is done.
        folder = self._store / "stems" / uuid.uuid4().hex
        make_directory(folder)
        files = part.save(folder / "part")
        for path in files:
            publish_scratch(path)
        return folder / "part", upto, files

    # -- routing -------------------------------------------------------------------------------

    def accounts(self, stream_id: int) -> dict[str, Account]:
        """The accounts of a stream's modules, for the eddies of the next batch."""
        with self._lock:
            held = self._stems.get(stream_id)
            return dict(held.ledger.accounts) if held else {}

    def order(self, stream_id: int) -> tuple[str, ...] | None:
        """Attributes, those with the most tickets first; None before any measurement."""
        with self._lock:
            held = self._stems.get(stream_id)
            if held is None or not held.costs:
                return None
            accounts = held.ledger.accounts
            known = [a for a in held.costs if a != OTHERS and a in accounts]
            return tuple(sorted(known, key=lambda a: accounts[a].tickets, reverse=True))

    def observe(self, stream_id: int, built: BuiltSegment) -> None:
        """Take over the accounts of a task's eddy.

        The task started with the driver's accounts and let them fade; its accounts replace them.
        """
        with self._lock:
            held = self._stems.get(stream_id)
            if held is None:
                return
            held.ledger.accounts.update(built.learnt)
            held.forget_dropped()
            held.ledger.visits += built.visits
            held.ledger.routed += built.routed
            for attribute, passage in built.stats.items():
                held.spent[attribute] += passage.ns
                seen = held.costs.setdefault(attribute, [0.0, 0.0, 0.0])
                measured = (passage.tuples_in, passage.tuples_out, passage.ns)
                for i, value in enumerate(measured):
                    seen[i] = seen[i] * 0.8 + value

    def filters(self, stream_id: int) -> dict[str, tuple[float, float]]:
        """Per attribute the measured (share of elements surviving, ns an element), for EXPLAIN.

        Under `OTHERS` the same of pairs of element and predicate that reached the other factors.
        """
        with self._lock:
            held = self._stems.get(stream_id)
            costs = held.costs if held else {}
            return {
                attribute: (leaving / max(into, 1), ns / max(into, 1))
                for attribute, (into, leaving, ns) in costs.items()
            }

    def spent(self, stream_id: int) -> dict[str, float]:
        """By attribute (`OTHERS` for other factors) the seconds that matching took so far."""
        with self._lock:
            held = self._stems.get(stream_id)
            return {name: ns / 1e9 for name, ns in held.spent.items()} if held else {}

    def ledger(self, stream_id: int) -> Ledger | None:
        """A stream's accounts, for EXPLAIN and metrics."""
        with self._lock:
            held = self._stems.get(stream_id)
            return held.ledger if held else None


def slot_key(factors: Factors) -> bytes:
    """A predicate's key in the catalog: equal for predicates equal up to order."""
    return hashlib.blake2b(repr(factors.key).encode(), digest_size=16).digest()
