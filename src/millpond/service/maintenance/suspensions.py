"""Suspends queries whose predicates or joins failed over elements, and no others."""

from __future__ import annotations

from collections.abc import Mapping

from millpond.service.queries.registration import Registrar
from millpond.state.epoch_log import EpochLog


class Suspensions:
    """Suspends queries by what failed of them; safe to use from any thread."""

    def __init__(self, epochs: EpochLog, registrar: Registrar) -> None:
        self._log = epochs
        self._registrar = registrar

    def suspend(self, query_id: int, reason: str) -> None:
        """Suspend a query, if it is still there."""
        query = self._log.version.queries.get(query_id)
        if query is not None:
            self._registrar.suspend(query, reason)

    def suspend_failed(self, stream_id: int, failed: Mapping[int, str]) -> None:
        """Suspend the queries whose predicate could not be evaluated.

        Args:
            stream_id: The stream whose elements were matched.
            failed: By slot, why its predicate could not be evaluated.
        """
        if not failed:
            return
        version = self._log.version
        for query in list(version.queries.values()):
            for leaf in version.leaves(query.id):
                reason = None if leaf.slot is None else failed.get(leaf.slot)
                if leaf.stream_id == stream_id and reason is not None:
                    self._registrar.suspend(
                        query, f"Its predicate could not be evaluated: {reason}"
                    )
