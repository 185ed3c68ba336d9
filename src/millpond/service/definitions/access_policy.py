"""What a pond reads on somebody's word: everything of whoever runs it, little of its clients.

A statement that comes over HTTP is a client's. What it names in USING is read with the rights of
the server, so it may name only what the operator allowed: files of certain formats below certain
directories, and the options that say how such files are written. Statements of the process that
opened the pond (`millpond run`, Python) are not limited.

A client's definition carries its directory with it (`SourceDef.within`): whatever the source reads
later, also after a restart, is held against it again, with symbolic links followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from millpond.catalog.objects import SourceDef
from millpond.errors import MillpondError
from millpond.service.definitions.allowed_hosts import allows_url, check_entry, list_places
from millpond.service.definitions.change_fed_relations import PUSHED

#: The options a client may give to a format. None of them names a file, a host or a class.
_ABOUT_FILES = frozenset(
    (
        "path",
        "recursivefilelookup",
        "pathglobfilter",
        "maxfilespertrigger",
        "maxbytespertrigger",
        "latestfirst",
    )
)
_ABOUT_TEXT = frozenset(
    (
        "header",
        "sep",
        "delimiter",
        "encoding",
        "charset",
        "quote",
        "escape",
        "comment",
        "multiline",
        "linesep",
        "nullvalue",
        "emptyvalue",
        "ignoreleadingwhitespace",
        "ignoretrailingwhitespace",
        "op_column",
    )
)
_OPTIONS: dict[str, frozenset[str]] = {
    "csv": _ABOUT_FILES | _ABOUT_TEXT,
    "json": _ABOUT_FILES | _ABOUT_TEXT,
    "text": _ABOUT_FILES | _ABOUT_TEXT,
    "parquet": _ABOUT_FILES | {"mergeschema", "op_column"},
    "orc": _ABOUT_FILES | {"mergeschema", "op_column"},
    "rate": frozenset(("rowspersecond", "numpartitions", "rampuptime")),
    "postgres": frozenset(("host", "port", "database", "user", "password", "sslmode", "table")),
    "delta": frozenset(("path", "start", "max_files")),
    # Nothing is read: the records of a relation's changes are pushed.
    PUSHED: frozenset(("op_column",)),
}
#: Formats that can be allowed to clients; all others are for the operator alone.
FORMATS = tuple(name for name in _OPTIONS if name != PUSHED)
_FILE_FORMATS = tuple(name for name in FORMATS if name not in ("rate", "postgres"))
#: Formats whose paths may be named where there are roots and no formats were. The log of a table
#: says how much of it is read at once, so Delta tables are allowed by name only.
_DEFAULT_FORMATS = tuple(name for name in _FILE_FORMATS if name != "delta")


@dataclass(frozen=True)
class AccessPolicy:
    """What clients may have the pond read.

    Attributes:
        roots: Directories below which the files of sources may lie; none by default.
        formats: Formats sources may have; those of files where there are roots.
        hosts: Where sinks may deliver to (`allowed_hosts.py`); nowhere by default.
        databases: The hosts of databases whose tables relations may follow; none by default.
        backups: Directories below which backups may be made; none by default.
    """

    roots: tuple[Path, ...] = ()
    formats: frozenset[str] = frozenset()
    hosts: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()
    backups: tuple[Path, ...] = ()

    @staticmethod
    def of(
        roots: Iterable[Path | str] = (),
        formats: Iterable[str] = (),
        hosts: Iterable[str] = (),
        databases: Iterable[str] = (),
        backups: Iterable[Path | str] = (),
    ) -> AccessPolicy:
        """The policy of the operator's settings.

        Raises:
            MillpondError: CQL-214, a root is no directory, a format cannot be allowed, or a host
                is none.
        """
        hint = "Name a directory whose files clients may make sources of."
        found = _find_directories("source", roots, hint)
        named = frozenset(name.lower() for name in formats)
        if unknown := sorted(named - set(FORMATS)):
            raise MillpondError(
                "CQL-214",
                f'the source format "{unknown[0]}" cannot be allowed to clients',
                detail=f"Formats that can be: {', '.join(FORMATS)}.",
                hint="Create such sources while the server does not run: in Python, or by millpond "
                "shell --store.",
            )
        return AccessPolicy(
            tuple(found),
            named or frozenset(_DEFAULT_FORMATS if found else ()),
            tuple(map(check_entry, hosts)),
            tuple(map(check_entry, databases)),
            tuple(_find_directories("backup", backups, "Name a directory for backups.")),
        )

    def confine(self, source: SourceDef | None, text: str) -> SourceDef | None:
        """Give the source back with the directory it is confined to.

        Args:
            source: What USING names; None without USING.
            text: The statement, for the error.

        Raises:
            MillpondError: POND-414, the policy does not allow it. The error does not say whether
                there is such a file.
        """
        if source is None or source.format == PUSHED:
            return source
        if source.format not in self.formats:
            raise self._refusal(f"USING {source.format}", text)
        if unknown := sorted(source.options.keys() - _OPTIONS[source.format]):
            raise self._refusal(f'the option "{unknown[0]}"', text)
        if source.format == "postgres":
            return self._confine_database(source, text)
        if source.format not in _FILE_FORMATS:
            return source
        path = source.options.get("path", "")
        root = self._root_of(path)
        if root is None:
            raise self._refusal(f'the path "{path}"', text)
        return replace(source, within=str(root))

    def _confine_database(self, source: SourceDef, text: str) -> SourceDef:
        """Give the source of a database back with the hosts it is confined to."""
        place = f"{source.options.get('host', '')}:{source.options.get('port', '5432')}"
        try:
            is_allowed = allows_url(f"postgres://{place}", self.databases)
        except ValueError:  # no port
            is_allowed = False
        if not is_allowed:
            raise self._refusal(f'the database at "{place}"', text)
        return replace(source, within=" ".join(self.databases))

    def confine_sink(self, options: Mapping[str, Any], text: str) -> tuple[str, ...]:
        """The hosts that a client's sink is confined to.

        Args:
            options: The sink's options.
            text: The statement, for the error.

        Raises:
            MillpondError: POND-414, the policy does not allow its host, or its key.
        """
        if not allows_url(options["url"], self.hosts):
            places = list_places(self.hosts, urlsplit(options["url"]).scheme)
            raise _sink_refusal(
                f'deliver to "{options["url"]}"',
                f"Allowed are {places}." if places else "No host is allowed.",
                "The operator allows hosts with --sink-host HOST, or HOST:PORT for another port.",
                text,
            )
        if not str(options.get("key_env", "")).startswith(KEY_PREFIX):
            raise _sink_refusal(
                "sign with this key",
                f"Clients name variables of the environment that begin with {KEY_PREFIX}.",
                f"The operator sets {KEY_PREFIX}..., and the sink says key_env.",
                text,
            )
        return self.hosts

    def find_backups(self, to: str) -> Path:
        """The directory that a client names for backups, with links followed.

        Args:
            to: Its path, or its place below the first directory that is allowed.

        Raises:
            MillpondError: POND-414, the policy does not allow it.
        """
        if self.backups and "\0" not in to and not _goes_up(to):
            try:
                real = (self.backups[0] / to).resolve()
            except (OSError, RuntimeError):
                real = None
            if real is not None and any(
                real.is_relative_to(root) and real != root for root in self.backups
            ):
                return real
        roots = ", ".join(map(str, self.backups))
        raise MillpondError(
            "POND-414",
            f'clients may not have this server make backups in "{to}"',
            detail=f"Allowed are directories below {roots}." if roots else "No directory is.",
            hint="The operator allows directories with --backup-root.",
        )

    def _root_of(self, path: str) -> Path | None:
        """Find the root that a path or pattern lies below, with links followed, or None."""
        local = Path(path.removeprefix("file://").removeprefix("file:"))
        if "://" in str(path).removeprefix("file://") or _goes_up(path) or "\0" in path:
            return None
        fixed = _before_pattern(local.parts)
        try:
            real = Path(*fixed).resolve()
            root = next((root for root in self.roots if real.is_relative_to(root)), None)
            if root is not None and any(
                not found.resolve().is_relative_to(root)
                for found in _directories(Path(*fixed), local.parts[len(fixed) :])
            ):
                return None
        except (OSError, RuntimeError):
            return None
        return root

    def _refusal(self, what: str, text: str) -> MillpondError:
        formats = ", ".join(sorted(self.formats.intersection(_FILE_FORMATS)))
        roots = ", ".join(map(str, self.roots))
        places = list_places(self.databases, "postgres")
        allowed = [f"{formats} files below {roots}"] if roots and formats else []
        allowed += [f"databases at {places}"] if places else []
        allowed += ["rate"] if "rate" in self.formats else []
        return MillpondError(
            "POND-414",
            f"clients may not have this server read {what}",
            detail=f"Allowed are {', and '.join(allowed)}."
            if allowed
            else "No source is allowed to clients of this server.",
            hint="The operator allows directories with --source-root, and databases with "
            "--source-format postgres --source-host; rows can always be pushed.",
            text=text,
        )


def _find_directories(kind: str, named: Iterable[Path | str], hint: str) -> list[Path]:
    """The directories that the operator named. Raises CQL-214 if one is none."""
    found = []
    for name in named:
        path = Path(name)
        if not path.is_dir():
            raise MillpondError(
                "CQL-214", f'the {kind} root "{name}" is not a directory', hint=hint
            )
        found.append(path.resolve())
    return found


#: What the names of variables begin with that clients' sinks may have their keys in.
KEY_PREFIX = "MILLPOND_SINK_"


def _sink_refusal(what: str, detail: str, hint: str, text: str) -> MillpondError:
    primary = f"clients may not have this server {what}"
    return MillpondError("POND-414", primary, detail=detail, hint=hint, text=text)


#: What clients may have read unless the operator says otherwise.
CLOSED = AccessPolicy()


def _goes_up(path: str) -> bool:
    """Whether a path or pattern has a step upwards, in the alternatives of braces too.

    The reader of a pattern takes `{a,../b}` for two paths, and a character behind a backslash for
    itself.
    """
    return ".." in re.split(r"[/{},]", path.replace("\\", ""))


def _directories(start: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    """The directories that patterns, one for each level below `start`, can lead into.

    A refusal may not depend on what lies in a directory elsewhere, so a link to one is looked at
    here, and not only when there are files behind it. A level with braces or backslashes is taken
    for every name.
    """
    if patterns:
        every = re.search(r"[{}\\]|\*\*", patterns[0])
        pattern = "*" if every else patterns[0].replace("[^", "[!")
        for found in start.glob(pattern) if start.is_dir() else ():
            if found.is_dir():
                yield found
                yield from _directories(found, patterns[1:])


def _before_pattern(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The leading parts of a path that are no pattern."""
    for place, part in enumerate(parts):
        if any(c in part for c in "*?[]{}\\"):
            return parts[:place]
    return parts
