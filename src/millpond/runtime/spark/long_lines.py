"""Lines of text files that are too long: they are found before Spark reads them.

Spark has each line in the memory of its JVM, which ends when that is used up, and a packed file of
a megabyte may have a line of a gigabyte. Only files that are large enough to have such a line are
looked through, at the speed of unpacking them. Spark can only leave out long lines without a word.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from millpond.errors import MillpondError
from millpond.runtime.spark.headers import local_path

#: The most bytes of a line, and of a file that is read as a whole.
MOST_LINE, MOST_WHOLE = 32 << 20, 256 << 20
_PIECE = 1 << 20
#: The most that each byte of a packed file may stand for; zstd has no such limit.
_RATIOS = {"": 1, ".gz": 1_032, ".deflate": 1_032, ".bz2": 50_000, ".zst": None, ".zstd": None}


def is_whole(options: Mapping[str, str]) -> bool:
    """Whether a file is read as one text, and not line by line."""
    return any(options.get(name, "").lower() == "true" for name in ("multiline", "wholetext"))


def check_lines(path: str, options: Mapping[str, str]) -> None:
    """Refuse a local file with a line that Spark should not read.

    What Python does not unpack (snappy, lz4) and what cannot be read is left to Spark.

    Raises:
        MillpondError: DATA-502, a line, or a file that is one text, is too long.
    """
    file = local_path(path)
    if file is None or file.suffix in (".snappy", ".lz4"):
        return
    whole = is_whole(options)
    most = MOST_WHOLE if whole else MOST_LINE
    ratio = _RATIOS.get(file.suffix, 1)
    try:
        if ratio is not None and file.stat().st_size * ratio <= most:
            return
        length = _longest(file, b"" if whole else _separator(options), most)
    except (OSError, EOFError, zlib.error, ValueError, pa.ArrowException):
        return
    if length > most:
        raise MillpondError(
            "DATA-502",
            f'the file "{file}" cannot be read',
            detail=f"It is one text of more than {most:,} bytes."
            if whole
            else f"It has a line of more than {most:,} bytes.",
            hint="Take it away, or write it in shorter lines; a stream goes on where it was.",
        )


def _separator(options: Mapping[str, str]) -> bytes | None:
    """The bytes that end a line; None: any end of line."""
    given = options.get("linesep")
    return given.encode() if given else None


def _longest(file: Path, separator: bytes | None, most: int) -> int:
    """The length of the longest line, or of the first one that is too long."""
    longest = run = 0
    tail = b""
    for piece in read_pieces(file):
        text = tail + piece
        first, last = _ends(text, separator)
        if first < 0:
            run += len(piece)
        else:
            longest = max(longest, run + first)
            run = len(text) - last
        if run > most:
            break
        tail = text[-(len(separator) - 1) :] if separator and len(separator) > 1 else b""
        run += 0 if first < 0 else -len(tail)
    return max(longest, run)


def _ends(text: bytes, separator: bytes | None) -> tuple[int, int]:
    """Where a text's first end of line begins, and its last one; -1 for none."""
    if separator == b"":
        return -1, -1
    if separator is not None:
        return text.find(separator), text.rfind(separator)
    found = [at for at in (text.find(b"\n"), text.find(b"\r")) if at >= 0]
    return min(found, default=-1), max(text.rfind(b"\n"), text.rfind(b"\r"))


def read_pieces(file: Path) -> Iterator[bytes]:
    """Read a local file in pieces, unpacked as its ending says."""
    if file.suffix == ".deflate":
        unpacker = zlib.decompressobj()
        with file.open("rb") as packed:
            while piece := packed.read(_PIECE):
                while piece:
                    yield unpacker.decompress(piece, _PIECE)
                    piece = unpacker.unconsumed_tail
        return
    with _open(file) as source:
        while piece := source.read(_PIECE):
            yield piece


def _open(file: Path) -> AbstractContextManager[IO[bytes]]:
    if file.suffix == ".gz":
        return cast("AbstractContextManager[IO[bytes]]", gzip.open(file, "rb"))
    if file.suffix == ".bz2":
        return cast("AbstractContextManager[IO[bytes]]", bz2.open(file, "rb"))
    if file.suffix in (".zst", ".zstd"):
        return cast(
            "AbstractContextManager[IO[bytes]]",
            pa.CompressedInputStream(pa.OSFile(str(file)), "zstd"),
        )
    return file.open("rb")
