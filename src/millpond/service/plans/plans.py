"""Plans that are exported, compared, adopted and taken back while queries run.

To adopt a plan is one epoch. It sets how operators take turns, the strategies of queries, and the
choices by which plans are made (`planner/optimize/choices.py`). The derivations that this concerns
are planned anew when they are next advanced; the new operators are fed what is kept, as after a
restart, so no change and no answer is another one. Every operator of an adopted plan is chosen as
it is, so later statistics move none of them.

INV-PLANS-1: with the choices that an epoch of this module commits, the queries of its document get
the plans that it was compared with, whatever statistics say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
import xxhash

from millpond.catalog.objects import QueryDef
from millpond.errors import MillpondError
from millpond.model.time import format_instant, now
from millpond.planner.dataflow.plan import Plan
from millpond.planner.optimize.choices import (
    NOTHING,
    SETTING,
    Choice,
    find_adopted_choices,
    find_choices,
    find_noticed_choices,
)
from millpond.service.components import Components
from millpond.service.plans.choosing import choose, describe_choices, is_realised
from millpond.service.plans.document import (
    Edits,
    read_edits,
    read_settings,
    write_document,
)
from millpond.service.plans.running_plans import RunningPlan, RunningPlans, list_operators
from millpond.service.queries.options import check_options, check_system_settings
from millpond.state.version import Version

#: How many adopted plans can be taken back, one after the other.
MOST_PAST = 20


@dataclass(frozen=True)
class Proposal:
    """What would be if a plan were adopted.

    Attributes:
        choices: The choices of operators.
        settings: The settings of the pond that are other.
        strategies: By query id, the strategies that are other; None: no option says.
        difference: The difference from what runs, as JSON values.
        touched: The ids of the streams whose plans are other, or pinned.
    """

    choices: Mapping[str, Choice]
    settings: Mapping[str, Any]
    strategies: Mapping[int, str | None]
    difference: dict[str, Any]
    touched: frozenset[int]


class Plans:
    """The plans of a pond as documents."""

    def __init__(self, components: Components) -> None:
        self._components = components

    # -- looking -----------------------------------------------------------------------------------

    def export(self, queries: Sequence[str] | None = None) -> dict[str, Any]:
        """Export the plans of some queries and derived streams as a document; None: of all.

        Raises:
            MillpondError: CQL-201, the changes of one are not computed.
        """
        version = self._components.log.version
        running = self._list_running(version)
        number = version.settings.get(SETTING, {}).get("number", 0)
        return write_document(running, running.choose(queries), version.settings, number)

    def compare(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Compare a document with what runs; nothing changes.

        Returns:
            The difference, with `base`, which stands for what the document was compared with.

        Raises:
            MillpondError: CQL-201 and CQL-214, the document is no plan that could be adopted.
        """
        version = self._components.log.version
        return {"base": self._name_base(version), **self._propose(document, version).difference}

    def list_adopted(self) -> list[dict[str, Any]]:
        """List the plans that were adopted and can be taken back, the last one first."""
        held = self._components.log.version.settings.get(SETTING, {})
        past = reversed(held.get("past", ()))
        return [{name: one[name] for name in ("number", "at", "by", "changed")} for one in past]

    # -- changing ----------------------------------------------------------------------------------

    def adopt(
        self, document: Mapping[str, Any], by: str | None = None, base: str | None = None
    ) -> dict[str, Any]:
        """Adopt a document; return the difference it made, with the number of the plan.

        Args:
            document: The plan.
            by: Who adopts it.
            base: What it was compared with, as `compare` says; None for whatever is.

        Raises:
            MillpondError: as `compare`; CQL-214, something else is now than `base`.
        """
        with self._components.registrar.lock:
            version = self._components.log.version
            if base is not None and base != self._name_base(version):
                raise MillpondError(
                    "CQL-214",
                    "the plan is not adopted: what it was compared with has changed",
                    detail="A plan was adopted or taken back, or a setting or a strategy altered.",
                    hint="Export or compare again, and adopt with the new base.",
                )
            proposal = self._propose(document, version)
            held = version.settings.get(SETTING, {})
            number = held.get("number", 0) + 1
            before = {
                "number": number,
                "at": format_instant(now()),
                "by": by,
                "changed": sorted(_list_changed(proposal.difference)),
                "choices": held.get("choices", {}),
                "settings": {name: version.settings.get(name) for name in proposal.settings},
                "strategies": {
                    str(id): version.queries[id].options.get("strategy")
                    for id in proposal.strategies
                },
            }
            plan = {
                **held,
                "number": number,
                "choices": {key: c.to_json() for key, c in proposal.choices.items()},
                "past": [*held.get("past", ()), before][-MOST_PAST:],
            }
            self._commit(plan, proposal.settings, proposal.strategies, proposal.touched)
        return {"number": number, **proposal.difference}

    def take_back(self, number: int | None = None) -> dict[str, Any]:
        """Take the plan back that was adopted last; return its number and when it was adopted.

        Args:
            number: Which one that must be; None for any.

        Raises:
            MillpondError: CQL-201, no plan is adopted; CQL-214, another one was adopted last.
        """
        with self._components.registrar.lock:
            version = self._components.log.version
            held = version.settings.get(SETTING, {})
            if not held.get("past"):
                raise MillpondError("CQL-201", "no adopted plan that could be taken back")
            *past, before = held["past"]
            if number not in (None, before["number"]):
                raise MillpondError(
                    "CQL-214",
                    f"plan {number} was not adopted last",
                    detail=f"Plan {before['number']} was, and nothing was taken back.",
                    hint="Plans are taken back one after the other, the last one first.",
                )
            plan = {**held, "choices": before["choices"], "past": past}
            strategies = {
                int(id): strategy
                for id, strategy in before["strategies"].items()
                if int(id) in version.queries
            }
            keys = _list_other(
                find_adopted_choices(version.settings), find_adopted_choices({SETTING: plan})
            )
            touched = self._list_running(version).list_touched(keys)
            streams = frozenset(found.stream.id for found in touched)
            self._commit(plan, before["settings"], strategies, streams)
        return {name: before[name] for name in ("number", "at", "by", "changed")}

    def choose_of(self, id: str, fields: Mapping[str, Any]) -> None:
        """Choose fields of one operator, as its control table is set; the rest of its plans stays.

        Raises:
            MillpondError: CQL-201 and CQL-214.
        """
        self.adopt({"form": 1, "operators": {id: dict(fields)}})

    def _commit(
        self,
        plan: Mapping[str, Any],
        settings: Mapping[str, Any],
        strategies: Mapping[int, str | None],
        touched: frozenset[int],
    ) -> None:
        def settle(current: Mapping[str, Any]) -> dict[str, Any]:
            found = {**current, **settings, SETTING: plan}
            return {name: value for name, value in found.items() if value is not None}

        components = self._components
        options = {id: {"strategy": strategy} for id, strategy in strategies.items()}
        components.registrar.alter_each(options, settle)
        components.derivations.forget_plans(touched)
        components.advancer.wake()

    # -- proposing ---------------------------------------------------------------------------------

    def _list_running(self, version: Version) -> RunningPlans:
        return RunningPlans(version, self._components.derivations)

    def _name_base(self, version: Version) -> str:
        """Name what a document is compared with: the settings, the choices and the strategies."""
        running = self._list_running(version).choose(None)
        strategies = sorted(
            (one.query.id, str(one.query.options.get("strategy"))) for one in running if one.query
        )
        said = orjson.dumps([dict(version.settings), strategies], option=orjson.OPT_SORT_KEYS)
        return str(xxhash.xxh3_64_hexdigest(said))

    def _propose(self, document: Mapping[str, Any], version: Version) -> Proposal:
        running = self._list_running(version)
        edits = read_edits(document, running, version.settings)
        settings = check_system_settings(edits.settings)
        others = _read_strategies(edits, running)
        held = find_adopted_choices(version.settings)
        choices = dict(held)
        pinned = _list_pinned(edits, running)
        for found in pinned:
            if found.name not in others:
                for key, choice in found.plan.read_choices().items():
                    choices[key] = replace(choice, shared=choices.get(key, NOTHING).shared)
        for id, fields in edits.operators.items():
            node = running.operators[id]
            for field, value in fields.items():
                before = choices.get(node.logical_key, NOTHING)
                choices[node.logical_key] = choose(id, node, before, field, value)
                if field == "synopsis" and choices[node.logical_key].distinct:
                    # How rows leave below it, and above it, follows from its form.
                    for key in (node.logical_key, *(i.logical_key for i in node.inputs)):
                        choices[key] = replace(choices.get(key, NOTHING), expire=())
        planned = {p.name: self._replan(version, p, choices, others) for p in pinned}
        self._check_realised(edits, running, planned, choices)
        for made in planned.values():
            for key, choice in made.read_choices().items():
                choices[key] = replace(choice, shared=choices.get(key, NOTHING).shared)
        touched = dict.fromkeys(pinned)
        touched |= dict.fromkeys(running.list_touched(_list_other(held, choices)))
        for plan in touched:
            planned[plan.name] = self._replan(version, plan, choices, others)
        difference = {
            "settings": [
                {"name": name, "before": read_settings(version.settings)[name], "after": value}
                for name, value in settings.items()
            ],
            "strategies": [
                {
                    "query": name,
                    "before": running.find(name).plan.strategy,
                    "after": planned[name].strategy,
                }
                for name in others
            ],
            "operators": [
                {
                    "id": id,
                    "field": field,
                    "before": describe_choices(running.operators[id])[field],
                    "after": value,
                }
                for id, fields in edits.operators.items()
                for field, value in fields.items()
            ],
            "plans": [
                compared
                for p in touched
                if (compared := self._compare_plans(version, p, planned[p.name])) is not None
            ],
            "pinned": len(choices),
        }
        strategies = {
            query.id: strategy
            for name, strategy in others.items()
            if (query := running.find(name).query) is not None
        }
        ids = frozenset(found.stream.id for found in touched)
        return Proposal(choices, settings, strategies, difference, ids)

    def _replan(
        self,
        version: Version,
        found: RunningPlan,
        choices: Mapping[str, Choice],
        others: Mapping[str, str],
    ) -> Plan:
        query: QueryDef | None = found.query
        if query is not None and found.name in others:
            query = replace(query, options={**query.options, "strategy": others[found.name]})
        every = {**find_noticed_choices(version.settings), **choices}
        return self._components.derivations.replan(version, found.stream, every, query).plan

    def _check_realised(
        self,
        edits: Edits,
        running: RunningPlans,
        planned: Mapping[str, Plan],
        choices: Mapping[str, Choice],
    ) -> None:
        """Raise CQL-214 where a plan cannot have an operator as it was chosen."""
        for id, fields in edits.operators.items():
            node = running.operators[id]
            for field, value in fields.items():
                for name in running.readers[id]:
                    own = [
                        n
                        for n in planned[name].nodes()
                        if n.logical_key == node.logical_key and n.name == node.name
                    ]
                    chosen = choices[node.logical_key]
                    if not any(is_realised(n, chosen, field) for n in own):
                        raise MillpondError(
                            "CQL-214",
                            f'the {field} of operator "{id}" cannot be {value!r}',
                            detail=f'In the plan of "{name}" it follows from the strategy, or from '
                            "what reads the operator.",
                        )

    def _compare_plans(
        self, version: Version, found: RunningPlan, after: Plan
    ) -> dict[str, Any] | None:
        before, now_there = list_operators(found.plan), list_operators(after)
        if before.keys() == now_there.keys():
            return None
        held = find_choices(version.settings)
        alone = self._components.derivations.replan(version, found.stream, held, found.query).plan
        return {
            "query": found.name,
            "goes": [id for id in before if id not in now_there],
            "comes": [id for id in now_there if id not in before],
            "stays": len(before.keys() & now_there.keys()),
            "cost": {"before": alone.cost, "after": after.cost},
            "plan": after.explained,
        }


def _list_pinned(edits: Edits, running: RunningPlans) -> list[RunningPlan]:
    """The plans that a document has, and those that have an operator that was edited."""
    names = dict.fromkeys(edits.names)
    for id in edits.operators:
        names |= dict.fromkeys(running.readers[id])
    return running.choose(names)


def _read_strategies(edits: Edits, running: RunningPlans) -> dict[str, str]:
    for name, strategy in edits.strategies.items():
        if running.find(name).query is None:
            raise MillpondError(
                "CQL-214",
                f'the strategy of derived stream "{name}" cannot be edited',
                detail="Derived streams have the strategy of the engine.",
            )
        check_options({"strategy": strategy})
    return dict(edits.strategies)


def _list_other(one: Mapping[str, Choice], other: Mapping[str, Choice]) -> set[str]:
    """The logical keys of which two sets of choices say something else."""
    return {key for key in {*one, *other} if one.get(key) != other.get(key)}


def _list_changed(difference: Mapping[str, Any]) -> set[str]:
    """Name what a difference changes, in a few words."""
    found = {str(one["name"]) for one in difference["settings"]}
    found |= {f"strategy of {one['query']}" for one in difference["strategies"]}
    return found | {f"{one['field']} of {one['id']}" for one in difference["operators"]}
