"""The eddy: routes morsels of tuples through the modules that have work on them.

CACQ (section 3.1.1) gives every tuple *ready* and *done* bits and lets a policy choose, tuple by
tuple, which ready module it visits next. Here a morsel, some thousands of tuples with one lineage,
carries the two sets of bits; what each of its tuples may still be output to is in its query set.
A module takes a morsel and gives back what is left of it: a grouped filter or other factor fewer
tuples, a SteM probe composites, which belong to a *virtual source* (section 3.3.2): the set of
streams they are made of, which decides which modules are ready.

Between morsels the accounts of the modules change, so routing adapts while a batch runs.

INV-EDDY-1: a morsel visits each module at most once, and is output when it has visited all that
concern it, or is dropped when nothing is left of it. So the order changes no result. (One that
fails leaves its done bit clear and is visited again, after all others:
`engine/matching/other_factors.py`.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from millpond.engine.eddy.routing import Account, Policy


class Morsel(Protocol):
    """What is routed: it only has to know how much of it there is."""

    def __len__(self) -> int: ...


M = TypeVar("M", bound=Morsel)


class Module(Protocol[M]):
    """Work to be done on every morsel."""

    @property
    def name(self) -> str:
        """What its account stands under."""
        ...

    @property
    def predicates(self) -> int:
        """How many predicates it applies at once."""
        ...

    def is_ready(self, morsel: M) -> bool:
        """Whether the morsel can visit it yet."""
        ...

    def process(self, morsel: M) -> M:
        """What is left of the morsel, or became of it."""
        ...


#: What a visit leaves of the weight of all before, so that routing follows change.
_FADE = 0.8


@dataclass(eq=False)
class Ledger:
    """The accounts of an eddy's modules.

    Attributes:
        accounts: By the module's name.
        visits: Tuples × modules visited, for the metric.
        routed: Tuples that came in.
    """

    accounts: dict[str, Account] = field(default_factory=dict)
    visits: int = 0
    routed: int = 0

    def set_predicates(self, name: str, predicates: int) -> None:
        """A module applies so many predicates now."""
        account = self.accounts.get(name, Account())
        if account.predicates != predicates:
            self.accounts[name] = replace(account, predicates=predicates)

    def set_expected_cost(self, name: str, ns: float) -> None:
        """A module nobody has visited is said to cost so much a tuple.

        It counts as one tuple, so that the first morsel that visits it outweighs it.
        """
        if name not in self.accounts:
            self.accounts[name] = Account(1.0, 0.5, ns)

    def count_visit(self, name: str, came: float, left: float, ns: float) -> None:
        """Tuples came to a module and some left."""
        account = self.accounts.get(name, Account())
        self.accounts[name] = account.after_visit(came, left, ns, _FADE)

    def count_failure(self, name: str, came: float, ns: float) -> None:
        """A module failed on a morsel that others may yet take tuples away from."""
        account = self.accounts.get(name, Account())
        self.accounts[name] = account.after_failure(came, ns, _FADE)

    @property
    def visited_per_tuple(self) -> float:
        """Modules a tuple visited, on the average."""
        return self.visits / self.routed if self.routed else 0.0


class Router:
    """Routing where modules are compiled into one loop: a morsel's whole route is chosen at once.

    The grouped filters of a block are such modules. The route is the policy's; what the loop
    watched on the way goes into the accounts, so the next morsel (the next block, or the next
    batch) may take another.
    """

    def __init__(self, policy: Policy, ledger: Ledger | None = None) -> None:
        self.policy = policy
        self.ledger = ledger or Ledger()

    def route(self, predicates: Mapping[str, int]) -> tuple[str, ...]:
        """The modules in the order in which a morsel is to visit them.

        Args:
            predicates: How many each of them serves; those nobody has visited yet are tried in
                the order they come in.
        """
        for name, count in predicates.items():
            self.ledger.set_predicates(name, count)
        return self.policy.order(list(predicates), self.ledger.accounts)

    def count_visit(self, name: str, came: int, left: int, ns: float) -> None:
        """Tuples came to a module and some left."""
        if came:
            self.ledger.visits += came
            self.ledger.count_visit(name, came, left, ns)

    def count_failure(self, name: str, came: int, ns: float) -> None:
        """A module failed on tuples that came to it before others were done with them."""
        self.ledger.visits += came
        self.ledger.count_failure(name, came, ns)


class Eddy(Generic[M]):
    """Routes the morsels of one task.

    Args:
        policy: Who chooses.
        ledger: The accounts it goes by, and adds to.
    """

    def __init__(self, policy: Policy, ledger: Ledger | None = None) -> None:
        self.policy = policy
        self.ledger = ledger or Ledger()

    def route(self, morsels: Iterator[M], modules: Sequence[Module[M]]) -> Iterator[M]:
        """What comes out: the morsels that visited all modules with something left of them."""
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
