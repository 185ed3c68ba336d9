"""The plans by which changes are computed, and their operators by the ids that people use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from millpond.catalog.objects import QueryDef, StreamDef
from millpond.errors import MillpondError
from millpond.operators.protocol.node import Node
from millpond.planner.dataflow.plan import Plan
from millpond.service.changes.derivations import Derivations
from millpond.state.version import Version


def name_operator(name: str, key: str) -> str:
    """The id of an operator's entity: its name, and what tells it from others of that name."""
    return f"operator:{name}.{key[:10]}"


@dataclass(frozen=True, eq=False)
class RunningPlan:
    """The plan of what is followed under one name.

    Attributes:
        name: Of the query, or of the derived stream.
        stream: What the changes are elements of; for queries of one shape, the log they share.
        query: The query; None for a derived stream.
        plan: The plan.
    """

    name: str
    stream: StreamDef
    query: QueryDef | None
    plan: Plan


class RunningPlans:
    """The plans of one version.

    Attributes:
        by_name: The plans, by the names of what is followed.
        operators: Their operators by id.
        readers: By an operator's id, the names of those that have it, in order.
    """

    def __init__(self, version: Version, derivations: Derivations) -> None:
        self.by_name = {found.name: found for found in _list_plans(version, derivations)}
        self.operators: dict[str, Node] = {}
        self.readers: dict[str, list[str]] = {}
        for found in self.by_name.values():
            for node in found.plan.nodes():
                id = name_operator(node.name, node.key)
                self.operators[id] = node
                self.readers.setdefault(id, []).append(found.name)

    def find(self, name: str) -> RunningPlan:
        """Find the plan of a query or a derived stream. Raises CQL-201."""
        if name in self.by_name:
            return self.by_name[name]
        raise MillpondError(
            "CQL-201",
            f'no plan of "{name}"',
            detail="Plans are of queries whose changes are computed, and of derived streams.",
            hint=f'FETCH "{name}" once, and its changes are computed from then on.',
        )

    def choose(self, names: Iterable[str] | None) -> list[RunningPlan]:
        """Choose the plans of some names; None: all. Raises CQL-201."""
        return list(self.by_name.values()) if names is None else [self.find(n) for n in names]

    def list_touched(self, keys: Iterable[str]) -> Iterator[RunningPlan]:
        """List the plans that have an operator of one of some logical keys."""
        wanted = set(keys)
        for found in self.by_name.values():
            own = {node.logical_key for node in found.plan.nodes()} | {found.plan.written}
            if own & wanted:
                yield found


def find_operators(version: Version, derivations: Derivations) -> dict[str, Node]:
    """Find the operators of all plans that are made, by id."""
    found: dict[str, Node] = {}
    for stream in derivations.list_streams(version):
        derivation = derivations.find_of(version, stream)
        if derivation is not None:
            found |= list_operators(derivation.plan)
    return found


def find_readers(version: Version, derivations: Derivations) -> dict[str, set[int]]:
    """Find, by an operator's id, the derived streams and change logs whose plans have it."""
    found: dict[str, set[int]] = {}
    for stream in derivations.list_streams(version):
        derivation = derivations.find_of(version, stream)
        if derivation is not None:
            for id in list_operators(derivation.plan):
                found.setdefault(id, set()).add(stream.id)
    return found


def list_operators(plan: Plan) -> Mapping[str, Node]:
    """The operators of one plan by id, inputs before the operators that read them."""
    return {name_operator(node.name, node.key): node for node in plan.nodes()}


def _list_plans(version: Version, derivations: Derivations) -> Iterator[RunningPlan]:
    for stream in version.streams.values():
        if stream.derived is None or stream.is_shared_log:
            continue
        derivation = derivations.find_of(version, stream)
        if derivation is not None:
            name = version.name_of(stream)
            yield RunningPlan(name, derivation.stream, version.query_of(stream), derivation.plan)
