"""The eddy: routes morsels of tuples through the modules that have work on them.

CACQ (section 3.1.1) gives every tuple *ready* and *done* bits and lets a policy choose, tuple by
tuple, which ready module it visits next. Here a morsel, some thousands of tuples with one lineage,
carries the two sets of bits; each tuple's query set says which queries it may still be output to.
A module takes a morsel and returns the tuples that are left: a grouped filter or other factor
returns fewer tuples, a SteM probe returns composites, which belong to a *virtual source* (section
3.3.2): the set of streams they are made of, which decides which modules are ready.

Between morsels the accounts of the modules change, so routing adapts while a batch runs.

INV-EDDY-1: a morsel visits each module at most once. It is output when it has visited all modules
that concern it, and dropped when no tuple of it is left. So the order changes no result. (A module
that fails leaves its done bit clear and is visited again, after all others:
`engine/matching/other_factors.py`.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from millpond.engine.eddy.routing import Account, Policy


class Morsel(Protocol):
    """What is routed: a morsel only has to know how many tuples it has."""

    def __len__(self) -> int: ...


M = TypeVar("M", bound=Morsel)


class Module(Protocol[M]):
    """A place an eddy can route to: it does its work on every morsel."""

    @property
    def name(self) -> str:
        """The name of its account in the ledger."""
        ...

    @property
    def predicates(self) -> int:
        """The number of predicates it applies at once."""
        ...

    def is_ready(self, morsel: M) -> bool:
        """Whether the morsel can visit this module yet."""
        ...

    def process(self, morsel: M) -> M:
        """Do the work; return the tuples that are left of the morsel, or were made from it."""
        ...


#: The weight that all earlier visits keep at each visit, so that routing follows change.
_FADE = 0.8


@dataclass(eq=False)
class Ledger:
    """The accounts of an eddy's modules.

    Attributes:
        accounts: By the module's name.
        visits: Tuples × modules visited, for the metric.
        routed: Tuples that entered the eddy.
    """

    accounts: dict[str, Account] = field(default_factory=dict)
    visits: int = 0
    routed: int = 0

    def set_predicates(self, name: str, predicates: int) -> None:
        """Record how many predicates a module applies now."""
        account = self.accounts.get(name, Account())
        if account.predicates != predicates:
            self.accounts[name] = replace(account, predicates=predicates)

    def set_expected_cost(self, name: str, ns: float) -> None:
        """Give a module nobody has visited an expected cost, in nanoseconds a tuple.

        The expectation counts as one tuple, so that the first morsel's measurement outweighs it.
        """
        if name not in self.accounts:
            self.accounts[name] = Account(1.0, 0.5, ns)

    def count_visit(self, name: str, came: float, left: float, ns: float) -> None:
        """Record a visit: how many tuples came to a module, and how many it returned."""
        account = self.accounts.get(name, Account())
        self.accounts[name] = account.after_visit(came, left, ns, _FADE)

    def count_failure(self, name: str, came: float, ns: float) -> None:
        """Record that a module failed on a morsel that others may yet take tuples away from."""
        account = self.accounts.get(name, Account())
        self.accounts[name] = account.after_failure(came, ns, _FADE)

    @property
    def visited_per_tuple(self) -> float:
        """The mean number of modules a tuple visited."""
        return self.visits / self.routed if self.routed else 0.0


class Router:
    """Chooses a morsel's whole route at once, where modules are compiled into one loop.

    The grouped filters of a block are such modules. The policy chooses the route. What the loop
    measured goes into the accounts, so the next morsel (the next block, or the next batch) may
    take another route.
    """

    def __init__(self, policy: Policy, ledger: Ledger | None = None) -> None:
        self.policy = policy
        self.ledger = ledger or Ledger()

    def route(self, predicates: Mapping[str, int]) -> tuple[str, ...]:
        """Return the modules in the order in which a morsel is to visit them.

        Args:
            predicates: How many predicates each module serves. Modules nobody has visited yet are
                tried in the order of this mapping.
        """
        for name, count in predicates.items():
            self.ledger.set_predicates(name, count)
        return self.policy.order(list(predicates), self.ledger.accounts)

    def count_visit(self, name: str, came: int, left: int, ns: float) -> None:
        """Record a visit: how many tuples came to a module, and how many it returned."""
        if came:
            self.ledger.visits += came
            self.ledger.count_visit(name, came, left, ns)

    def count_failure(self, name: str, came: int, ns: float) -> None:
        """Record that a module failed on tuples other modules were not done with."""
        self.ledger.visits += came
        self.ledger.count_failure(name, came, ns)


class Eddy(Generic[M]):
    """Routes the morsels of one task.

    Args:
        policy: Chooses the next module.
        ledger: The accounts the policy chooses by; every visit is recorded in it.
    """

    def __init__(self, policy: Policy, ledger: Ledger | None = None) -> None:
        self.policy = policy
        self.ledger = ledger or Ledger()

    def route(self, morsels: Iterator[M], modules: Sequence[Module[M]]) -> Iterator[M]:
        """Yield the morsels that visited all modules and have tuples left."""
        for module in modules:
            self.ledger.set_predicates(module.name, module.predicates)
        for morsel in morsels:
            self.ledger.routed += len(morsel)
            done: set[str] = set()
            while len(morsel):
                ready = {m.name: m for m in modules if m.name not in done and m.is_ready(morsel)}
                if not ready:
                    break
                name = self.policy.choose(list(ready), self.ledger.accounts)
                came, begun = len(morsel), time.perf_counter_ns()
                morsel = ready[name].process(morsel)
                done.add(name)
                self.ledger.visits += came
                self.ledger.count_visit(name, came, len(morsel), time.perf_counter_ns() - begun)
            if len(morsel) and len(done) == len(modules):
                yield morsel
