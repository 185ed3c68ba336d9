"""The settings that say how slow clients may be, and how much memory they may hold in a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millpond.catalog.option import Scope
from millpond.catalog.option_values import parse_memory
from millpond.catalog.options import OPTIONS, list_options
from millpond.service.queries.options import check_settings

#: The names of the settings, which are those of the catalog.
NAMES = list_options(Scope.SERVER)


@dataclass(frozen=True)
class ClientLimits:
    """What a server bears from its clients.

    Attributes:
        max_connections: How many connections it keeps at once; None for as many as its descriptors
            allow.
        keep_alive: How long a connection is kept between two requests, in seconds.
        patience: How long a client may take for a request's headers, in seconds; and over how
            long its rate is measured.
        slowest_rate: How many bytes a second a client at least sends of a body, and takes of an
            answer.
        body_memory: How many bytes of bodies are held at once.
        answer_memory: How many bytes of answers are computed at once, and how many wait at once
            for their clients to take them.
    """

    max_connections: int | None
    keep_alive: float
    patience: float
    slowest_rate: float
    body_memory: int
    answer_memory: int

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None = None) -> ClientLimits:
        """The limits of settings as operators write them; defaults for what is not given.

        Raises:
            MillpondError: CQL-214, a setting is none or has a value it cannot have.
        """
        given = {name: OPTIONS[name].default for name in NAMES}
        given |= {name: value for name, value in (settings or {}).items() if value is not None}
        checked = check_settings(
            {name: value for name, value in given.items() if value is not None}, Scope.SERVER
        )
        return cls(
            max_connections=checked.get("max_connections"),
            keep_alive=checked["keep_alive"],
            patience=checked["patience"],
            slowest_rate=checked["slowest_rate"],
            body_memory=parse_memory(checked["body_memory"]),
            answer_memory=parse_memory(checked["answer_memory"]),
        )
