"""What a routing policy is asked, and the tickets it may go by."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

#: Visits a module waits for after it failed in vain: twice this, then twice as many each time.
_DETERRED = 4
_DOUBLINGS = 12


@dataclass(frozen=True)
class Account:
    """A module's tickets: how it did lately (CACQ, section 4).

    A module gets a ticket for every predicate it applies to a tuple it is given, and pays them
    back for every tuple it returns; here both are weighed by what the work cost.

    Attributes:
        came: Tuples it was given; older ones fade.
        left: Tuples it gave back; a SteM may give back more than it got.
        ns: Time it took.
        predicates: How many predicates it serves at the moment.
        failures: How often in a row it failed on tuples others might have taken away.
        deterred: How many more visits it has to wait for, last of all, because of that.
    """

    came: float = 0.0
    left: float = 0.0
    ns: float = 0.0
    predicates: int = 1
    failures: int = 0
    deterred: int = 0

    @property
    def passed(self) -> float:
        """The share that came back; one half where nothing is known."""
        return (self.left + 1.0) / (self.came + 2.0)

    @property
    def cost(self) -> float:
        """Nanoseconds a tuple."""
        return max(self.ns / self.came, 0.1) if self.came else 1.0

    @property
    def tickets(self) -> float:
        """Predicates served and tuples disposed of, per microsecond; never less than a trifle, so
        that a module nobody favours is still tried. None while failures deter from it."""
        if self.deterred:
            return 0.0
        return max(self.predicates * (1.0 - self.passed), 1e-3) * 1000.0 / self.cost

    def after_visit(self, came: float, left: float, ns: float, fade: float) -> Account:
        """The account after a visit; what was before counts for `fade` of itself."""
        return replace(
            self,
            came=self.came * fade + came,
            left=self.left * fade + left,
            ns=self.ns * fade + ns,
            failures=self.failures if self.deterred else 0,
            deterred=max(self.deterred - 1, 0),
        )

    def after_failure(self, came: float, ns: float, fade: float) -> Account:
        """The account after a visit in vain: it cost time and took no tuple away.

        It is not tried early for a number of visits, twice as many after each failure in a row.
        """
        charged = self.after_visit(came, came, ns, fade)
        failures = self.failures + 1
        return replace(charged, failures=failures, deterred=_DETERRED << min(failures, _DOUBLINGS))


class Policy(ABC):
    """Chooses among the modules that are ready. Not for use by two threads at once."""

    name = ""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)

    @abstractmethod
    def choose(self, ready: Sequence[str], accounts: Mapping[str, Account]) -> str:
        """The module to visit next.

        Args:
            ready: The names of the modules that are, in the order they were set up; never empty.
            accounts: What is known of them; one nobody visited may be missing.
        """

    def order(self, modules: Sequence[str], accounts: Mapping[str, Account]) -> tuple[str, ...]:
        """All of the modules, in the order this policy would visit them."""
        rest, chosen = list(modules), []
        while rest:
            chosen.append(self.choose(rest, accounts))
            rest.remove(chosen[-1])
        return tuple(chosen)
