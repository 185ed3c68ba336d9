"""How exact are reduced answers by their memory, divided for precision and divided equally?

For a library of plans over two streams, `a` with many wide elements of few keys and `b` with few
narrow ones, the memory of the windows is from 2 % to 90 % of what they need (STREAM, CIDR 5.3).
Shown are the rows that are missing (false negatives) as predicted and as measured; no reduced plan
has wrong rows (false positives), which is measured too.

    make bench NAME=precision_by_memory
"""

from __future__ import annotations

import argparse
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from _harness import picture, show
from millpond.catalog.tolerance import Reduction
from millpond.planner.approximate.allocation import allocate, share_equally
from millpond.service.observe.explain_approximation import measure_precision
from millpond.service.pond import Pond
from millpond.service.queries.reductions import predict_bytes
from millpond.testing.local_runtime import open_local
from millpond.testing.manual_clock import ManualClock

WINDOW = "[RANGE 1 HOUR]"
LIBRARY = {
    "join": f"SELECT a.v, b.w FROM a {WINDOW}, b {WINDOW} WHERE a.k = b.k",
    "union all": f"SELECT v FROM a {WINDOW} UNION ALL SELECT w FROM b {WINDOW}",
    "distinct": f"SELECT DISTINCT k FROM a {WINDOW} UNION ALL SELECT w FROM b {WINDOW}",
    "selection": f"SELECT v FROM a {WINDOW} WHERE k < 500 UNION ALL SELECT w FROM b {WINDOW}",
    "intersection": f"SELECT k FROM a {WINDOW} INTERSECT SELECT k FROM b {WINDOW}",
    "semijoin": f"SELECT w FROM b {WINDOW} WHERE k IN (SELECT k FROM a {WINDOW})",
}
MEMORY = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.9)
LEAST = [0.001, 0.001]


def make_elements(seed: int, count: int, keys: int, width: int) -> list[dict[str, Any]]:
    chosen = random.Random(seed)
    return [
        {
            "ts": f"2024-01-01 00:{n * 50 // count:02}:00",
            "k": chosen.randrange(keys),
            "v": n,
            "w": chosen.randrange(10_000_000),
            "note": f"{chosen.random()}" * width,
        }
        for n in range(count)
    ]


def open_pond(directory: Path, many: int, few: int, keys: int) -> Pond:
    pond = open_local(directory / "store", clock=ManualClock())
    for name, count, width in (("a", many, 5), ("b", few, 0)):
        pond.execute(
            f"CREATE STREAM {name} (ts TIMESTAMP, k INTEGER, v INTEGER, w INTEGER, note STRING)"
            " TIMESTAMP BY ts"
        )
        pond.ingest(name, make_elements(ord(name), count, keys, width))
    pond.catch_up()
    return pond


def run(pond: Pond, name: str, text: str) -> list[list[object]]:
    components = pond._components
    pond.register(text, name.replace(" ", "_"), tolerate="sample 0.1 %", max_rows=10_000_000)
    prepared = components.registrar.prepare(components.registrar.find(name.replace(" ", "_")))
    version, exact = components.log.version, components.invoker.invoke(prepared).table
    needs = [
        predict_bytes(version, prepared.bound, n, leaf.window) or 0.0
        for n, leaf in enumerate(prepared.bound.streams)
    ]
    model = components.registrar.model_precision(version, prepared.bound)
    assert model is not None
    rows: list[list[object]] = []
    for part in MEMORY:
        granted = part * sum(needs)
        divided = allocate(model.predict, needs, LEAST, granted)
        assert divided is not None
        found: list[object] = [name, part]
        for shares in (divided, share_equally(needs, LEAST, granted)):
            reduction = Reduction.of_shares([max(100 * share, 0.1) for share in shares])
            given = components.invoker.invoke(replace(prepared, reduction=reduction))
            predicted, measured = model.predict(shares), measure_precision(exact, given.table)
            assert predicted is not None
            assert measured.wrong == predicted.wrong == 0
            found += [predicted.missing, measured.missing]
        rows.append([*found, " / ".join(f"{100 * s:.3g} %" for s in divided)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--many", type=int, default=60_000)
    parser.add_argument("--few", type=int, default=20_000)
    parser.add_argument("--keys", type=int, default=5_000)
    options = parser.parse_args()
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as directory:
        pond = open_pond(Path(directory), options.many, options.few, options.keys)
        for name, text in LIBRARY.items():
            rows += run(pond, name, text)
        pond.close()
    columns = ["plan", "memory", "predicted FN", "measured FN", "equally: predicted", "measured"]
    show("Precision by memory", [*columns, "shares"], rows)
    lines = {}
    for name in ("union all", "intersection", "semijoin"):
        own = [row for row in rows if row[0] == name]
        for place, label in ((3, name), (5, f"{name}, equal shares")):
            seen = [float(str(row[place])) for row in own]
            lines[label] = (MEMORY, [max(one, 1e-4) for one in seen])
    picture(
        "precision_by_memory",
        "Rows that are missing by memory",
        "memory, as a part of what the windows need",
        "share of the rows that is missing",
        lines,
    )


if __name__ == "__main__":
    main()
