"""Files of matches: which elements of one segment satisfy which slots.

A file is written while its matches are found, and folded piece by piece: a million elements that
half of a hundred thousand queries match are 12 GB of matches, and no task holds more of them than
those of a block of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millpond.engine.eddy.eddy import Router
from millpond.engine.matching.match import match
from millpond.engine.matching.results_structure import ORDER, SCHEMA, Matches
from millpond.engine.matching.stem_snapshot import StemSnapshot
from millpond.engine.scalars.evaluator import ScalarEvaluator
from millpond.state.arrow_file import FileMeta, forget, open_arrow, write_arrow, write_pieces
from millpond.state.file_share import withdraw
from millpond.state.store import new_path

#: The key of a file's metadata that lists the failed slots.
FAILED = b"millpond.failed"


def write_matches(
    store: str,
    elements: pa.Table,
    stem: StemSnapshot,
    router: Router | None = None,
    deferred: Collection[int] = (),
    mark: str = "",
) -> tuple[Matches, FileMeta]:
    """Match a segment's elements, and write what is found.

    A file of matches need not survive a loss of power: lost ones are computed again.

    Args:
        store: The store's directory.
        elements: The segment's elements.
        stem: The queries.
        router: See `match`.
        deferred: Slots that were not matched, and are noted as if they had failed.
        mark: What the file's name begins with.

    Returns:
        The matches without their pieces, and their file.
    """
    found: list[Matches] = []

    def find(keep: Callable[[pa.RecordBatch], None]) -> None:
        scalar = ScalarEvaluator.of_this_thread()
        found.append(match(elements, stem, scalar, router=router, keep=keep))

    file = write_pieces(new_path(store, "matches", mark), _schema(deferred), find)
    [matches] = found
    if matches.failed:
        file = _write_again(store, file, {*matches.failed, *deferred}, mark)
    return matches, file


def _write_again(store: str, file: FileMeta, failed: Iterable[int], mark: str) -> FileMeta:
    """Write a file's pieces again with the slots that turned out to fail."""
    table = open_arrow(file.path).replace_schema_metadata(_schema(failed).metadata)
    try:
        return write_arrow(new_path(store, "matches", mark), table, sync=False, whole=False)
    finally:
        forget(file.path)
        file.path.unlink()
        withdraw(file.path)


def fold_matches(store: str, tables: Sequence[pa.Table], live: Collection[int]) -> FileMeta:
    """Make one file of several about the same elements, with only the live slots."""
    slots = pa.array(live, pa.uint32())
    failed = frozenset(live) & frozenset().union(*(failed_slots(table) for table in tables))

    def copy(keep: Callable[[pa.RecordBatch], None]) -> None:
        for table in tables:
            for piece in table.to_batches():
                wanted = pc.or_(pc.is_in(piece["slot"], slots), pc.equal(piece["encoding"], ORDER))
                keep(piece.filter(wanted).replace_schema_metadata())

    return write_pieces(new_path(store, "matches"), _schema(failed), copy)


def failed_slots(table: pa.Table) -> frozenset[int]:
    """Read from stored matches the slots whose predicate could not be evaluated."""
    text = (table.schema.metadata or {}).get(FAILED, b"")
    return frozenset(int(slot) for slot in text.split(b",") if slot)


def _schema(failed: Iterable[int]) -> pa.Schema:
    """The schema of a file that notes slots: to have failed is not to match nothing."""
    text = ",".join(str(slot) for slot in sorted(failed))
    return SCHEMA.with_metadata({FAILED: text}) if text else SCHEMA
