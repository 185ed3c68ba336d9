"""The Query SteMs of the pond: which predicates are live on which stream, and who shares them.

A slot is a predicate with a number in its stream's Query SteM. Queries with equal predicates share
one. The catalog (epoch log) has the slots; this module keeps the driver's working copy of them, and
writes snapshot files of it for workers.

To lay out a hundred thousand queries that are new takes seconds. Whoever registers, drops, or is
planned for another stream does not wait for that: a SteM is laid out under a lock of its own.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import threading
import uuid
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from millpond.engine.eddy.eddy import Ledger
from millpond.engine.eddy.routing import Account
from millpond.engine.matching.query_stem import QuerySteM, snapshot_queries
from millpond.engine.matching.results_structure import OTHERS
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.predicates.factors import Factors
from millpond.model.owner_only import make_directory
from millpond.runtime.batch_tasks import BuiltSegment
from millpond.state.file_share import publish_scratch, withdraw_scratch
from millpond.state.id_map import IdMap
from millpond.state.store import new_path
from millpond.state.version import SlotRef, Version

log = logging.getLogger("millpond.queries")

#: Snapshots whose files stay: a batch may still run with one.
_SNAPSHOTS_KEPT = 16
#: So many queries that come or go together are laid out behind what else goes on: it takes 0.1 s.
_VERY_MANY = 4_096
#: Users of slots are counted in pages of so many slots.
_PAGE = 512


class _Stem:
    """One stream's Query SteM and the file its newest snapshot is in."""

    def __init__(self, stem: QuerySteM) -> None:
        self.stem = stem
        #: Held while the SteM is changed and laid out.
        self.building = threading.Lock()
        #: The slots that the SteM has.
        self.slots: IdMap[SlotRef] = IdMap()
        #: What `slots` was made from, where that was no map.
        self.chosen: tuple[SlotRef, ...] = ()
        #: What `snapshot` gave last.
        self.newest: tuple[str | None, int] = None, 0
        #: Whether very many queries are laid out now.
        self.is_long = False
        self.file: Path | None = None
        self.files: deque[list[Path]] = deque()
        self.ledger = Ledger()
        self.costs: dict[str, list[float]] = {}
        #: By attribute, the nanoseconds that matching took since the pond was opened.
        self.spent: Counter[str] = Counter()
        self._most_accounts = 256

    def take_over(self, slots: IdMap[SlotRef]) -> bool:
        """Have the SteM hold these slots; whether it held others. `building` is held."""
        if slots is self.slots:
            return False
        fresh, gone = slots.compare(self.slots)
        self.slots = slots
        for number in gone:
            self.stem.remove(number)
        for number in fresh:
            self.stem.add_packed(number, slots[number].factors)
        return bool(fresh or gone)

    def takes_long(self, slots: IdMap[SlotRef]) -> bool:
        """Whether it takes long to take these slots over: very many have come or gone."""
        return abs(len(slots) - len(self.slots)) >= _VERY_MANY

    @property
    def is_unwritten(self) -> bool:
        """Whether the newest snapshot could not be written."""
        return self.file is None and len(self.slots) > 0

    def forget_dropped(self) -> None:
        """Drop the accounts of expressions that no query has any more, now and then."""
        accounts = self.ledger.accounts
        if len(accounts) <= self._most_accounts or not self.building.acquire(blocking=False):
            return
        try:
            live = self.stem.expressions() | set(self.stem.schema.names)
        finally:
            self.building.release()
        self.ledger.accounts = {name: a for name, a in accounts.items() if name in live}
        self._most_accounts = max(256, 2 * len(self.ledger.accounts))


