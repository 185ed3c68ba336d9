"""Which DuckDB a store was made with: the meaning of every scalar is DuckDB's.

The file DUCKDB of a store names the version that computed what is derived from its elements:
matches, pairs of joins, summaries. Under another version an expression may mean something else, so
all of it is dropped, and made again from the elements. What was delivered stays: changes are never
revised. Totals of segments need nothing of this; each of their files names its version.

A shared store has the file as each leader has noted it, under its term; the last of them holds.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import duckdb

from millpond.model.owner_only import write_owner_only
from millpond.state.arrow_file import sync_directory, sync_file
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.epoch_log import EpochLog
from millpond.state.file_share import share_of
from millpond.state.join_state import JoinChange
from millpond.state.version import Version

log = logging.getLogger("millpond.store")

FILE = "DUCKDB"


def write_scalar_version(store: Path) -> None:
    """Note, durably, that what is derived in a store is of this process's DuckDB."""
    temporary = store / f".{FILE}.tmp"
    write_owner_only(temporary, f"{duckdb.__version__}\n".encode())
    sync_file(temporary)
    temporary.rename(store / FILE)
    sync_directory(store)
    share = share_of(store / FILE)
    if share is not None and share.term:
        share.publish(store / FILE, f"{FILE}-{share.term:010}")


def renew_derived(store: Path, epochs: EpochLog) -> None:
    """Drop all that another DuckDB derived from the store's elements, and note this one."""
    file = store / FILE
    share = share_of(file)
    if share is not None:
        # What this directory says is of the time when it last led, or of nothing yet.
        noted = share.list_names(store, f"{FILE}-")
        if not noted or not share.fetch(file, noted[-1]):
            file.unlink(missing_ok=True)
    found = file.read_text(errors="replace").strip() if file.is_file() else None
    if found == duckdb.__version__:
        return
    if _has_derived(epochs.version):
        epochs.commit(_drop_derived)
        log.warning(
            "the store was last opened with %s, and this is DuckDB %s: matches, joined pairs and "
            "summaries are made again; changes that were delivered stay as they are",
            "an unknown DuckDB" if found is None else f"DuckDB {found}",
            duckdb.__version__,
        )
    write_scalar_version(store)


def _has_derived(version: Version) -> bool:
    return bool(
        any(version.matches_of.values())
        or any(version.joins.pairs(id) for id in version.joins.cores)
        or any(summary.file is not None for summary in version.summaries.values())
    )


def _drop_derived(version: Version) -> EpochChange:
    joins = version.joins
    return EpochChange(
        kind="scalars",
        drop_matches=[match for refs in version.matches_of.values() for match in refs],
        add_summaries=[
            replace(summary, file=None)
            for summary in version.summaries.values()
            if summary.file is not None
        ],
        joins=JoinChange(
            cores=[
                replace(core, upto=0, covered=(), epoch=0, since=())
                for core in joins.cores.values()
            ],
            drop_pairs=[file for id in joins.cores for file in joins.pairs(id)],
        ),
    )
