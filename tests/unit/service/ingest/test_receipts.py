"""Receipts of several parts are one; fingerprints tell rows apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millpond.engine.admission.admit import AdmittedRows
from millpond.service.ingest.receipts import add_to_receipt, fingerprint_of


def admitted(elements: int, rejects: list[int]) -> AdmittedRows:
    reasons = pa.table({"reason": pa.array([f"r{row}" for row in rejects], pa.string())})
    return AdmittedRows(pa.table({"v": range(elements)}), reasons, np.array(rejects, np.int64))


def test_positions_count_over_all_parts_and_a_hundred_rejects_are_shown() -> None:
    receipt: dict[str, Any] = {"accepted": 0, "rejected": 0, "rejects": [], "shed": 0}
    add_to_receipt(receipt, admitted(3, [1]), 0)
    add_to_receipt(receipt, admitted(2, [0, 2]), 4)
    assert (receipt["accepted"], receipt["rejected"]) == (5, 3)
    assert [(one["row"], one["reason"]) for one in receipt["rejects"]] == [
        (1, "r1"),
        (4, "r0"),
        (6, "r2"),
    ]
    add_to_receipt(receipt, admitted(0, list(range(200))), 8)
    assert (receipt["rejected"], len(receipt["rejects"])) == (203, 100)


def test_fingerprints_are_of_names_types_and_values_not_of_chunks() -> None:
    rows = pa.table({"v": [1, 2]})
    cut = pa.concat_tables([rows.slice(0, 1), rows.slice(1)])
    assert fingerprint_of(cut) == fingerprint_of(rows)
    others = [
        pa.table({"v": [1, 3]}),
        pa.table({"w": [1, 2]}),
        pa.table({"v": pa.array([1, 2], pa.int32())}),
    ]
    assert len({fingerprint_of(table) for table in (rows, *others)}) == 4
