"""Whether a group of derivations would cost less by other plans, by what was measured of it.

The plans that run, and the plans that could run, are compared by one cost model and one set of
statistics: rates, steps and samples as they are now, and what each operator was seen to give
(`planner.optimize.cost.find_corrections`). What a person adopted stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

from millpond.catalog.objects import StreamDef
from millpond.operators.join import Join
from millpond.planner.dataflow.plan import Plan, list_in_order
from millpond.planner.optimize.choices import NOTHING, Choice, Choices
from millpond.planner.optimize.corrections import find_corrections
from millpond.planner.optimize.cost import sum_cost, sum_costs
from millpond.planner.optimize.statistics import ObservedStatistics
from millpond.service.changes.derivation import Derivation
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.noticing.flows import Flows
from millpond.service.changes.noticing.stream_statistics import StreamObserver
from millpond.state.version import Version

#: More items are not joined in all orders.
_MOST_ITEMS = 4
#: By so much another order has to be better.
_WORTH = 0.97
#: The power to which a correction is raised that was found some looks ago, at each look.
_FADING = 0.95


@dataclass(frozen=True)
class CheaperPlans:
    """Other plans for a group.

    Attributes:
        moved: The derivations with their other plans.
        choices: By derivation id, the choices by which its plan is made again.
        before: What the group costs, in seconds of work a second of stream time.
        after: What it would cost.
        reach: Seconds of stream time that the other plans' state reaches back.
    """

    moved: tuple[Derivation, ...] = ()
    choices: dict[int, dict[str, Choice]] = field(default_factory=dict)
    before: float = 0.0
    after: float = 0.0
    reach: float = 0.0

    @property
    def plans(self) -> frozenset[tuple[int, str]]:
        """Which derivations would have which plans."""
        return frozenset((one.id, one.plan.key) for one in self.moved)


class Reconsideration:
    """Looks for cheaper plans.

    Args:
        derivations: Makes plans.
        statistics: Looks at streams.
    """

    def __init__(self, derivations: Derivations, statistics: StreamObserver) -> None:
        self._derivations, self._statistics = derivations, statistics
        #: By derivation, by how much estimates were to be corrected.
        self._corrections: dict[int, dict[str, float]] = {}

    def propose(
        self, version: Version, flows: Flows, noticed: Choices, adopted: Choices
    ) -> CheaperPlans:
        """Propose plans for a group.

        Args:
            version: What there is.
            flows: What ran in the group.
            noticed: The choices by which plans were made anew before.
            adopted: The choices of people.

        Raises:
            MillpondError: a query cannot be planned any more.
        """
        for gone in self._corrections.keys() - version.streams.keys():
            del self._corrections[gone]
        group = self._list_group(version, flows)
        if not group:
            return CheaperPlans()
        measured = self._measure(version, group, flows)
        knows = [self._correct(one, measured, flows) for one in group]
        found = [
            (one, self._plan(version, one, known, adopted))
            for one, known in zip(group, knows, strict=True)
        ]
        wanted: dict[str, Choice] = {}
        for one, plan in found:
            if one.plan.key != plan.key:
                choices = plan.read_choices()
                wanted |= {key: c for key, c in choices.items() if key not in adopted}
        if not wanted:
            return CheaperPlans()
        # Queries that share an operator have one choice of it: this is what each would get.
        together = {**noticed, **wanted, **adopted}
        moved, roots, chosen = [], [], {}
        for one, known in zip(group, knows, strict=True):
            made = self._replan(version, one, together, known)
            roots.append(made.plan.root)
            if made.plan.key != one.plan.key:
                moved.append(made)
                chosen[one.id] = {
                    key: choice
                    for key, choice in made.plan.read_choices().items()
                    if key not in adopted
                }
        return CheaperPlans(
            tuple(moved),
            chosen,
            sum_costs(zip((one.plan.root for one in group), knows, strict=True)) / 1e9,
            sum_costs(zip(roots, knows, strict=True)) / 1e9,
            max((_measure_reach(version, one) for one in moved), default=0.0),
        )

    def _list_group(self, version: Version, flows: Flows) -> list[Derivation]:
        """The derivations of a group whose plans may be chosen."""
        found = []
        for id in sorted(flows.derivations):
            stream = version.streams.get(id)
            if stream is None or stream.is_shared_log:
                continue
            one = self._derivations.find_of(version, stream)
            if one is not None and _can_move(one):
                found.append(one)
        return found

    def _measure(
        self, version: Version, group: Sequence[Derivation], flows: Flows
    ) -> ObservedStatistics:
        nodes = list(list_in_order([one.plan.root for one in group]))
        rates = {
            node.feed[1]: flows.rates[node.key]
            for node in nodes
            if node.feed is not None and node.feed[0] == "stream" and node.key in flows.rates
        }
        read = [version.find(name) for name in rates]
        streams = [stream for stream in read if isinstance(stream, StreamDef)]
        is_sql = not any(one.bound.functions for one in group)
        steps = flows.steps / flows.span
        return self._statistics.measure(version, streams, rates, steps, is_sql)

    def _correct(
        self, one: Derivation, measured: ObservedStatistics, flows: Flows
    ) -> ObservedStatistics:
        """Correct what is known by what a derivation's operators gave, now and before.

        What ran before under other plans is believed less and less, or no plan was tried twice.
        """
        known = self._corrections.get(one.id, {})
        faded = {key: factor**_FADING for key, factor in known.items()}
        found = {**faded, **find_corrections(one.plan.nodes(), flows.rates, measured)}
        self._corrections[one.id] = found
        return measured.correct(found)

    def _plan(
        self, version: Version, one: Derivation, known: ObservedStatistics, adopted: Choices
    ) -> Plan:
        """The cheapest plan of a derivation, in the best order of its joins."""
        best = self._replan(version, one, adopted, known).plan
        cost = sum_cost(best.root, known)
        chosen = dict(adopted)
        for key, size in _list_joins(best):
            if key in adopted:
                continue
            before = chosen.get(key, NOTHING)
            for order in permutations(range(size)):
                choices = {**chosen, key: Choice(order=order)}
                made = self._replan(version, one, choices, known).plan
                if (other := sum_cost(made.root, known)) < cost * _WORTH:
                    best, cost, before = made, other, choices[key]
            if before is not NOTHING:
                chosen[key] = before
        return best

    def _replan(
        self, version: Version, one: Derivation, choices: Choices, known: ObservedStatistics
    ) -> Derivation:
        query = version.query_of(one.stream)
        return self._derivations.replan(version, one.stream, choices, query, known)


def _can_move(one: Derivation) -> bool:
    is_whole = one.look is None and not one.line and one.leaves is None
    return is_whole and bool(one.plan.read_choices())


def _list_joins(plan: Plan) -> list[tuple[str, int]]:
    """The joins that have an order to choose, by logical key, and how many items they join."""
    found = {
        node.logical_key: len(node.items)
        for node in plan.nodes()
        if isinstance(node, Join) and node.group and len(node.items) <= _MOST_ITEMS
    }
    return list(found.items())


def _measure_reach(version: Version, one: Derivation) -> float:
    """Seconds of stream time that have to be read again for a derivation's state."""
    position = version.clock(one.id).position
    longest = 0.0
    for name, low in one.reach(position).items():
        stream = version.find(name)
        if isinstance(stream, StreamDef):
            stamps = [s.min_ts for s in version.segments(stream.id, stream.kind)]
            first = min(stamps, default=position)
            begin = first if low is None else max(first, low)
            longest = max(longest, (position - begin) / 1e6)
    return longest
