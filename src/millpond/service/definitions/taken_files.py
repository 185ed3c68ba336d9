"""Refuses streams over the same files where one of them has the files taken away.

The other one would miss rows, and nothing would say so. Which files two sources have in common is
known only once the files are there, so what they may have in common counts, by what is written: a
name may fit two patterns unless what stands before their first wildcards, or behind their last
ones, tells them apart.
"""

from __future__ import annotations

import os
import re

from millpond.catalog.objects import SourceDef, StreamDef
from millpond.cql.tree.statements import CreateStream
from millpond.errors import MillpondError
from millpond.state.version import Version

_WILDCARD = re.compile(r"[*?\[{].*[*?\]}]|[*?]", re.DOTALL)


def refuse_taken_files(stream: StreamDef, statement: CreateStream, version: Version) -> None:
    """Refuse a stream whose files another one takes away, or that takes away those of another.

    Raises:
        MillpondError: CQL-214.
    """
    for source in _sources_of(stream):
        for other in version.streams.values():
            for found in _sources_of(other):
                if (_takes_away(source) or _takes_away(found)) and have_common_files(source, found):
                    raise MillpondError(
                        "CQL-214",
                        f'stream "{stream.name}" and stream "{other.name}" may read the same '
                        "files, which are taken away when one of them has read them",
                        hint="Leave cleanSource out of both, tell their files apart by path or "
                        f'pathGlobFilter, or derive a stream from "{other.name}".',
                        text=statement.text,
                        span=None if statement.source is None else statement.source.span,
                    )


def have_common_files(one: SourceDef, two: SourceDef) -> bool:
    """Whether two sources of files may read one file both.

    >>> csv = SourceDef("csv", {"path": "/in/", "pathglobfilter": "*.csv"})
    >>> have_common_files(csv, SourceDef("json", {"path": "file:///in/a*"}))
    True
    >>> have_common_files(csv, SourceDef("json", {"path": "/in", "pathglobfilter": "*.json"}))
    False
    """
    if "path" not in one.options or "path" not in two.options:
        return False
    shorter, longer = sorted((one, two), key=lambda source: len(_parts_of(source)))
    parts, rest = _parts_of(shorter), _parts_of(longer)
    if not all(map(_may_meet, parts, rest)):
        return False
    names = shorter.options.get("pathglobfilter", "*")
    if len(rest) == len(parts):
        return _may_meet(names, longer.options.get("pathglobfilter", "*"))
    below = rest[len(parts) :]
    if shorter.options.get("recursivefilelookup", "").lower() == "true":
        return True
    if any("=" in name for name in below):
        return True  # directories that name a column and its value are read through
    return len(below) == 1 and not os.path.isdir("/".join(rest)) and _may_meet(names, *below)


def _sources_of(stream: StreamDef) -> list[SourceDef]:
    """What a stream reads, and what it has still to read before."""
    history = None if stream.history is None or stream.history.is_read else stream.history.source
    return [source for source in (stream.source, history) if source is not None]


def _takes_away(source: SourceDef) -> bool:
    return source.options.get("cleansource", "off").lower() != "off"


def _parts_of(source: SourceDef) -> list[str]:
    """The parts of a source's path, which is absolute."""
    path = re.sub("^file:(//)?", "", source.options["path"])
    return (path.rstrip("/") if "://" in path else os.path.abspath(path)).split("/")


def _may_meet(one: str, two: str) -> bool:
    """Whether a name may fit two patterns.

    >>> _may_meet("a*.csv", "*"), _may_meet("a*.csv", "a1.csv"), _may_meet("a*", "b*")
    (True, True, False)
    >>> _may_meet("in", "input"), _may_meet("*.csv", "*.json"), _may_meet("[ab].csv", "b.csv")
    (False, False, True)
    """
    if not (_WILDCARD.search(one) or _WILDCARD.search(two)):
        return one == two
    first, second = _WILDCARD.split(one), _WILDCARD.split(two)
    head, end, other_head, other_end = first[0], first[-1], second[0], second[-1]
    heads_agree = head.startswith(other_head) or other_head.startswith(head)
    ends_agree = end.endswith(other_end) or other_end.endswith(end)
    return heads_agree and ends_agree
