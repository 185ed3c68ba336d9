"""The store: a directory that holds everything a pond knows, and survives its process.

    FORMAT        what the directory is
    DUCKDB        by which DuckDB what is derived from elements was computed
    LOCK          held by the process that has the store open; says which
    journal/      every change as a numbered, checksummed record; snapshots of pond.db
    LAST          the number of the journal's last record
    READ_TIMES    up to when sources were read (a cache; without it all may have been told)
    pond.db       definitions, clocks, the epoch log, the inbox's rows (SQLite): the journal's fold
    segments/     elements          matches/    which element matches which slots
    rejects/      rejected rows     relations/  relation deltas
    runs/         the SteMs' runs   pairs/      the joins' pairs
    aggregates/   totals of segments' matches (a cache that no epoch refers to)
    inbox/        pushed rows       stems/      Query SteM snapshots (a cache, emptied on opening)
    scratch/      state of followed queries that memory has no room for (files without names)
    functions/    user-defined functions for workers, copied from pond.db
    checkpoints/  the streaming queries' own; the store does not read them
    set_aside/    files nothing refers to, moved here when the store was opened

Everything is its owner's alone (`model/owner_only.py`); opening tightens what is not.

A file belongs to the store only once a committed epoch refers to it. Opening sets aside the files
no epoch refers to (a writer died before its commit). Opening also reports, by name, the files that
are referred to and are missing or torn, and does not fail: queries that do not need these files go
on. Only a damaged journal keeps a store from opening, because it is then unknown what is missing.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from millpond.errors import MillpondError
from millpond.model.owner_only import make_directory, open_owner_only, tighten
from millpond.model.time import now
from millpond.state import arrow_file
from millpond.state.aggregate_file import remove_orphans
from millpond.state.database.database import Database
from millpond.state.epoch_log import EpochLog
from millpond.state.file_share import share_directory, unshare_directory
from millpond.state.inbox.inbox import Inbox
from millpond.state.inbox.staged_parts import StagedParts
from millpond.state.migrations import MIGRATIONS
from millpond.state.migrations.write_format import write_format
from millpond.state.outside_files import check_ordinary
from millpond.state.read_times import ReadTimes
from millpond.state.scalar_version import renew_derived, write_scalar_version
from millpond.state.scratch_folder import SCRATCH
from millpond.state.set_aside import (
    SetAside,
    clean_set_aside,
    list_set_aside,
    set_aside,
)
from millpond.state.shared.files_before import find_orphans
from millpond.state.shared.place_share import PlaceShare
from millpond.state.shared.shared_store import SharedStore, read_mark
from millpond.state.version import REFERENCED

FORMAT = "millpond store 4\n"
_A_FORMAT = re.compile(r"millpond store \d+\n")

_DIRECTORIES = (*REFERENCED, "aggregates", "stems", "inbox", "checkpoints")


def new_path(directory: str | Path, kind: str, mark: str = "") -> Path:
    """Make a path that no file ever had, for a writer in this or another process.

    Args:
        directory: The store's directory.
        kind: 'segments', 'matches', 'rejects', 'relations', 'runs', 'pairs', 'summaries',
            'aggregates' or 'stems'.
        mark: What the name begins with, of `new_mark`, so that all files of one batch can be found.
    """
    assert kind in _DIRECTORIES, kind
    return Path(directory) / kind / f"{mark}{uuid.uuid4().hex[len(mark) :]}.arrow"


def new_mark() -> str:
    """Make a mark that the files of one batch have in common, and no others."""
    return uuid.uuid4().hex[:16]


def remove_marked(directory: str | Path, marks: Iterable[str]) -> None:
    """Remove the files of batches that failed, finished or not."""
    starts = tuple(f"{dot}{mark}" for mark in marks for dot in ("", "."))
    for kind in ("segments", "matches", "rejects"):
        with os.scandir(Path(directory) / kind) as entries:
            left = [entry.path for entry in entries if entry.name.startswith(starts)]
        for path in left:
            Path(path).unlink(missing_ok=True)


class Store:
    """An open store. One process at a time has it open; the lock ends with the process."""

    def __init__(
        self,
        directory: Path,
        locks: ExitStack,
        clock: Callable[[], int] | None,
        shared: SharedStore | None = None,
    ) -> None:
        """Take over a directory that `Store.open` has locked and checked; call that instead."""
        self.directory = directory
        self._locks = locks
        self._is_open = True
        self._clock = clock or now
        self.shared = shared
        self._database = Database(directory / "pond.db", shared)
        self.log = EpochLog(self._database, directory, clock)
        self.inbox = Inbox(self._database, directory / "inbox", clock)
        self.staged = StagedParts(directory / "inbox")
        # Another driver may have told more than this one's directory knows.
        owner = None if shared is not None else self._database.incarnation
        self.read_times = ReadTimes(directory, owner)
        #: An error for each file that opening found missing or torn; each names its file.
        self.problems: list[MillpondError] = [
            *self._database.problems,
            *self._recover(),
            *self.inbox.recovered.problems,
        ]
        renew_derived(directory, self.log)
        clean_set_aside(directory, self._clock())

    @staticmethod
    def open(
        path: str | Path,
        clock: Callable[[], int] | None = None,
        shared: SharedStore | str | None = None,
    ) -> Store:
        """Open the store in a directory, or make a store there.

        Args:
            path: The directory; created if it is not there.
            clock: Microseconds since 1970, for things that are kept for a certain time.
            shared: A shared store, or its place, that this process leads from now on; the
                directory is its cache, and knows the place from then on.

        Raises:
            MillpondError: STORE-601, another process has the store open; STORE-603, the directory
                or the shared place cannot be written; STORE-604, the directory is no store, or of
                another version, or of another shared store.
        """
        directory = Path(path).absolute()
        check_ordinary(directory, "the store")
        with arrow_file.translate_write_errors(directory):
            _check_directory(directory)
            locks = ExitStack()
            try:
                _take_lock(directory, locks)
                tighten(directory)
                of_shared = _open_shared(directory, shared, locks)
                _migrate(directory)
                _prepare(directory)
                store = Store(directory, locks, clock, of_shared)
                if of_shared is not None and not isinstance(shared, SharedStore):
                    of_shared.announce("")  # no server, but who waits has to know that it leads
                return store
            except BaseException:
                locks.close()
                raise

    def relative_path(self, path: str | Path) -> str:
        """Return a file's path relative to the store, as references have it."""
        return Path(path).relative_to(self.directory).as_posix()

    @property
    def trouble(self) -> MillpondError | None:
        """STORE-603 while nothing can be written to the store's directories; None otherwise."""
        try:
            self._database.check_usable()
        except MillpondError as error:
            return error
        for directory in (self.directory, self.directory / "inbox", self.directory / "journal"):
            if not directory.is_dir():
                return MillpondError(
                    "STORE-603",
                    f'"{directory}" is not there any more',
                    detail="Somebody has removed or moved it while the store was open.",
                    hint="Stop this process, and put the store back, or begin a new one.",
                )
            if not os.access(directory, os.W_OK | os.X_OK):
                return MillpondError(
                    "STORE-603",
                    f'"{directory}" cannot be written',
                    detail="The file system is read-only, or the permissions have changed.",
                    hint="Make it writable again; nothing acknowledged is lost.",
                )
        return None

    @property
    def failure(self) -> MillpondError | None:
        """STORE-606 or STORE-603 once this process leads a shared store no more; otherwise None."""
        return None if self.shared is None else self.shared.failure

    def list_set_aside(self) -> list[SetAside]:
        """List the folders of files that this opening and earlier ones set aside."""
        return list_set_aside(self.directory)

    def close(self) -> None:
        """Close the store and release its lock; closing again does nothing."""
        if self._is_open:
            self._database.close()
            self.read_times.close()
            self._locks.close()
            self._is_open = False

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recover(self) -> list[MillpondError]:
        """Set aside unreferenced files; return an error per referenced file that is not whole."""
        referenced = self.log.version.paths()
        found = dict(self._files(*REFERENCED))
        orphans = [*(found.keys() - referenced.keys()), *self.inbox.recovered.orphans]
        orphans += remove_orphans(self.directory, self.log.version)
        if self.shared is not None:  # the directory is a cache, and may lack any file
            for path in orphans:
                (self.directory / path).unlink(missing_ok=True)
            nobodys = find_orphans(
                self.shared.files_before,
                referenced,
                self.inbox.list_shared_names(),
                self.inbox.last_number(),
            )
            self.log.remove_later(nobodys)
            return []
        unknown = set_aside(self.directory, orphans, self._clock())
        for path, _ in self._files("stems", SCRATCH):
            (self.directory / path).unlink(missing_ok=True)
        problems = [
            MillpondError(
                "STORE-602",
                f'the file "{path}" does not belong to the store',
                detail="Opening the store moved it to set_aside/; it stays there.",
            )
            for path in unknown
        ]
        for path, length in sorted(referenced.items()):
            if path not in found:
                problems.append(arrow_file.corrupt_file_error(path, "There is no such file."))
            elif length and found[path] != length:
                problems.append(
                    arrow_file.corrupt_file_error(path, f"It has {found[path]} of {length} bytes.")
                )
        return problems

    def _files(self, *kinds: str) -> Iterator[tuple[str, int]]:
        """Yield every file of those directories, at any depth, as (relative path, length)."""
        for kind in kinds:
            for parent, _, names in os.walk(self.directory / kind):
                for name in names:
                    file = Path(parent, name)
                    try:
                        yield self.relative_path(file), file.stat().st_size
                    except FileNotFoundError:
                        continue  # removed since the directory was listed


