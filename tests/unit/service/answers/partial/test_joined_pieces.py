"""Joins in parts with a huge budget: pairs are held piece by piece."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.answers.partial.test_partial_answers import JOINS, STREAMS, SUMMARIES, fill

from millpond.errors import MillpondError
from millpond.service.answers.partial import join, joined_pieces
from millpond.service.pond import Pond


@pytest.fixture
def filled(pond: Pond) -> Pond:
    pond.execute(STREAMS + SUMMARIES)
    fill(pond, 1, count=300)
    return pond


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize(("budget", "piece"), [("150 probes", 11), ("1000000 probes", 97)])
def test_pieces_are_the_same_answer_and_no_piece_is_larger(
    filled: Pond, monkeypatch: pytest.MonkeyPatch, name: str, budget: str, piece: int
) -> None:
    query = filled.register(JOINS[name], name)
    whole = query.invoke(budget=budget)
    held, join_rows = [], joined_pieces._join_rows

    def measure(found: Any, leaves: Any) -> Any:
        rows = join_rows(found, leaves)
        held.append((rows.count, *(table.num_rows for table in rows.slices)))
        return rows

    monkeypatch.setattr(joined_pieces, "_join_rows", measure)
    monkeypatch.setattr(join, "PIECE", piece)
    pieces = query.invoke(budget=budget)
    assert pieces.rows() == whole.rows()
    assert (pieces.part.share, pieces.part.probes) == (whole.part.share, whole.part.probes)
    assert max(max(sizes) for sizes in held) <= piece
    assert len(held) > 4


def test_the_limit_of_rows_is_of_the_whole_part(
    filled: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "PIECE", 11)
    query = filled.register(JOINS["first"], "first", max_rows=50)
    with pytest.raises(MillpondError, match="POND-405: the answer has more than 50 rows"):
        query.invoke(budget="1000000 probes")
    assert len(query.invoke(budget="5 probes")) <= 50
