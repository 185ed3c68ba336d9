"""The Query SteM at one moment, as tasks see it: immutable, and saved so that workers map it.

A snapshot is made of blocks of queries, of which only the changed ones are rebuilt, and of indexes
of led queries. It is saved one file a block or index under the name of its content, so that a
worker maps only changed ones again.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from millpond.engine.matching.grouped_filter import Block
from millpond.engine.matching.led_queries import LedQueries
from millpond.model.kept_property import kept_property
from millpond.model.owner_only import write_owner_only
from millpond.model.schema import Schema

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class StemSnapshot:
    """The standing queries of a stream at one moment.

    Attributes:
        schema: The stream's columns.
        blocks: The grouped filters.
        others: Slot to the DuckDB expressions that must hold too, in order. A slot that is in no
            block is decided by these alone; with none, it matches every element.
        loose: The slots that are in no block and can match.
        never: The slots that match nothing.
        upto: One more than the greatest slot ever added.
        led: The indexes of led queries.
        gone: For each index the places of queries that were removed since, ascending.
    """

    schema: Schema
    blocks: tuple[Block, ...] = ()
    others: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    loose: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    upto: int = 0
    led: tuple[LedQueries, ...] = ()
    gone: tuple[npt.NDArray[np.int64], ...] = ()

    @kept_property
    def slots(self) -> npt.NDArray[np.int64]:
        """Every slot, ascending, including those that match nothing."""
        parts = [block.slots[block.slots >= 0] for block in self.blocks]
        for led, gone in zip(self.led, self.gone, strict=True):
            parts.append(np.delete(led.columns.slots, gone))
        parts.append(np.array([*self.loose, *self.never], np.int64))
        return np.sort(np.concatenate(parts))

    def save(self, path: Path | str) -> list[Path]:
        """Write the snapshot to `path`, and its blocks and indexes beside it unless they are there.

        Returns:
            Every file the snapshot consists of. Snapshots that contain a block share its file; the
            caller deletes a file that no snapshot it still wants names.
        """
        path = Path(path)
        blocks = [block.save(path.parent) for block in self.blocks]
        led = [index.save(path.parent) for index in self.led]
        content = {
            "schema": self.schema,
            "blocks": blocks,
            "led": led,
            "gone": self.gone,
            "others": dict(self.others),
            "loose": self.loose,
            "never": self.never,
            "upto": self.upto,
        }
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        write_owner_only(partial, pickle.dumps(content, protocol=5))
        os.replace(partial, path)
        return [path, *(path.parent / name for name in (*blocks, *led))]

    @staticmethod
    def load(path: Path | str) -> StemSnapshot:
        """Map a saved snapshot; blocks and indexes this process has mapped are used again.

        Raises:
            OSError: a file is missing.
            ValueError: a file is not what it should be.
        """
        path = Path(path)
        content = pickle.loads(path.read_bytes())
        blocks = tuple(mapped_blocks.get(path.parent / name) for name in content.pop("blocks"))
        led = tuple(mapped_indexes.get(path.parent / name) for name in content.pop("led"))
        return StemSnapshot(blocks=blocks, led=led, **content)


class _MappedFiles(Generic[T]):
    """The files this process has mapped, the least recently used dropped first."""

    def __init__(self, load: Callable[[Path], T], most: int) -> None:
        self._load = load
        self._most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[Path, T] = OrderedDict()

    def get(self, path: Path) -> T:
        with self._lock:
            held = self._held.get(path)
            if held is not None:
                self._held.move_to_end(path)
                return held
        held = self._load(path)
        with self._lock:
            self._held[path] = held
            while len(self._held) > self._most:
                self._held.popitem(last=False)
        return held


#: Blocks by their file, as this process has mapped them.
mapped_blocks = _MappedFiles(Block.load, 4096)
#: Indexes of led queries, likewise.
mapped_indexes = _MappedFiles(LedQueries.load, 64)
