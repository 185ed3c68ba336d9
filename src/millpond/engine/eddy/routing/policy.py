"""The interface of routing policies, and the accounts of tickets they may use."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

#: A first failure in vain makes a module wait for twice so many visits; each further one doubles.
_DETERRED = 4
_DOUBLINGS = 12


@dataclass(frozen=True)
class Account:
    """A module's tickets: how the module did lately (CACQ, section 4).

    A module gets a ticket for every predicate it applies to a tuple it is given, and pays a ticket
    back for every tuple it returns; here both are divided by what the work cost.

    Attributes:
        came: Tuples it was given; older ones count less and less.
        left: Tuples it returned; a SteM may return more than it got.
        ns: Time it took, in nanoseconds.
        predicates: How many predicates it serves at the moment.
        failures: How often in a row it failed on tuples others might have taken away.
        deterred: How many more visits to others it has to wait for, because of these failures.
    """

    came: float = 0.0
    left: float = 0.0
    ns: float = 0.0
    predicates: int = 1
    failures: int = 0
    deterred: int = 0

    @property
    def passed(self) -> float:
        """The share of tuples it returned; one half before the first visit."""
        return (self.left + 1.0) / (self.came + 2.0)

    @property
    def cost(self) -> float:
        """Nanoseconds a tuple."""
        return max(self.ns / self.came, 0.1) if self.came else 1.0

    @property
    def tickets(self) -> float:
        """Predicates served and tuples removed, per microsecond. A small positive number at least,
        so that every module is still tried sometimes; 0 while failures deter from the module."""
        if self.deterred:
            return 0.0
        return max(self.predicates * (1.0 - self.passed), 1e-3) * 1000.0 / self.cost

    def after_visit(self, came: float, left: float, ns: float, fade: float) -> Account:
        """Return the account after a visit; earlier visits keep `fade` of their weight."""
        return replace(
            self,
            came=self.came * fade + came,
            left=self.left * fade + left,
            ns=self.ns * fade + ns,
            failures=self.failures if self.deterred else 0,
            deterred=max(self.deterred - 1, 0),
        )

    def after_failure(self, came: float, ns: float, fade: float) -> Account:
        """Return the account after a visit in vain: it cost time and took no tuple away.

        The module is not tried early for a number of visits, doubled by each failure in a row.
        """
        charged = self.after_visit(came, came, ns, fade)
        failures = self.failures + 1
        return replace(charged, failures=failures, deterred=_DETERRED << min(failures, _DOUBLINGS))


class Policy(ABC):
    """Chooses among the ready modules. Not for use by two threads at once."""

    name = ""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)

    @abstractmethod
    def choose(self, ready: Sequence[str], accounts: Mapping[str, Account]) -> str:
        """Choose the module to visit next.

        Args:
            ready: The names of the ready modules, in the order they were set up; never empty.
            accounts: The modules' accounts; a module nobody visited may have none.
        """

    def order(self, modules: Sequence[str], accounts: Mapping[str, Account]) -> tuple[str, ...]:
        """Return all the modules in the order this policy would visit them."""
        rest, chosen = list(modules), []
        while rest:
            chosen.append(self.choose(rest, accounts))
            rest.remove(chosen[-1])
        return tuple(chosen)
