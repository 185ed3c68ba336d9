"""Files of arrays under a name made from their content, mapped when they are read.

    magic ∣ length of the header ∣ header (JSON) ∣ padding ∣ arrays, each at a multiple of 64 bytes

Tasks of one worker map the same pages, and equal content is written once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from millpond.model.owner_only import open_owner_only

_ALIGN = 64

Arrays = Mapping[str, npt.NDArray[Any]]


def digest_arrays(header: Mapping[str, Any], arrays: Arrays) -> str:
    """Compute the name of some content: equal content has equal names."""
    hasher = xxhash.xxh3_128(json.dumps(header).encode())
    for name in sorted(arrays):
        hasher.update(np.ascontiguousarray(arrays[name]).data)
    return str(hasher.hexdigest())


def write_arrays(target: Path, magic: bytes, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a file unless it is there; nobody sees half of it.

    Args:
        magic: Eight bytes that say what kind of file it is.
    """
    if target.exists():
        return
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    places: dict[str, list[Any]] = {}
    offset = 0
    for key, array in arrays.items():
        places[key] = [str(array.dtype), list(array.shape), offset]
        offset += -(-array.nbytes // _ALIGN) * _ALIGN
    text = json.dumps({**header, "arrays": places}).encode()
    begin = -(-(len(magic) + 8 + len(text)) // _ALIGN) * _ALIGN
    with open(partial, "wb", opener=open_owner_only) as file:
        file.write(magic + len(text).to_bytes(8, "little") + text)
        for key, array in arrays.items():
            file.seek(begin + places[key][2])
            file.write(np.ascontiguousarray(array).data)
        file.truncate(begin + offset)
    os.replace(partial, target)


def map_arrays(
    path: Path, magic: bytes, kind: str
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Map a file; its arrays are read when they are used. Return its header, and the arrays.

    Args:
        kind: What the file should be, in words.

    Raises:
        ValueError: the file is not of this kind.
        OSError: it cannot be read.
    """
    # Copy-on-write, though nothing writes to it: for compiled loops a read-only array would be
    # another type.
    data = np.asarray(np.memmap(path, np.uint8, "c"))
    if bytes(data[:8]) != magic:
        raise ValueError(f"{path} is not {kind}")
    size = int.from_bytes(bytes(data[8:16]), "little")
    header = json.loads(bytes(data[16 : 16 + size]))
    begin = -(-(16 + size) // _ALIGN) * _ALIGN
    arrays = {}
    for key, (dtype, shape, offset) in header.pop("arrays").items():
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        piece = data[begin + offset : begin + offset + count]
        if len(piece) != count:
            raise ValueError(f"{path} is cut short")
        arrays[key] = piece.view(dtype).reshape(shape)
    return header, arrays
