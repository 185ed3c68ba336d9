"""By which columns of their streams plans can be divided into shards.

A shard is a dataflow of the same plans over the elements whose column has a hash of its own. If
what the operators bring together always comes from one shard (`Node.find_sharding`), and the answer
itself has such a column, so that equal rows come from one shard, the shards' changes are together
those of the whole: nothing of one shard cancels anything of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from millpond.operators.protocol.sharding import Sharding
from millpond.operators.source import LOG, LOGS, SEQUENCE, TIMESTAMP
from millpond.planner.dataflow.plan import Plan

_HIDDEN = (SEQUENCE, TIMESTAMP, LOG, LOGS)


def find_sharding(plans: Iterable[Plan]) -> dict[str, str] | None:
    """Find a column of each stream by which plans can be divided together.

    Returns:
        By stream, the column; None if there is no such division.
    """
    common: list[tuple[tuple[str, str], ...]] | None = None
    for plan in plans:
        own = _list_divisions(plan)
        common = own if common is None else [one for one in common if one in own]
        if not common:
            return None
    return dict(common[0]) if common else None


def _list_divisions(plan: Plan) -> list[tuple[tuple[str, str], ...]]:
    """List the divisions of one plan, in the order of the answer's columns."""
    known: dict[str, Sharding] = {}
    kinds: dict[tuple[str, str], str] = {}
    for node in plan.nodes():
        below = [known[i.key] for i in node.inputs]
        if node.feed is not None:
            kind, name, columns = node.feed
            if kind == "relation":
                known[node.key] = None
                continue
            found: dict[int, Mapping[str, str]] = {}
            for place, column in enumerate(columns):
                of = _find_kind(node.schema.field(place).type)
                if of and column not in _HIDDEN:
                    found[place] = {name: column}
                    kinds[name, column] = of
            known[node.key] = found
        elif all(one is None for one in below):
            known[node.key] = None
        else:
            known[node.key] = node.find_sharding(below)
    divisions = (tuple(sorted(one.items())) for one in (known[plan.root.key] or {}).values())
    # Equal values of two kinds, as a date and a timestamp, have different hashes.
    alike = (one for one in divisions if len({kinds[pair] for pair in one}) == 1)
    return [one for one in dict.fromkeys(alike) if {name for name, _ in one} == set(plan.needs)]


def _find_kind(type_: pa.DataType) -> str:
    """The kind of a type of which equal values are hashed alike; empty: there is no such hash."""
    if pa.types.is_signed_integer(type_):
        return "integer"
    if pa.types.is_string(type_) or pa.types.is_boolean(type_) or pa.types.is_date32(type_):
        return str(type_)
    return "timestamp" if pa.types.is_timestamp(type_) else ""
