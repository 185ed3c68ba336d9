"""Cursors: where in which changes of which store a reader is, as text: `3f2a9c.17.42`.

The first part is the store's incarnation, which a restore changes, and a repair that loses
something; after a restore the cursors of before are good up to the last change that both have. The
second is the number of the change log, which a query dropped and created again has another of; the
last the number of a change, from 1 on. Where the clock of a stream was set back, changes were taken
back and others have their numbers: `3f2a9c.17-1.42`. So a cursor that means nothing here is
noticed, and does not go on somewhere else in silence.

`oldest` stands for the place before the oldest change kept. A bare number is a place, too, for
people who type one: it says nothing of query and store, so programs keep cursors.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from millpond.errors import MillpondError

_NO_ANCESTORS: Mapping[str, int] = MappingProxyType({})

#: What is said instead of a cursor to begin with the oldest change that is kept.
OLDEST = "oldest"


def cursor_prefix(incarnation: str, log_id: int, resets: int = 0) -> str:
    """What the cursors of a change log have in common; `resets` as `StreamDef` has it."""
    return f"{incarnation}.{log_id}" + (f"-{resets}" if resets else "")


def parse_cursor(
    text: str | int, prefix: str, name: str, ancestors: Mapping[str, int] = _NO_ANCESTORS
) -> int:
    """The number of the change a cursor stands for.

    Args:
        text: The cursor, or a bare number.
        prefix: `cursor_prefix` of the changes that are read.
        name: What they are changes of.
        ancestors: The prefixes of the stores this one was restored from, each with the number of
            the last change that both have.

    Raises:
        MillpondError: POND-412, it is no cursor, or one of other changes.
    """
    head, _, last = str(text).rpartition(".")
    if not (last.isascii() and last.isdigit() and len(last) < 19) or (
        head and head.count(".") != 1
    ):
        raise MillpondError(
            "POND-412",
            f'"{text}" is not a cursor of "{name}"',
            detail="A cursor is what came with the changes read before.",
            hint=_go_on(name),
        )
    common = ancestors.get(head) if head.partition(".")[2] == prefix.partition(".")[2] else None
    if common is not None and head != prefix:
        if int(last) <= common:
            return int(last)
        raise MillpondError(
            "POND-412",
            f'the cursor "{text}" is of "{name}" before it was restored',
            detail=f"It has seen change {int(last):,}. This store was restored from a backup with "
            f"the changes up to {common:,}; what came behind them may come otherwise.",
            hint=f"Take back what came behind change {common:,}, and go on with FETCH {name} AFTER "
            f"'{prefix}.{common}'; or begin again with INVOKE.",
        )
    if head and head != prefix:
        its, ours = head.split("."), prefix.split(".")
        why = f'It is of another query, or of a "{name}" that was dropped.'
        if its[0] != ours[0]:
            why = "It is of another store, or of this one before it was repaired or restored."
        elif its[1].split("-")[0] == ours[1].split("-")[0]:
            why = "The clock of a stream below was set back since, and changes were taken back."
        raise MillpondError(
            "POND-412",
            f'the cursor "{text}" is not one of the changes of "{name}"',
            detail=why,
            hint=_go_on(name),
        )
    return int(last)


def trimmed_error(name: str, oldest: int, newest: int) -> MillpondError:
    """POND-412 for a reader without a cursor who would begin in the middle."""
    return MillpondError(
        "POND-412",
        f'the first {oldest:,} changes of "{name}" are not kept any more',
        detail=f"Changes {oldest + 1:,} to {newest:,} are kept; alone they do not add up.",
        hint=_go_on(name),
    )


def not_kept_error(name: str, after: int, oldest: int, newest: int) -> MillpondError:
    """POND-412 for a place at which there is nothing to read on."""
    if after > newest:
        return MillpondError(
            "POND-412",
            f'the cursor {after} of "{name}" is ahead of its changes',
            detail=f"The last change so far is number {newest}.",
            hint="A query registered anew counts its changes from 1: FETCH without AFTER.",
        )
    return MillpondError(
        "POND-412",
        f'the changes after cursor {after} of "{name}" are not kept any more',
        detail=f"The oldest cursor available is {oldest}; {newest} is the last change.",
        hint=_go_on(name),
    )


def _go_on(name: str) -> str:
    return (
        f"FETCH {name} AFTER '{OLDEST}' begins with the oldest change that is kept; INVOKE gives "
        "the answer all changes have led to."
    )
