"""Elements through N filters in one flow of Pathway; the numbers of what matches are kept.

As its documentation advises for speed, conditions are expressions of its own and no Python
functions, so that its engine in Rust evaluates them, and the input is static. One worker runs:
`table_from_pandas` gives all rows to one, so seconds of the processor are to be compared and not
those of the clock. Each filter selects the number of the element and of the query; all of them
are one `concat_reindex`, which is written to one file of JSON lines: a Python callback for each
match would be slower.

Pathway has joins: `elements.join(queries, elements.a == queries.k)` is one index over all
equalities. It is measured as well (`join`), though it is one query over a table of constants, and
not N filters.

    python pathway_matching.py filters|join ranges|equalities ELEMENTS CONSTANTS
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import time

import numpy as np
import pandas as pd
import pathway as pw


def main(way: str, kind: str, elements: str, constants: str) -> None:
    logging.disable(logging.CRITICAL)
    columns = "abcde" if kind == "ranges" else "a"
    table = np.fromfile(elements, np.int32).reshape(-1, len(columns))
    frame = pd.DataFrame(table.astype(np.int64), columns=list(columns))
    frame["number"] = np.arange(len(frame))
    bounds = np.fromfile(constants, np.int32).reshape(
        -1, len(columns), 2 if kind == "ranges" else 1
    )
    given = pw.debug.table_from_pandas(frame)
    if way == "join":
        asked = pw.debug.table_from_pandas(
            pd.DataFrame({"k": bounds[:, 0, 0].astype(np.int64), "query": np.arange(len(bounds))})
        )
        found = given.join(asked, given.a == asked.k).select(given.number, asked.query)
    else:
        parts = []
        for query, wanted in enumerate(bounds.tolist()):
            if kind == "ranges":
                condition = True
                for column, (low, high) in zip(columns, wanted, strict=True):
                    one = (given[column] >= low) & (given[column] <= high)
                    condition = one if condition is True else condition & one
            else:
                condition = given.a == wanted[0][0]
            parts.append(given.filter(condition).select(pw.this.number, query=query))
        found = parts[0].concat_reindex(*parts[1:]) if len(parts) > 1 else parts[0]
    handle, path = tempfile.mkstemp(suffix=".jsonl")
    os.close(handle)
    pw.io.jsonlines.write(found, path)
    begun, processor = time.perf_counter(), time.process_time()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    took, used = time.perf_counter() - begun, time.process_time() - processor
    matches = total = 0
    with open(path) as lines:
        for line in lines:
            matches += 1
            total += json.loads(line)["number"]
    os.unlink(path)
    print(
        json.dumps(
            {
                "seconds": took,
                "processor": used,
                "rows": len(frame),
                "matches": matches,
                "sum": total,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
