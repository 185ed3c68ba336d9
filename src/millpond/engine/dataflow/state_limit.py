"""Keeps the state of a dataflow's operators within a limit of memory (STREAM, CIDR 2.4).

An exact query whose state outgrows its memory stays exact: its state goes into mapped files, rows
before the arrays that every probe changes, large state before small. When it has become much
smaller it comes back. Operators are measured seldom: in between, an operator's state counts as
grown by all that it took.

INV-LIMIT-1: beyond the limit are at most what one run of an operator adds, and state of fewer bytes
than are worth a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millpond.engine.dataflow.arrangement import Arrangement
from millpond.engine.dataflow.state_memory import (
    StateSize,
    measure_state,
    move_into_files,
    move_into_memory,
)
from millpond.synopses.mapped_memory import Home

#: An operator is measured again when that part of its state, or that many bytes, may be new.
_PART, _BYTES = 8, 64 << 10
#: Of the others that ran, so many are measured after a step.
_SOME = 16
#: State comes back when all of it takes this part of the limit.
_BACK_AT = 0.5


@dataclass(frozen=True)
class Memory:
    """The memory for a dataflow's state.

    Attributes:
        limit: How many bytes; what is beyond lies in files.
        home: Where the files are made.
        own: By node key, how many bytes of it an operator may take.
    """

    limit: int
    home: Home
    own: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OperatorState:
    """What an operator keeps.

    Attributes:
        name: What EXPLAIN calls it.
        rows: How many rows.
        memory: Their bytes in memory, about.
        files: Their bytes in mapped files.
    """

    name: str
    rows: int
    memory: int
    files: int


class StateLimit:
    """Measures and moves the state of a dataflow's operators.

    Attributes:
        memory: The memory they may take; None: any.
        sizes: By node key, the size last measured.
    """

    def __init__(self) -> None:
        self.memory: Memory | None = None
        self.sizes: dict[str, StateSize] = {}
        #: By node key, the bytes that an operator took since it was measured.
        self._taken: dict[str, float] = {}
        #: By node key, what `list_state` said of it.
        self._listed: dict[str, OperatorState] = {}
        #: The bytes in memory of all of them, at most about.
        self._expected = 0.0

    def note(self, key: str, taken: float) -> None:
        """Note that an operator ran, on so many bytes."""
        self._taken[key] = self._taken.get(key, 0.0) + taken
        self._expected += taken

    @property
    def is_reached(self) -> bool:
        """Whether more than the limit may be in memory."""
        return self.memory is not None and self._expected > self.memory.limit

    def total(self) -> StateSize:
        """The size of all operators' state."""
        sizes = self.sizes.values()
        return StateSize(int(self._expected), sum(size.files for size in sizes))

    def list_state(self, flow: Arrangement, *, every: bool = False) -> dict[str, OperatorState]:
        """List what operators keep: all, or those of which it changed since the last time.

        Of operators that are gone it says that they keep nothing. What a store of several nodes
        keeps counts to one of them.
        """
        stores = flow.stores
        gone = self._listed.keys() - flow.operators.keys()
        found = {key: OperatorState("", 0, 0, 0) for key in gone}
        for key in gone:
            del self._listed[key]
        for node in flow.nodes:
            key = node.key
            if key in flow.added:
                continue
            held = [key, stores[key]] if key in stores else [key]
            sizes = [self.sizes.get(one) or StateSize() for one in held]
            rows = sum(flow.operators[one].size() for one in held)
            memory, files = sum(s.memory for s in sizes), sum(s.files for s in sizes)
            state = OperatorState(node.name, rows, memory, files)
            if every or self._listed.get(key) != state:
                found[key] = self._listed[key] = state
        return found

    def settle(self, flow: Arrangement) -> None:
        """After a step, measure what may have changed, and keep to the limit both ways."""
        self.forget(flow)
        if self.memory is None:
            self._measure(flow, self._list_grown(flow))
            return
        self._keep_own(flow)
        if self.is_reached:
            self.make_room(flow, list(flow.operators))
        else:
            self._measure(flow, self._list_grown(flow))
            size = self.total()
            if size.files and size.memory + size.files <= _BACK_AT * self.memory.limit:
                own = {flow.stores.get(key, key) for key in self.memory.own}
                for key, one in list(self.sizes.items()):
                    if not one.files or key in own:
                        continue
                    flow.operators[key] = move_into_memory(flow.operators[key])
                    self._measure(flow, [key])

    def make_room(self, flow: Arrangement, keys: Iterable[str]) -> None:
        """Move state of some operators, of whose state nothing is lent, until there is room."""
        assert self.memory is not None
        keys = list(keys)
        self._measure(flow, [key for key in keys if key in self._taken])
        for only_rows in (True, False):
            for key in sorted(keys, key=lambda key: -self._in_memory(key)):
                if not self.is_reached:
                    return
                if self._in_memory(key) <= self.memory.home.least:
                    break
                self._move(flow, key, only_rows)

    def _keep_own(self, flow: Arrangement) -> None:
        """Keep the operators that have memory of their own within it."""
        assert self.memory is not None
        for join, most in self.memory.own.items():
            key = flow.stores.get(join, join)
            if key not in flow.operators:
                continue
            if key in self._taken:
                self._measure(flow, [key])
            for only_rows in (True, False):
                if self._in_memory(key) > most:
                    self._move(flow, key, only_rows)

    def _move(self, flow: Arrangement, key: str, only_rows: bool) -> None:
        assert self.memory is not None
        before, home = flow.operators[key], self.memory.home
        flow.operators[key] = move_into_files(before, home, only_rows=only_rows)
        if flow.operators[key] is not before:
            self._measure(flow, [key])

    def forget(self, flow: Arrangement) -> None:
        """Forget operators that there are no more."""
        for known in (self.sizes, self._taken):
            for key in known.keys() - flow.operators.keys():
                known.pop(key)
        in_memory = sum(size.memory for size in self.sizes.values())
        self._expected = in_memory + sum(self._taken.values())

    def _in_memory(self, key: str) -> int:
        return self.sizes[key].memory if key in self.sizes else 0

    def _list_grown(self, flow: Arrangement) -> list[str]:
        """List operators whose state may have another size, of those that changed little some.

        Who keeps no rows, and kept little before, is not measured: of a hundred queries most
        operators select, project or put out what another one keeps.
        """
        much: list[str] = []
        little: list[str] = []
        for key, taken in list(self._taken.items()):
            size = self.sizes.get(key)
            known = 0 if size is None else size.memory + size.files
            if size is not None and known <= _BYTES and not flow.operators[key].size():
                self._expected -= self._taken.pop(key)
                continue
            is_much = size is None or taken > max(known // _PART, _BYTES)
            (much if is_much else little).append(key)
        return [*much, *little[:_SOME]]

    def measure(self, flow: Arrangement, keys: Iterable[str]) -> None:
        """Measure what operators keep, of which rows were handed over."""
        self._measure(flow, keys)

    def _measure(self, flow: Arrangement, keys: Iterable[str]) -> None:
        for key in keys:
            operator = flow.operators[key]
            before = self._in_memory(key) + self._taken.pop(key, 0.0)
            try:
                self.sizes[key] = measure_state(operator)
            except Exception:  # such state is not moved, and fails no query
                self.sizes[key] = StateSize()
            self._expected += self.sizes[key].memory - before
