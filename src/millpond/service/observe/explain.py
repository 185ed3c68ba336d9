"""EXPLAIN in a running pond: adds slots and who shares them, segments, and changes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

from sqlglot import exp

from millpond.catalog.objects import Definition, QueryDef, RelationDef, StreamDef
from millpond.catalog.tolerance import NO_REDUCTION, NO_TOLERANCE
from millpond.cql.tree.explain_levels import Level
from millpond.engine.dataflow.lenders import find_lending
from millpond.engine.matching.results_structure import OTHERS
from millpond.engine.predicates.factors import factorize
from millpond.errors import MillpondError
from millpond.model.durations import duration_text
from millpond.model.function_names import restore_names
from millpond.model.loss import Cause
from millpond.model.time import format_instant
from millpond.planner.bind.bound_query import BoundQuery, StreamLeaf
from millpond.planner.dataflow.plan import (
    Plan,
    explain_together,
    find_needed_columns,
    find_purge_intervals,
    find_readers,
    list_in_order,
)
from millpond.planner.explain.explain import explain
from millpond.planner.explain.notes import find_notes
from millpond.service.changes.dataflow_accounts import (
    describe_releases,
    describe_state,
    describe_work,
)
from millpond.service.changes.derivation import SharingKey
from millpond.service.changes.looks import make_look
from millpond.service.components import Components
from millpond.service.maintenance.backfill import covered_upto
from millpond.service.observe.control_tables import Entities
from millpond.service.observe.explain_aggregates import describe_totals
from millpond.service.observe.explain_approximation import (
    describe_approximation,
    describe_precision,
    measure_precision,
)
from millpond.service.observe.explain_joins import JoinFacts, account_text
from millpond.service.observe.metrics import Metrics
from millpond.service.observe.plan_graph import PlanGraph
from millpond.service.plans.running_plans import RunningPlans
from millpond.service.queries.options import static_reduction
from millpond.service.queries.reductions import reduce_changes, with_static_reduction
from millpond.service.results import count_text
from millpond.state.version import LeafRef, Version

#: The levels that show what is computed, and not only what is asked.
_COMPUTED = (Level.REWRITTEN, Level.SHARED, Level.RUNTIME)
#: Other factors shown of a stream, those with the most tickets: there may be thousands.
_MOST_OTHERS = 20


class Explainer:
    """Explains the queries of a pond."""

    def __init__(self, components: Components, entities: Entities, metrics: Metrics) -> None:
        self._components = components
        self._entities = entities
        self._metrics = metrics

    def explain_text(
        self,
        text: str,
        level: str,
        text_epoch: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> str:
        """The plan a query would have that is registered now.

        Args:
            text: The query.
            level: A level of EXPLAIN.
            text_epoch: As of `Registrar.bind`.
            options: The options it would have, checked; of EXPLAIN APPROXIMATION alone.
        """
        registrar = self._components.registrar
        bound = registrar.bind(text, text_epoch)
        if level == Level.APPROXIMATION:
            version = self._components.log.version
            reduced = with_static_reduction(
                version, lambda: bound, options or {}, registrar.model_precision
            )
            return self._describe_approximation(bound, options=reduced)
        if bound.to_stream is None or level not in _COMPUTED:
            return self._explain_bound(bound, level)
        return self._changes(bound, level)

    def explain_object(self, found: Definition | None, level: str) -> str | None:
        """The plan of a query, a derived stream or a derived relation; None for all else."""
        if isinstance(found, QueryDef):
            return self._of_query(found, level)
        if isinstance(found, StreamDef) and found.derived is not None:
            bound = self._components.registrar.bind_registered(
                found.derived.text, found.derived.text_epoch
            )
            if level == Level.APPROXIMATION:
                return self._describe_approximation(bound)
            if level not in _COMPUTED:
                return self._explain_bound(bound, level)
            derivation = self._components.derivations.of(self._components.log.version, found)
            own = (derivation.plan, level, found.name, derivation.sharing_key)
            return self._explain_plan(*own, found)
        if isinstance(found, RelationDef) and found.view is not None:
            return self.explain_text(found.view, level, found.text_epoch)
        return None

    def _explain_bound(self, bound: BoundQuery, level: str) -> str:
        """What a query's text asks for; its operators with the notes there are about them."""
        text = explain(bound, level, self._describe_matcher)
        if level != "logical":
            return text
        notes = find_notes(bound, self._components.log.version.find)
        return "\n".join([text, *(f"note: {note}" for note in notes)])

    def _of_query(self, definition: QueryDef, level: str) -> str:
        components = self._components
        version = components.log.version
        bound = components.registrar.bind_registered(definition.text, definition.text_epoch)
        facts: dict[str, Any] = {"query": definition.name}
        if bound.functions and level == Level.RUNTIME:
            facts["functions"] = components.function_registry.costs(bound.functions)
        if level == Level.APPROXIMATION:
            return self._describe_approximation(bound, definition)
        if level not in _COMPUTED:
            return self._explain_bound(bound, level)
        changes = self._describe_delivered(definition)
        if changes is not None:
            facts["changes"] = changes
        if bound.to_stream is not None:
            lines = [f"{name}: {value}" for name, value in facts.items()]
            return "\n".join([*lines, self._changes(bound, level, definition)])
        if level == Level.RUNTIME and definition.id in components.invoker.kept_answers.ids():
            facts["kept answer"] = components.invoker.kept_answers.of(definition.id).figures()
        join = JoinFacts(components.joins).of_query(version, definition.id, bound)
        if join is not None and level != "rewritten":
            facts["join"] = join
        if (bound.aggregates or bound.grouped) is not None and level == Level.RUNTIME:
            facts["aggregates"] = describe_totals(components, version, definition, bound)
        facts["leaves"] = self._leaves(version, definition, bound, level)
        text = explain(bound, level, self._describe_matcher, **facts)
        return text if changes is None else f"{text}\n{self._changes(bound, level, definition)}"

    def _describe_approximation(
        self,
        bound: BoundQuery,
        definition: QueryDef | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """What may be reduced of a query; of a reduced one also how exact its answer is now."""
        components, version = self._components, self._components.log.version
        options = options if definition is None else definition.options
        measured = ""
        if definition is not None and static_reduction(options).reads_less:
            measured = self._measure_precision(definition)
        models = components.registrar.model_precision
        return describe_approximation(version, bound, options, models, measured)

    def _measure_precision(self, definition: QueryDef) -> str:
        """How exact a reduced query's answer is now, beside the exact answer; empty: not known."""
        components = self._components
        try:
            prepared = components.registrar.prepare(definition)
            given = components.invoker.invoke(prepared)
            if not {Cause.SAMPLED, Cause.SHORTENED} & {one.cause for one in given.loss}:
                return "it was answered exactly now"
            if given.bounds is not None:
                return ""  # its rows are estimates: each has an interval instead
            whole = replace(prepared, tolerance=NO_TOLERANCE)
            exact = components.invoker.invoke(whole, given.as_of).table
        except MillpondError as error:
            return f"not now: {error.primary}"
        found = measure_precision(exact, given.table)
        return f"{describe_precision(found)}, of {count_text(exact.num_rows, 'row')} now"

    def _describe_matcher(self, leaf: StreamLeaf, factor: exp.Expr) -> str:
        """What matches a factor of a leaf's predicate as elements arrive."""
        stream = self._components.log.version.find(leaf.stream)
        assert isinstance(stream, StreamDef)
        return factorize(cast(exp.Expression, factor), stream.schema).served_by

    def _changes(self, bound: BoundQuery, level: str, query: QueryDef | None = None) -> str:
        """What computes a query's changes as its streams' heartbeats go on."""
        version, derivations = self._components.log.version, self._components.derivations
        if bound.preference is not None and bound.preference.budget is not None:
            return _describe_steps(version, bound)
        log = version.change_log(query.id) if query is not None else None
        if log is None:
            reduction = NO_REDUCTION if query is None else static_reduction(query.options)
            reduced = reduce_changes(bound, reduction)
            whole_or_reduced = bound if reduced is None else reduced.bound
            plan = derivations.plan_query(version, whole_or_reduced, query)
        else:
            plan = derivations.of(version, log).plan
        sharing_key = derivations.sharing_key_of(version, bound, query)
        name = "" if query is None else query.name
        return self._explain_plan(plan, level, name, sharing_key, log)

    def _explain_plan(
        self,
        plan: Plan,
        level: str,
        name: str,
        sharing_key: SharingKey,
        stream: StreamDef | None,
    ) -> str:
        """A plan's operators; of a running plan also the estimates and who shares each operator."""
        head = plan.to_stream or "changes"
        _, _, patience, _ = sharing_key
        waits = f"for expirations alone within {duration_text(patience)}, " if patience else ""
        lines = [f"{head} (incremental, at every heartbeat, {waits}strategy {plan.strategy})"]
        if plan.fallback:
            lines.append(f"  answered anew at every change: {plan.fallback}")
        others = self._plans(sharing_key) if name and level in (Level.SHARED, Level.RUNTIME) else {}
        plans = others if name in others else {name: plan, **others}
        shared = find_readers(plans) if others else {}
        purging = find_purge_intervals((p, (p.lazy_expiration,)) for p in plans.values())
        notes = _describe_lending(plans)
        for key, released in self._releases(plan).items():
            notes[key] = f"{notes[key]}, {released}" if key in notes else released
        if level == Level.RUNTIME:
            cost = f"≈ {plan.cost * 1e6:,.3g} µs/s more than runs without it"
            lines.append(f"  {cost}; {plan.basis}" if plan.basis else f"  {cost}")
            measured = {} if stream is None else self._list_work(stream)
            explained = plan.explain_estimates_among(shared, purging, notes, measured)
        else:
            explained = plan.explain_among(shared, purging, notes)
        return "\n".join([*lines, *(f"  {line}" for line in explained.split("\n"))])

    def _list_work(self, stream: StreamDef) -> dict[str, str]:
        """What the operators did and keep that compute a derivation's changes, by node key."""
        version = self._components.log.version
        maker = version.maker(stream)
        done = self._components.advancer.accounts.list_work(version, maker.id)
        kept = self._components.advancer.accounts.list_state(version, maker.id)
        rates = self._components.advancer.accounts.list_rates(version, maker.id)
        said = {key: [f"measured {rate:,.3g} changes/s"] for key, rate in rates.items()}
        for key, work in done.items():
            said.setdefault(key, []).append(describe_work(work))
        for key, state in kept.items():
            if state.rows:
                said.setdefault(key, []).append(describe_state(state))
        return {key: "; ".join(parts) for key, parts in said.items()}

    def _releases(self, plan: Plan) -> dict[str, str]:
        """What is said of the constraints that release rows of a plan's nodes, by node key."""
        version = self._components.log.version
        constraints = {
            name: self._components.derivations.constraints_of(version, stream)
            for name in plan.needs
            if isinstance(stream := version.find(name), StreamDef)
        }
        running = self._components.advancer.accounts.list_releases(version)
        found = {}
        for node in plan.nodes():
            rules = node.find_release_rules(constraints)
            figures = [f for f in running.get(node.key, ()) if f.rule in rules]
            if figures:
                found[node.key] = describe_releases(figures)
            elif rules:
                names = dict.fromkeys(f"{r.constraint.name} of {r.stream}" for r in rules)
                found[node.key] = f"released by {', '.join(names)}"
        return found

    def _plans(self, sharing_key: SharingKey) -> dict[str, Plan]:
        """The plans under one sharing key that compute changes now, by the names of their users."""
        return self._plans_by_sharing_key().get(sharing_key, {})

    def _plans_by_sharing_key(self) -> dict[SharingKey, dict[str, Plan]]:
        """All plans that compute changes now, by sharing key: only those under one key share."""
        version = self._components.log.version
        by_key: dict[SharingKey, dict[str, Plan]] = {}
        for stream in self._components.derivations.list_streams(version):
            with suppress(MillpondError):
                derivation = self._components.derivations.of(version, stream)
                plans = by_key.setdefault(derivation.sharing_key, {})
                plans[version.name_of(stream)] = derivation.plan
        return by_key

    def _describe_delivered(self, definition: QueryDef) -> str | None:
        """How many changes there are, up to when, and what is still to be taken in."""
        advancer = self._components.advancer
        with self._components.log.pin() as version:
            log = version.change_log(definition.id)
            if log is None:
                return None
            upto = format_instant(advancer.complete_upto(version, log))
            said = [f"{version.clock(log.id).next_seq} up to {upto}"]
            if behind := advancer.count_behind(version, log):
                said.append(f"{count_text(behind, 'element')} behind")
            if (step := advancer.running.get(version.maker(log).id)) is not None:
                said.append(str(step))
            return "; ".join(said)

    def explain_shared(self) -> str:
        """What all queries share: for each stream its modules and their load."""
        version = self._components.log.version
        lines = []
        for stream in version.named_streams():
            held = version.segments(stream.id)
            users = {
                query.id: query
                for query in version.queries.values()
                if any(leaf.stream_id == stream.id for leaf in version.leaves(query.id))
            }
            lines.append(f"stream {stream.name}")
            elements = count_text(version.count_accepted(stream), "element")
            lines.append(
                f"  {elements}, {self._rate(stream.id)}, {count_text(len(held), 'segment')}"
            )
            slots = version.slot_count(stream.id)
            queries = count_text(len(users), "query", "queries")
            lines.append(f"  query stem: {count_text(slots, 'predicate')} of {queries}")
            for name, passed in self._modules(stream.id).items():
                lines.append(f"    {name}: {passed}")
            ledger = self._components.stems.ledger(stream.id)
            if ledger is not None and ledger.routed:
                visited = f"{ledger.visited_per_tuple:.2f} modules visited per element"
                lines.append(f"    eddy: {self._components.stems.routing}, {visited}")
        lines += JoinFacts(self._components.joins).of_all(version)
        for entity in self._entities.every():
            if entity.id.startswith(("derivation:", "function:", "answer:", "relation:")):
                figures = ", ".join(
                    f"{key} {_format_value(v)}" for key, v in entity.figures.items()
                )
                lines.append(f"{entity.id.replace(':', ' ', 1)}: {figures}")
        for plans in self._plans_by_sharing_key().values():
            lines.append(explain_together(plans, _describe_lending(plans)))
        return "\n".join(lines)

    def draw_shared(self, query: QueryDef | None = None) -> dict[str, Any]:
        """The same as a graph, in which the part that serves a query is lit."""
        components, version = self._components, self._components.log.version
        plans = RunningPlans(version, components.derivations)
        return PlanGraph(version, self._entities.every(), components.joins, plans).draw(query)

    def _rate(self, stream_id: int) -> str:
        return f"{self._metrics.rate(stream_id):,.3g} elements/s"

    def _modules(self, stream_id: int) -> dict[str, str]:
        """The modules of a stream in the order elements visit them, with what they measured."""
        measured = self._components.stems.filters(stream_id)
        ledger = self._components.stems.ledger(stream_id)
        accounts = ledger.accounts if ledger is not None else {}
        order = [*(self._components.stems.order(stream_id) or ()), OTHERS]
        modules = {
            f"grouped filter on {name}" if name else "other factors": (
                f"{measured[name][0]:.1%} survive, {measured[name][1]:.3g} ns an element"
                + (f", {accounts[name].tickets:,.3g} tickets" if name in accounts else "")
            )
            for name in order
            if name in measured
        }
        others = [(a.tickets, name) for name, a in accounts.items() if name not in measured]
        for _, name in sorted(others, reverse=True)[:_MOST_OTHERS]:
            modules[f"other factor {restore_names(name)}"] = account_text(accounts[name])
        return modules

    def _measure_leaf(self, version: Version, ref: LeafRef) -> dict[str, Any]:
        """What is known of a leaf by watching it."""
        return {
            "rate": self._rate(ref.stream_id),
            "matches": self._count_matches(version, ref),
            "modules": self._modules(ref.stream_id),
        }

    def _count_matches(self, version: Version, ref: LeafRef) -> int | None:
        """How many of the kept elements match a leaf's predicate, where that is stored."""
        if ref.slot is None:
            return None
        total = 0
        for segment in version.segments(ref.stream_id):
            for matches in version.matches(segment.id):
                if matches.low <= ref.slot < matches.upto:
                    reader = self._components.invoker.files.matches(matches, ref.slot)
                    if reader is not None:
                        total += len(reader.rows(ref.slot, 0, segment.rows))
                        break
        return total

    def _leaves(
        self, version: Version, definition: QueryDef, bound: BoundQuery, level: str
    ) -> list[dict[str, Any]]:
        stems = self._components.stems
        leaves = []
        for leaf, ref in zip(bound.streams, version.leaves(definition.id), strict=True):
            segments = version.segments(ref.stream_id)
            matched = 0
            if ref.slot is not None:
                matched = sum(covered_upto(version, s.id) > ref.slot for s in segments)
            leaves.append(
                {
                    "stream": leaf.stream,
                    "slot": ref.slot,
                    "shared by": stems.users(ref.stream_id, ref.slot)
                    if ref.slot is not None
                    else 0,
                    "segments": len(segments),
                    "matched segments": matched,
                    **(self._measure_leaf(version, ref) if level == Level.RUNTIME else {}),
                }
            )
        return leaves


def _describe_lending(plans: Mapping[str, Plan]) -> dict[str, str]:
    """What nodes of plans that run together take of others, by node key."""
    roots = [plan.root for plan in plans.values()]
    return find_lending(list(list_in_order(roots)), find_needed_columns(roots)).describe()


def _format_value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _describe_steps(version: Version, bound: BoundQuery) -> str:
    """How a query with a budget is followed: in steps, the most promising regions first."""
    try:
        look = make_look(version, bound)
    except MillpondError as error:
        return f"changes are not followed in parts: {error.primary}"
    assert look is not None
    summaries = sorted({e.estimate.summary.name for e in look.preference.estimates})
    conditions = ["the Query SteM of its family"] if any(s.factors for s in look.streams) else []
    return "\n".join(
        [
            f"changes (in parts, in steps of {duration_text(look.line)},"
            f" {look.preference.budget} for each element)",
            f"  rank the regions of {', '.join(summaries)} that new elements bring, and that wait",
            *(f"  match what is looked at with {own}" for own in conditions),
            *(f"  {s.table}: stream {s.stream}, by {s.key}" for s in look.streams),
        ]
    )
