"""What EXPLAIN shows of shared joins: SteMs, who shares them, pairs, and how the eddy routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.engine.eddy.eddy import Ledger
from millpond.engine.eddy.routing import Account
from millpond.engine.joins.plan import Operand
from millpond.engine.joins.projection import projection_of
from millpond.planner.bind.bound_query import BoundQuery
from millpond.service.maintenance.join_maintenance import JoinMaintenance
from millpond.service.results import count_text
from millpond.state.version import Version


class JoinFacts:
    """Tells what is shared."""

    def __init__(self, joins: JoinMaintenance) -> None:
        self._joins = joins

    def of_query(self, version: Version, query_id: int, bound: BoundQuery) -> dict[str, Any] | None:
        """What EXPLAIN SHARED says of a query's join; None if it shares none."""
        found = version.joins.core_of(query_id)
        if found is None:
            return None
        core, use = found
        plan = self._joins.plan(core)
        names = [
            query.name
            for id in version.joins.users(core.id).values()
            if (query := version.queries.get(id)) is not None
        ]
        stems = []
        for leaf, key in self._joins.keys(core):
            segments = version.segments(core.stream_ids[leaf])
            runs = [[r for r in version.joins.runs(s.id) if r.key == key.text] for s in segments]
            stems.append(
                {
                    f"SteM on {plan.streams[leaf]}": key.text,
                    "segments arranged": f"{sum(bool(own) for own in runs)} of {len(segments)}",
                    "used by joins": self._sharers(version, core.stream_ids[leaf], key.text),
                }
            )
        files = version.joins.pairs(core.id)
        failed = self._joins.failed.get(core.id)
        return {
            "streams": ", ".join(plan.streams),
            "shared by": ", ".join(names[:10]) + (" …" if len(names) > 10 else ""),
            "pairs stored": sum(file.pairs for file in files),
            "up to date": use.number < core.upto
            and core.covered == tuple(version.clock(id).next_seq for id in core.stream_ids),
            "answer": "columns of the pairs"
            if projection_of(bound, plan) is not None
            else "by DuckDB over the pairs",
            "SteMs": stems,
            "shards": self._joins.settings.shards,
            **eddy_facts(self._joins.ledgers.get(core.id)),
            "routing": self._joins.settings.routing,
            **({"left to invocation": failed} if failed is not None else {}),
        }

    def of_all(self, version: Version) -> Iterator[str]:
        """All shared joins and their SteMs, for the plan of all queries together."""
        stems: dict[tuple[str, str], int] = {}
        for core in version.joins.cores.values():
            plan = self._joins.plan(core)
            pairs = sum(file.pairs for file in version.joins.pairs(core.id))
            users = count_text(len(version.joins.users(core.id)), "query", "queries")
            yield f"join of {', '.join(plan.streams)}: {users}, {count_text(pairs, 'pair')} stored"
            for link in plan.links:
                left, right = link.left, link.right
                yield f"  {_format(left)} of {plan.streams[left.leaf]} {link.op} " + (
                    f"{_format(right)} of {plan.streams[right.leaf]}"
                )
            ledger = self._joins.ledgers.get(core.id)
            for name, text in (eddy_facts(ledger).get("eddy") or {}).items():
                yield f"  {name}: {text}"
            for leaf, key in self._joins.keys(core):
                name = plan.streams[leaf], key.text
                stems[name] = stems.get(name, 0) + 1
        for (stream, by), joins in stems.items():
            yield f"SteM on {stream} by {by}: {count_text(joins, 'join')}"

    def _sharers(self, version: Version, stream_id: int, key: str) -> int:
        return sum(
            any(core.stream_ids[leaf] == stream_id and own.text == key for leaf, own in keys)
            for core in version.joins.cores.values()
            for keys in [list(self._joins.keys(core))]
        )


def _format(operand: Operand) -> str:
    return f"{operand.value.sql}{f' {operand.shift:+}' if operand.shift else ''}"


def account_text(account: Account) -> str:
    """What EXPLAIN SHARED says of a module a morsel at a time is routed to."""
    waits = f", failed early and waits for {account.deterred} visits" if account.deterred else ""
    return (
        f"{account.passed:.1%} come back, {count_text(account.predicates, 'predicate')}, "
        f"{account.cost:,.0f} ns a tuple, {account.tickets:,.3g} tickets{waits}"
    )


def eddy_facts(ledger: Ledger | None) -> dict[str, Any]:
    """What EXPLAIN SHARED says of an eddy's modules."""
    if ledger is None or not ledger.accounts:
        return {}
    return {
        "eddy": {name: account_text(account) for name, account in ledger.accounts.items()},
        "modules visited per tuple": round(ledger.visited_per_tuple, 2),
    }