def _open_shared(
    directory: Path, given: SharedStore | str | None, locks: ExitStack
) -> SharedStore | None:
    """Find the shared store that a directory is, or is to be, the cache of; share its files."""
    marked = read_mark(directory)
    if given is None and marked is None:
        return None
    if isinstance(given, SharedStore):
        shared = given
    else:
        shared = SharedStore.open(given or (marked or {})["url"], directory, FORMAT)
    share = PlaceShare(
        directory, shared.place, lambda: shared.term, lambda: shared.failure is not None
    )
    share_directory(directory, share)
    locks.callback(unshare_directory, directory)
    locks.callback(shared.close)
    return shared


def _check_is_directory(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise MillpondError(
            "STORE-604",
            f'"{directory}" is not a directory',
            hint="Name a directory; it is created if it is not there.",
        )


def _check_directory(directory: Path) -> None:
    _check_is_directory(directory)
    make_directory(directory)
    file = directory / "FORMAT"
    if file.exists():
        found = file.read_text(errors="replace")
        if found != FORMAT and found not in MIGRATIONS:
            raise MillpondError(
                "STORE-604",
                f'the store "{directory}" is of another version of Millpond',
                detail=f"Its FORMAT says {found.strip()!r}; this Millpond reads "
                f"{FORMAT.strip()!r}.",
                hint="Open it with the Millpond that wrote it, or begin a new store.",
            )
    elif read_mark(directory) is None and any(
        entry.name not in ("LOCK", ".FORMAT.tmp", "spark.log") for entry in directory.iterdir()
    ):
        raise MillpondError(
            "STORE-604",
            f'the directory "{directory}" is not a store',
            detail="It is not empty and has no FORMAT file.",
            hint="Name an empty or new directory."
            if not (directory / "journal").exists()
            else "`millpond repair` makes a new store of one that lost its FORMAT file.",
        )


def refuse_other_format(directory: Path) -> None:
    """Refuse a whole store of another format, which is not damaged, and one driver's cache.

    Raises:
        MillpondError: STORE-604.
    """
    if (marked := read_mark(directory)) is not None:
        raise MillpondError(
            "STORE-604",
            f'the directory "{directory}" is a cache of the shared store "{marked["url"]}"',
            detail="What the shared store has is there, in its log and its files.",
            hint="Look after the storage: its versions, its copies. A cache may be removed.",
        )
    file = directory / "FORMAT"
    found = file.read_text(errors="replace") if file.is_file() else FORMAT
    if found == FORMAT or not _A_FORMAT.fullmatch(found):
        return
    older = found in MIGRATIONS
    raise MillpondError(
        "STORE-604",
        f'the store "{directory}" has {"an older" if older else "another"} format',
        detail=f"Its FORMAT says {found.strip()!r}; this Millpond reads {FORMAT.strip()!r}. "
        "Nothing was looked at, and nothing is known to be damaged.",
        hint="Copy it, and open it once: that brings it to this format. Then check it."
        if older
        else "Use the Millpond that wrote it.",
    )


@contextmanager
def lock_store(directory: Path) -> Iterator[None]:
    """Lock a store against other processes without writing anything in it.

    Raises:
        MillpondError: STORE-601, another process has the store open; STORE-604, the path is not a
            directory.
    """
    if not directory.is_dir():
        raise MillpondError(
            "STORE-604", f'"{directory}" is not a directory', hint="Name the store's directory."
        )
    with ExitStack() as locks:
        lock = None
        if (directory / "LOCK").exists():
            lock = os.open(directory / "LOCK", os.O_RDONLY | os.O_CLOEXEC)
            locks.callback(os.close, lock)
        _lock(lock, directory, locks)
        yield


@contextmanager
def hold_directory(directory: Path) -> Iterator[None]:
    """Lock a directory that will be opened later, or is the cache of one who waits to lead.

    Raises:
        MillpondError: STORE-601, another process has it; STORE-603, it cannot be written;
            STORE-604, it is a file.
    """
    with arrow_file.translate_write_errors(directory), ExitStack() as locks:
        _check_is_directory(directory)
        make_directory(directory)
        _take_lock(directory, locks)
        yield


def _take_lock(directory: Path, locks: ExitStack) -> None:
    """Lock the store until `locks` is closed; the kernel unlocks it however the process ends."""
    lock = open_owner_only(directory / "LOCK", os.O_RDWR | os.O_CREAT)
    locks.callback(os.close, lock)
    _lock(lock, directory, locks)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def _lock(lock: int | None, directory: Path, locks: ExitStack) -> None:
    """Lock LOCK, if it is there, and the directory, which nobody can take away from under us.

    A LOCK that somebody removes, because it looks forgotten, is another file to the next process.
    """
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    locks.callback(os.close, folder)
    try:
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Network file systems may lock only what is open for writing; then LOCK has to do.
            if isinstance(error, BlockingIOError):
                raise
    except BlockingIOError as error:
        pid = os.read(lock, 32).decode(errors="replace").strip() if lock is not None else ""
        if pid == str(os.getpid()):
            raise MillpondError(
                "STORE-601",
                f'the store "{directory}" is open in this process already',
                detail="A store is open once at a time.",
                hint="Use the pond that has it, or close that one first.",
            ) from error
        holder = f"process {pid}" if pid else "another process"
        raise MillpondError(
            "STORE-601",
            f'the store "{directory}" is in use by {holder}',
            detail="One process at a time has a store open.",
            hint=f"Talk to that process (for a server: --url), or stop it ({holder}) first.",
        ) from error


def _migrate(directory: Path) -> None:
    """Migrate a store of an earlier format to the current one, one format after the other."""
    file = directory / "FORMAT"
    while file.exists() and (migrate := MIGRATIONS.get(file.read_text())) is not None:
        migrate(directory)


def _prepare(directory: Path) -> None:
    """Make missing files and directories; FORMAT first, since it marks the directory as a store."""
    if not (directory / "FORMAT").exists():
        write_format(directory, FORMAT)
        write_scalar_version(directory)
    for name in _DIRECTORIES:
        make_directory(directory / name)
