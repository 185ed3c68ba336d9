"""Checks options of sources that are numbers or words, before a source is asked for its rows.

Spark checks some of them when its streaming query starts, some when a task reads, and some never:
`maxFilesPerTrigger '0'` was a stream that never had a row. The options are those of Structured
Streaming's sources and of Millpond's own; what is not listed is left to the source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from millpond.cql.tree.statements import SourceClause
from millpond.errors import MillpondError

_INT, _LONG = 2**31 - 1, 2**63 - 1

#: Options that are whole numbers, by name in lower case: the least and the greatest.
WHOLE: Mapping[str, tuple[int, int]] = {
    "maxfilespertrigger": (1, _INT),
    "maxcolumns": (1, _INT),
    "maxcharspercolumn": (-1, _INT),
    "rowspersecond": (1, _LONG),
    "rowsperbatch": (1, _LONG),
    "numpartitions": (1, _INT),
    "advancemillisperbatch": (0, _LONG),
    "startoffset": (0, _LONG),
    "maxoffsetspertrigger": (1, _LONG),
    "minoffsetspertrigger": (1, _LONG),
    "minpartitions": (1, _INT),
    "maxrecordsperpartition": (1, _LONG),
    "fetchoffset.numretries": (0, _INT),
    "fetchoffset.retryintervalms": (0, _LONG),
    "kafkaconsumer.polltimeoutms": (1, _LONG),
    "fetchsize": (0, _INT),
    "batchsize": (1, _INT),
    "querytimeout": (0, _INT),
    "port": (1, 65_535),
    "max_files": (1, 1_000_000),
}
#: Options that are numbers of bytes, which Spark reads with a unit too: 1g, 64kb.
BYTES = frozenset({"maxbytespertrigger"})
#: Options that are a share, more than 0 and at most 1.
SHARES = frozenset({"samplingratio"})

#: Options that are a length of time, with a unit: 7d, 10s.
TIMES = frozenset({"maxfileage", "rampuptime"})
#: Options that are one of some words, in any case.
CHOICES: Mapping[str, tuple[str, ...]] = {"cleansource": ("archive", "delete", "off")}

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_SIZE = re.compile(r"([0-9]{1,18})(?:b|k|kb|m|mb|g|gb|t|tb|p|pb)?", re.IGNORECASE)
_SHARE = re.compile(r"[0-9]*\.?[0-9]+")
_TIME = re.compile(r"[0-9]{1,9}(?:us|ms|s|m|min|h|d)", re.IGNORECASE)


def check_source_options(clause: SourceClause, text: str) -> None:
    """Refuse values of options that no source can take.

    Raises:
        MillpondError: CQL-214, an option is no number, or none it may be; or it is a word that is
            none of its words, or needs another option.
    """
    for option, value in clause.options.items():
        if wanted := find_fault(option.lower(), value):
            raise MillpondError(
                "CQL-214",
                f'the option "{option}" of the {clause.format} source cannot be "{value[:40]}"',
                detail=f"It is {wanted}.",
                hint="Write a value it may be, or leave the option out.",
                text=text,
                span=clause.span,
            )
    archives = clause.options.get("cleansource", "").lower() == "archive"
    if archives and not clause.options.get("sourcearchivedir"):
        raise MillpondError(
            "CQL-214",
            f"it is not said where files of the {clause.format} source are archived",
            hint="Name a directory beside the source's: sourceArchiveDir '…'.",
            text=text,
            span=clause.span,
        )


def find_fault(option: str, value: str) -> str | None:
    """Say what an option has to be; None if the value is that, or the option may be any text.

    >>> find_fault("maxfilespertrigger", "0")
    'a whole number from 1 to 2147483647'
    >>> find_fault("maxbytespertrigger", "1g"), find_fault("path", "0")
    (None, None)
    """
    if option in WHOLE:
        least, most = WHOLE[option]
        if not _WHOLE.fullmatch(value) or not least <= int(value) <= most:
            return f"a whole number from {least} to {most}"
    elif option in BYTES:
        size = _SIZE.fullmatch(value)
        if size is None or not int(size[1]):
            return "a number of bytes above 0, like 1048576 or 64m"
    elif option in SHARES and not (_SHARE.fullmatch(value) and 0 < float(value) <= 1):
        return "a number above 0, and at most 1"
    elif option in CHOICES and value.lower() not in CHOICES[option]:
        return f"one of {', '.join(CHOICES[option])}"
    elif option in TIMES and not _TIME.fullmatch(value):
        return "a length of time with its unit, like 30s, 12h or 7d"
    return None
