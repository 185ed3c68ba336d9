"""What answers wait for: pushed rows, the ends of bounded sources, derived streams, matching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from millpond.catalog.objects import SYSTEM_ENTITIES, StreamDef
from millpond.errors import MillpondError
from millpond.runtime.protocol import Runtime
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.derivations import Derivations
from millpond.service.definitions.replicas import Replicas
from millpond.service.definitions.sources import Sources
from millpond.service.ingest.intake import Intake
from millpond.service.ingest.pressure import Pressure
from millpond.service.ingest.pushes import STATED_SECONDS, Pushes
from millpond.service.queries.registration import Registrar
from millpond.state.epoch_log import EpochLog


class BackgroundWork(Protocol):
    """Work beside the epochs that can be waited for."""

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Whether there was nothing left to do within `timeout` seconds."""
        ...


class Inputs:
    """Waits for what a reader has to see; safe to use from any thread."""

    def __init__(
        self,
        log: EpochLog,
        runtime: Runtime,
        intake: Intake,
        pushed: Pushes,
        pressure: Pressure,
        sources: Sources,
        replicas: Replicas,
        registrar: Registrar,
        derivations: Derivations,
        advancer: Advancer,
        background: Sequence[BackgroundWork],
        bounded: bool,
    ) -> None:
        self._log = log
        self._runtime = runtime
        self._intake = intake
        self._pushed = pushed
        self._pressure = pressure
        self._sources = sources
        self._replicas = replicas
        self._registrar = registrar
        self._derivations = derivations
        self._advancer = advancer
        self._background = background
        self._bounded = bounded
        #: Makes the control tables, as they are now, elements of `system$entities`.
        self.look_at_entities: Callable[[], None] = lambda: None

    def wait(self, text: str | None = None, text_epoch: int | None = None) -> None:
        """Wait for rows that statements pushed, and until bounded sources are read to their ends.

        With a query's text also for the derived streams it reads; and if it reads the control
        tables, it finds them as they are now. `text_epoch` is as of `Registrar.bind`.

        Raises:
            MillpondError: POND-405 when the rows have not become an epoch for a minute.
        """
        self._pushed.wait_for_stated()
        if self._bounded:
            self._sources.read_to_end()
            self._replicas.catch_up()
        if text is not None and SYSTEM_ENTITIES.name in text.lower():
            self.look_at_entities()
        version = self._log.version
        # A derived stream has a name; without any there is nothing to be read for it.
        if text is not None and any(s.derived is not None for s in version.named_streams()):
            bound = self._registrar.bind(text, text_epoch)
            read = [version.find(leaf.stream) for leaf in bound.streams]
            derived = [s for s in read if isinstance(s, StreamDef) and s.derived is not None]
            self._advancer.catch_up(derived, STATED_SECONDS)

    def catch_up(self, timeout: float | None = None) -> None:
        """Wait until everything acknowledged, and everything sources hold now, is visible.

        Raises:
            MillpondError: POND-405 when it took longer than `timeout` seconds.
        """
        too_long = MillpondError("POND-405", "catching up took too long")
        if not self._pushed.wait(self._intake.last_number(), timeout):
            raise too_long
        self._replicas.catch_up(timeout)
        self._pressure.look()
        if self._bounded:
            self._sources.read_to_end()
        else:
            version = self._log.version
            sourced = [s for s in version.streams.values() if s.is_read_from_outside]
            self._runtime.catch_up([s for s in sourced if not version.clock(s.id).ended])
        if not self._advancer.catch_up(self._derivations.list_streams(self._log.version), timeout):
            raise too_long

    def wait_until_matched(self, timeout: float | None = None) -> None:
        """As `catch_up`, and until every kept element is matched against every query."""
        self.catch_up(timeout)
        if not all(part.wait_until_idle(timeout) for part in self._background):
            raise MillpondError("POND-405", "matching what is kept took too long")
