"""Shared joins in SQLite: writes their rows, and reads them when a store is opened."""

from __future__ import annotations

import json

from millpond.state.database.database import Database, NotedStatements
from millpond.state.epoch.resolve_joins import ResolvedJoins, next_joins
from millpond.state.join_state import ArrangementRef, JoinCore, Joins, JoinUse, PairsRef


def write_joins(connection: NotedStatements, change: ResolvedJoins) -> None:
    """Write the rows of a change, deletions first."""
    many = connection.executemany
    for table, column, keys in (
        ("join_core", "id", list(change.drop_cores)),
        ("join_use", "query_id", [u.query_id for u in change.drop_uses]),
        ("pairs", "id", [f.id for f in change.drop_pairs]),
        ("arrangement", "path", [r.path for r in change.drop_arrangements]),
    ):
        if keys:
            many(f"DELETE FROM {table} WHERE {column} = ?", [(key,) for key in keys])
    many("INSERT OR REPLACE INTO join_core VALUES (?, ?, ?, ?)", map(_core_row, change.cores))
    many(
        "INSERT OR REPLACE INTO join_use VALUES (?, ?, ?, ?, ?)",
        [
            (u.query_id, u.core_id, json.dumps(u.leaves), json.dumps(u.spans), u.number)
            for u in change.uses
        ],
    )
    many(
        "INSERT INTO pairs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [tuple(vars(file).values()) for file in change.pairs],
    )
    many(
        "INSERT INTO arrangement VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [tuple(vars(run).values()) for run in change.arrangements],
    )


def _core_row(core: JoinCore) -> tuple[int, str, bytes, str]:
    body = {
        "stream_ids": core.stream_ids,
        "next_use": core.next_use,
        "upto": core.upto,
        "covered": core.covered,
        "epoch": core.epoch,
        "since": core.since,
    }
    return core.id, core.key, core.plan, json.dumps(body, separators=(",", ":"))


def read_joins(database: Database) -> Joins:
    """Read the shared joins as of the last committed epoch."""
    cores = []
    for id, key, plan, text in database.read("SELECT id, key, plan, body FROM join_core"):
        body = json.loads(text)
        cores.append(
            JoinCore(
                id,
                key,
                plan,
                tuple(body["stream_ids"]),
                body["next_use"],
                body["upto"],
                tuple(body["covered"]),
                body["epoch"],
                tuple((use, instant) for use, instant in body["since"]),
            )
        )
    return next_joins(
        Joins(),
        ResolvedJoins(
            cores=tuple(cores),
            uses=tuple(
                JoinUse(id, core_id, tuple(json.loads(leaves)), tuple(json.loads(spans)), number)
                for id, core_id, leaves, spans, number in database.read("SELECT * FROM join_use")
            ),
            pairs=tuple(PairsRef(*row) for row in database.read("SELECT * FROM pairs")),
            arrangements=tuple(
                ArrangementRef(*row)
                for row in database.read(
                    "SELECT segment_id, key, shard, shards, path, rows, checksum, bytes"
                    " FROM arrangement ORDER BY path"
                )
            ),
        ),
    )
