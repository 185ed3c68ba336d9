"""What followed parts carry comes back from one file as it was, query by query."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.promising.step import FamilyState
from millpond.engine.promising.waiting import REGION, Waiting
from millpond.runtime.advance_job import StoredRows
from millpond.runtime.look_state import read_state, write_state
from millpond.state.arrow_file import write_arrow
from millpond.state.segment_file import encode_elements

COUNT, AT = 6, 99


def make_state(with_panes: bool) -> FamilyState:
    """Six queries: the last but one has nothing to carry, the last nothing that waits."""
    random = np.random.default_rng(3)
    state = FamilyState.of(COUNT)
    rows = np.empty(40, REGION)
    for name in REGION.names or ():
        rows[name] = random.integers(0, 1_000, len(rows))
    rows["query"] = random.integers(0, 4, len(rows))
    state.waiting = rows
    state.clocks[:4], state.carried[:4] = random.random(4), random.random(4)
    state.fallen[[1, 5]] = 7, 3
    if with_panes:
        state.panes[2], state.panes[5] = pa.table({"n": [1, 2]}), pa.table({"m": [0.5]})
    return state


def keep(folder: Path, state: FamilyState, numbers: list[int]) -> list[StoredRows | None]:
    table, places = write_state(state, numbers, AT)
    file = write_arrow(folder / f"{len(numbers)}.arrow", encode_elements(table))
    kept: list[StoredRows | None] = [None] * COUNT
    for number, start, rows in places:
        kept[number] = (file.path.name, file.checksum, ((start, 77),), rows)
    return kept


def rows_of(state: FamilyState, number: int) -> list[tuple[float, ...]]:
    return np.sort(state.waiting[state.waiting["query"] == number]).tolist()


def sort(waiting: Waiting) -> list[tuple[float, ...]]:
    return np.sort(waiting).tolist()


@pytest.mark.parametrize("with_panes", [False, True])
@pytest.mark.parametrize("numbers", [list(range(COUNT)), [0, 3, 5], [5]])
def test_each_query_gets_its_own_back(tmp_path: Path, with_panes: bool, numbers: list[int]) -> None:
    before = make_state(with_panes)
    kept = keep(tmp_path, before, numbers)
    assert [n for n in range(COUNT) if kept[n] is not None] == [n for n in numbers if n != 4]
    after = read_state(kept, str(tmp_path), AT)
    for number in range(COUNT):
        is_kept = kept[number] is not None
        assert rows_of(after, number) == (rows_of(before, number) if is_kept else [])
        assert after.clocks[number] == (before.clocks[number] if is_kept else 0)
        assert after.carried[number] == (before.carried[number] if is_kept else 0)
        assert after.fallen[number] == (before.fallen[number] if is_kept else 0)
        assert after.panes[number] == (before.panes[number] if is_kept else None)


def test_queries_in_another_order_get_their_own(tmp_path: Path) -> None:
    before = make_state(True)
    kept = keep(tmp_path, before, list(range(COUNT)))
    after = read_state(kept[::-1], str(tmp_path), AT)
    for number in range(COUNT):
        own = before.waiting[before.waiting["query"] == number].copy()
        own["query"] = COUNT - 1 - number
        assert rows_of(after, COUNT - 1 - number) == sort(own)


def test_of_a_later_step_all_that_waits_counts_as_fallen_out(tmp_path: Path) -> None:
    before = make_state(False)
    after = read_state(keep(tmp_path, before, list(range(COUNT))), str(tmp_path), AT - 1)
    waited = np.bincount(before.waiting["query"], minlength=COUNT)
    assert after.fallen.tolist() == (before.fallen + waited).tolist()
    assert not len(after.waiting)


def test_a_file_of_one_query_alone_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Earlier versions wrote one a query, and numbered it by the changes there were."""
    before = make_state(False)
    kept = keep(tmp_path, before, [1])
    path, checksum, _, rows = kept[1] or ("", "", ((0, 0),), 0)
    after = read_state([None, (path, checksum, ((0, 55),), rows)], str(tmp_path), AT)
    assert rows_of(after, 1) == rows_of(before, 1)
