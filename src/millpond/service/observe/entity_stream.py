"""The control tables as the stream `system$entities`: at each look, an element for each entity.

A look costs as much as `SHOW ENTITIES` and an epoch, so the pond looks only while somebody reads:
every `entities_every` while a registered query or a derived stream does, and when a question is
asked.
"""

from __future__ import annotations

import json
import time
from typing import Any

from millpond.catalog.objects import SYSTEM_ENTITIES
from millpond.catalog.options import OPTIONS
from millpond.model.durations import parse_duration
from millpond.service.background import Background
from millpond.service.components import Components
from millpond.service.observe.control_tables import Entities, Entity
from millpond.state.version import Version

#: The least time between two looks, in seconds.
_LEAST_SECONDS = 0.1
#: Figures that say how many rows, or bytes, an entity holds, the first that it has counting.
_ROWS = ("rows", "elements", "count", "waiting pushes", "predicates")
_BYTES = ("bytes", "match bytes", "waiting bytes", "bytes held")


class EntityStream(Background):
    """Writes `system$entities` while somebody reads it."""

    def __init__(self, components: Components, entities: Entities) -> None:
        super().__init__("observer")
        self._components = components
        self._entities = entities
        self._looked_at = time.monotonic()

    def look(self) -> None:
        """Make the control tables, as they are now, elements.

        Raises:
            MillpondError: STORE-603, they cannot be written.
        """
        rows = [_describe(entity) for entity in self._entities.every()]
        self._components.system_streams.append(SYSTEM_ENTITIES, rows)

    def wait_seconds(self) -> float:
        # The setting may be altered meanwhile.
        return min(1.0, max(_LEAST_SECONDS, self._looked_at + self._period() - time.monotonic()))

    def work(self) -> None:
        if time.monotonic() - self._looked_at < self._period():
            return
        self._looked_at = time.monotonic()
        if is_read(self._components.log.version):
            self.look()

    def _period(self) -> float:
        """The seconds from one look to the next."""
        settings, name = self._components.log.version.settings, "entities_every"
        given = settings.get(name, OPTIONS[name].default)
        return max(_LEAST_SECONDS, parse_duration(given) / 1e6)


def is_read(version: Version) -> bool:
    """Whether a registered query, or a derived stream, reads `system$entities`."""
    id, name = SYSTEM_ENTITIES.id, SYSTEM_ENTITIES.name
    if any(leaf.stream_id == id for _, leaves in version.leaves_by_query() for leaf in leaves):
        return True
    return any(
        stream.derived is not None and name in stream.derived.text.lower()
        for stream in version.named_streams()
    )


def _describe(entity: Entity) -> tuple[object, ...]:
    figures = entity.figures
    rows, size = _first(figures, _ROWS), _first(figures, _BYTES)
    if "bytes in files" in figures:
        size = (size or 0) + figures["bytes in files"]
    text = json.dumps(figures, ensure_ascii=False, default=str)
    return entity.id, entity.kind, entity.of, rows, size, text


def _first(figures: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return next((figures[name] for name in names if name in figures), None)
