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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.catalog.objects import SourceDef
from millpond.errors import MillpondError
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
    # Nothing is read: the records of a relation's changes are pushed.
    PUSHED: frozenset(("op_column",)),
}
#: Formats that can be allowed to clients; all others are for the operator alone.
FORMATS = tuple(name for name in _OPTIONS if name != PUSHED)
_FILE_FORMATS = tuple(name for name in FORMATS if name != "rate")


@dataclass(frozen=True)
class AccessPolicy:
    """What clients may have the pond read.

    Attributes:
        roots: Directories below which the files of sources may lie; none by default.
        formats: Formats sources may have; those of files where there are roots.
    """

    roots: tuple[Path, ...] = ()
    formats: frozenset[str] = frozenset()

    @staticmethod
    def of(roots: Iterable[Path | str] = (), formats: Iterable[str] = ()) -> AccessPolicy:
        """The policy of the operator's settings.

        Raises:
            MillpondError: CQL-214, a root is no directory, or a format cannot be allowed.
        """
        found = []
        for root in roots:
            path = Path(root)
            if not path.is_dir():
                raise MillpondError(
                    "CQL-214",
                    f'the source root "{root}" is not a directory',
                    hint="Name a directory whose files clients may make sources of.",
                )
            found.append(path.resolve())
        named = frozenset(name.lower() for name in formats)
        if unknown := sorted(named - set(FORMATS)):
            raise MillpondError(
                "CQL-214",
                f'the source format "{unknown[0]}" cannot be allowed to clients',
                detail=f"Formats that can be: {', '.join(FORMATS)}.",
                hint="Create such sources from the machine of the server: millpond run, or Python.",
            )
        return AccessPolicy(tuple(found), named or frozenset(_FILE_FORMATS if found else ()))

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
        if source.format not in _FILE_FORMATS:
            return source
        path = source.options.get("path", "")
        root = self._root_of(path)
        if root is None:
            raise self._refusal(f'the path "{path}"', text)
        return replace(source, within=str(root))

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
        formats = ", ".join(sorted(self.formats))
        roots = ", ".join(map(str, self.roots))
        allowed = f"Allowed are {formats} files below {roots}." if roots else ""
        return MillpondError(
            "POND-414",
            f"clients may not have this server read {what}",
            detail=allowed or "No source is allowed to clients of this server.",
            hint="The operator allows directories with --source-root; rows can always be pushed.",
            text=text,
        )


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
