"""The monitor of plans: what runs otherwise than was expected is planned anew while it runs.

A plan is made when a query is first followed, and often nothing is known of its streams then. The
monitor looks at each group of derivations after some thousand elements. It compares what the
group's plans cost, by what was measured, with what other plans would cost (`reconsider.py`).

It moves a group when what it has lost by the plans that run is as much as it takes to make the
state of the others, as somebody buys skis after having paid as much for renting. So a rate that
goes up and down moves nothing back and forth, and no history of rates costs more than about twice
what it would if somebody had known it (hysteresis).

To move a group, workers first make the dataflows of its other plans beside those that run. Then one
epoch has the choices (`planner/optimize/choices.py`, as of adopted plans) and an element of
`system$actions` for each derivation, and the next job takes the dataflows over. No answer and no
change is another one.

INV-MONITOR-1: the choices of a person go before those of the monitor, in its plans and in its
comparisons.
"""

from __future__ import annotations

import time as clock_time
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from millpond.catalog.options import OPTIONS
from millpond.errors import MillpondError
from millpond.planner.optimize.choices import (
    SETTING,
    Choice,
    Choices,
    find_adopted_choices,
    find_noticed_choices,
)
from millpond.service.background import Background
from millpond.service.changes.advancer import Advancer
from millpond.service.changes.derivations import Derivations
from millpond.service.changes.noticing.flows import Flows
from millpond.service.changes.noticing.reconsider import CheaperPlans, Reconsideration
from millpond.service.changes.noticing.stream_statistics import StreamObserver
from millpond.service.ingest.actions import Actions, Step
from millpond.service.queries.registration import Registrar
from millpond.state.epoch.epoch_change import EpochChange
from millpond.state.epoch_log import EpochLog
from millpond.state.version import Version

REPLAN = "replan"
#: After so many elements of a group it is looked at again.
LEAST_ELEMENTS = 10_000
#: What is not cheaper by so much is no other plan.
_WORTH = 0.03
#: Looking takes no more than this part of the time.
_PART = 0.02
#: A dataflow that takes longer to make is brought up to the present, so often at most.
_LONG_SECONDS, _MOST_TIMES = 0.5, 4
#: The choice document begins here in the reasons of `system$actions`.
_CHOICES = "; choices: "


@dataclass
class _Regret:
    """What a group has lost by not having other plans, in seconds of work."""

    plans: frozenset[tuple[int, str]]
    lost: float = 0.0


class PlanMonitor(Background):
    """Plans anew what runs otherwise than expected, in a thread of its own.

    Attributes:
        least_elements: After how many elements a group is looked at.
    """

    def __init__(
        self,
        log: EpochLog,
        registrar: Registrar,
        derivations: Derivations,
        advancer: Advancer,
        statistics: StreamObserver,
        actions: Actions,
    ) -> None:
        super().__init__("plan-monitor")
        self._log = log
        self._registrar = registrar
        self._derivations = derivations
        self._advancer = advancer
        self._actions = actions
        self._reconsideration = Reconsideration(derivations, statistics)
        #: By group.
        self._regrets: dict[str, _Regret] = {}
        self._rests_until = 0.0
        self.least_elements = LEAST_ELEMENTS

    def work(self) -> None:
        """Look at the groups in which enough has run since they were last looked at."""
        began = clock_time.monotonic()
        version = self._log.version
        if began < self._rests_until or not is_watching(version):
            return
        for flows in self._advancer.accounts.take_flows(version, self.least_elements):
            if self.stopping:
                return
            self._look(flows)
        took = clock_time.monotonic() - began
        self._rests_until = began + took / _PART

    def _look(self, flows: Flows) -> None:
        version = self._log.version
        noticed = find_noticed_choices(version.settings)
        adopted = find_adopted_choices(version.settings)
        try:
            found = self._reconsideration.propose(version, flows, noticed, adopted)
        except MillpondError:
            return  # a query that cannot be planned any more is reported by who needs it
        known = self._regrets.setdefault(flows.group, _Regret(found.plans))
        if found.after > found.before * (1 - _WORTH):
            known.lost = 0.0
            return
        if known.plans != found.plans:
            # What was lost by not having one plan was not lost by not having the other.
            known.plans, known.lost = found.plans, 0.0
        known.lost += (found.before - found.after) * flows.span
        if known.lost >= found.after * found.reach:
            del self._regrets[flows.group]
            self._move(version, found)

    def _move(self, seen: Version, found: CheaperPlans) -> None:
        for _ in range(_MOST_TIMES):
            began = clock_time.monotonic()
            self._advancer.prepare(found.moved)
            if clock_time.monotonic() - began < _LONG_SECONDS:
                break
        with self._registrar.lock:
            version = self._log.version
            if version.settings != seen.settings:
                return  # a person chose something meanwhile
            moved = [one for one in found.moved if version.streams.get(one.id) is one.stream]
            if not moved:
                return
            chosen = {one.id: found.choices[one.id] for one in moved}
            steps = [
                describe_move(
                    version.name_of(one.stream), found.before, found.after, chosen[one.id]
                )
                for one in moved
            ]
            noticed = find_noticed_choices(version.settings)
            for choices in chosen.values():
                noticed |= choices
            noticed = self._keep_live(version, noticed, chosen)
            held = version.settings.get(SETTING, {})
            given = {key: choice.to_json() for key, choice in sorted(noticed.items())}
            settings = {**version.settings, SETTING: {**held, "noticed": given}}
            with self._actions.prepare(steps) as recorded:
                change = EpochChange(kind="system", settings=settings)
                self._log.commit(lambda now: recorded.add_to(change, now))
        self._derivations.forget_plans(one.id for one in moved)
        self._advancer.wake()

    def _keep_live(
        self, version: Version, noticed: Choices, moved: Mapping[int, Choices]
    ) -> dict[str, Choice]:
        """The choices of operators that some plan has, or will have."""
        live = {key for choices in moved.values() for key in choices}
        for stream in self._derivations.list_streams(version):
            one = self._derivations.find_of(version, stream)
            if one is not None and stream.id not in moved:
                live.add(one.plan.written)
                live.update(node.logical_key for node in one.plan.nodes())
        return {key: choice for key, choice in noticed.items() if key in live}


def is_watching(version: Version) -> bool:
    """Whether plans are made anew as they run, as the setting `replanning` says."""
    given = version.settings.get("replanning", OPTIONS["replanning"].default)
    return bool(given == "auto")


def describe_move(name: str, before: float, after: float, choices: Choices) -> Step:
    """The element of `system$actions` of a derivation that goes on by another plan.

    It has the choices by which the plan is made, so that what was decided can be done again.
    """
    document = {key: choice.to_json() for key, choice in sorted(choices.items())}
    why = (
        f"its group takes {before * 1e6:,.3g} µs a second, and {after * 1e6:,.3g} by other plans"
        f"{_CHOICES}{orjson.dumps(document).decode()}"
    )
    return REPLAN, name, before, after, before / after if after else 0.0, why


def read_move(why: str) -> dict[str, Choice]:
    """Read the choices from an element of `system$actions`, as `describe_move` wrote them."""
    document = orjson.loads(why.partition(_CHOICES)[2])
    return {key: Choice.of_json(choice) for key, choice in document.items()}