class SlotUsers:
    """Counts how many leaves share each slot of a stream, in four bytes a slot.

    Slots are numbered as they come, so pages are dense. A dict of numbers would take eighty bytes.

    >>> users = SlotUsers()
    >>> users.add(7, 2)
    >>> users.add(7, -1)
    >>> users.count(7), users.count(8)
    (1, 0)
    """

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}

    def count(self, slot: int) -> int:
        """How many users a slot has."""
        page = self._pages.get(slot // _PAGE)
        return 0 if page is None else page[slot % _PAGE]

    def add(self, slot: int, many: int) -> None:
        """Count so many more users of a slot, or fewer; there are never less than none."""
        page = self._pages.get(slot // _PAGE)
        if page is None:
            page = self._pages[slot // _PAGE] = array("I", bytes(4 * _PAGE))
        left = max(0, page[slot % _PAGE] + many)
        page[slot % _PAGE] = left
        if not left and not any(page):
            del self._pages[slot // _PAGE]


class QueryStems:
    """The Query SteMs of all streams; safe to use from any thread."""

    def __init__(self, store: Path) -> None:
        self._store = store
        #: The routing policy of the tasks' eddies.
        self.routing = "ticket"
        self._stems: dict[int, _Stem] = {}
        #: The parts of them that are matched while lighter queries wait.
        self._heavy: dict[int, _Stem] = {}
        self._users: defaultdict[int, SlotUsers] = defaultdict(SlotUsers)  # by stream
        self._counting = threading.Lock()
        self._kept: Counter[Path] = Counter()
        #: The files that workers on other machines were given.
        self._given: set[Path] = set()
        #: Held for as long as it takes to look, or to write files; a SteM's own lock comes first.
        self._lock = threading.RLock()

    def load(self, version: Version) -> None:
        """Take over the catalog's slots at start, and remove snapshots of earlier processes."""
        for left in (self._store / "stems").iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        for query_id in version.queries:
            for leaf in version.leaves(query_id):
                if leaf.slot is not None:
                    self._users[leaf.stream_id].add(leaf.slot, 1)

    def use(self, slots: Iterable[tuple[int, int]]) -> None:
        """Count one more user of each (stream, slot): queries were registered."""
        with self._counting:
            for stream_id, slot in slots:
                self._users[stream_id].add(slot, 1)

    def find_unused_without(self, slots: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Find the slots that have no user any more once each has lost one."""
        leaving = Counter(slots)
        with self._counting:
            return [s for s, count in leaving.items() if self.users(*s) <= count]

    def disuse(self, slots: Iterable[tuple[int, int]]) -> None:
        """Count one user less of each (stream, slot): queries were dropped or deactivated."""
        with self._counting:
            for stream_id, slot in slots:
                self._users[stream_id].add(slot, -1)

    def users(self, stream_id: int, slot: int) -> int:
        """How many leaves share a slot."""
        return self._users[stream_id].count(slot)

    def snapshot(self, version: Version, stream_id: int) -> tuple[str | None, int]:
        """The newest snapshot as of `version`: (file, upto).

        Only blocks that changed are built again; without a live slot there is no file.
        """
        held = self._held(self._stems, version, stream_id)
        slots, upto = version.slots_by_number(stream_id), version.next_slot(stream_id)
        with held.building:
            held.is_long = held.takes_long(slots)
            try:
                is_changed = held.take_over(slots)
                if is_changed or held.newest[1] != upto or held.is_unwritten:
                    self._write(held)
                held.newest = (str(held.file) if len(slots) else None), upto
            finally:
                held.is_long = False
            return held.newest

    def snapshot_at_hand(self, version: Version, stream_id: int) -> tuple[str | None, int]:
        """As `snapshot`; but while very many new queries are laid out, the one before them.

        A batch that is matched with that one is not held up by them. Backfill matches its segments
        with the others, as it does those that are kept.
        """
        held = self._held(self._stems, version, stream_id)
        if not held.is_long:
            if not held.takes_long(version.slots_by_number(stream_id)):
                return self.snapshot(version, stream_id)
            threading.Thread(
                target=self._lay_out_behind,
                args=(held, version, stream_id),
                name="query-layout",
                daemon=True,
            ).start()
        return held.newest

    def _lay_out_behind(self, held: _Stem, version: Version, stream_id: int) -> None:
        if held.is_long:
            return  # another thread does it
        try:
            self.snapshot(version, stream_id)
        except Exception as error:  # each batch tries again
            log.warning("queries cannot be laid out: %s", error, extra={"stream": stream_id})

    def snapshot_of(
        self, version: Version, stream_id: int, slots: tuple[SlotRef, ...]
    ) -> tuple[str | None, int]:
        """As `snapshot`, of these slots alone."""
        held = self._held(self._heavy, version, stream_id)
        with held.building:
            chosen = held.slots
            if slots is not held.chosen:
                chosen = IdMap[SlotRef]().with_changes({s.slot: s for s in slots})
                held.chosen = slots
            if held.take_over(chosen) or held.is_unwritten:
                self._write(held)
            file = str(held.file) if len(held.slots) else None
            return file, version.next_slot(stream_id)

    def _held(self, stems: dict[int, _Stem], version: Version, stream_id: int) -> _Stem:
        """A stream's SteM; a new one if the stream has other columns now."""
        schema = version.streams[stream_id].schema
        with self._lock:
            held = stems.get(stream_id)
            if held is None or held.stem.schema != schema:
                held = stems[stream_id] = _Stem(QuerySteM(schema))
            return held

    def _write(self, held: _Stem) -> None:
        """Write the snapshot; files of the last few stay for batches that still run."""
        snapshot = held.stem.snapshot() if len(held.slots) else None
        with self._lock:
            self._write_files(held, snapshot)

    def _write_files(self, held: _Stem, snapshot: StemSnapshot | None) -> None:
        held.file = None
        if snapshot is not None:
            file = new_path(self._store, "stems")
            held.files.append(self._give(snapshot.save(file)))
            held.file = file
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

    @contextmanager
    def part(self, version: Version, stream_id: int, low: int) -> Iterator[tuple[Path | None, int]]:
        """A snapshot of the live slots ≥ `low`, for a backfill in the block: (file, upto)."""
        upto = version.next_slot(stream_id)
        if not low:  # all of them: they are laid out for batches, too
            file, upto = self.snapshot(version, stream_id)
            with self.keep_files(file):
                yield (None if file is None else Path(file)), upto
            return
        # By number: a registration among tens of thousands looks at its own.
        slots = [s for n in range(low, upto) if (s := version.slot(stream_id, n)) is not None]
        if not slots:
            yield None, upto
            return
        schema = version.streams[stream_id].schema
        part = snapshot_queries([(s.slot, Factors.unpack(s.factors)) for s in slots], schema)
        # A folder of its own: blocks are shared by name, and these go when the backfill is done.
        folder = self._store / "stems" / uuid.uuid4().hex
        make_directory(folder)
        files = part.save(folder / "part")
        for path in files:
            publish_scratch(path)
        try:
            yield folder / "part", upto
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            for path in files:
                withdraw_scratch(path)

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
    return hash_key(factors.key_text)


def hash_key(key_text: str) -> bytes:
    """The key in the catalog of a predicate whose factors have that `key_text`."""
    return hashlib.blake2b(key_text.encode(), digest_size=16).digest()
