"""What a relation's declaration demands of a change."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millpond.catalog.objects import RelationDef
from millpond.engine.scalars.residual_query import Residual
from millpond.errors import MillpondError
from millpond.model.schema import Field, Schema
from millpond.model.time import END
from millpond.service.ingest.relation_keys import check_keys
from millpond.state.relation_log import ends

RELATION = RelationDef(
    1, "r", Schema((Field("k", "BIGINT"), Field("v", "BIGINT", required=True))), ("k",)
)


def rows(*given: tuple[int, int | None, int | None, int, int]) -> pa.Table:
    """Rows of __rid, k, v, __from, __to."""
    columns = zip(*given, strict=True) if given else ((),) * 5
    names = ("__rid", "k", "v", "__from", "__to")
    table = {n: pa.array(c, pa.int64()) for n, c in zip(names, columns, strict=True)}
    return pa.table(table).select(["k", "v", "__rid", "__from", "__to"])


HELD = rows((0, 1, 5, 10, END))


@pytest.mark.parametrize(
    ("added", "ended"),
    [
        (rows((1, 2, 5, 10, END)), ends((), 0)),
        (rows((1, 1, 6, 20, END)), ends((0,), 20)),
        (rows((1, 1, 6, 5, 10)), ends((), 0)),
        (rows(), ends((0,), 20)),
    ],
    ids=["another key", "after the end", "before the start", "no row comes"],
)
def test_changes_that_keep_one_row_a_key(added: pa.Table, ended: pa.Table) -> None:
    check_keys(Residual(), RELATION, HELD, added, ended)


@pytest.mark.parametrize(
    ("added", "ended", "code", "said"),
    [
        (rows((1, 1, 6, 20, END)), ends((), 0), "POND-408", "already has a row with the key k = 1"),
        (rows((1, 1, 6, 20, END)), ends((0,), 21), "POND-408", "already has a row"),
        (rows((1, 2, 6, 20, 30), (2, 2, 7, 29, 40)), ends((), 0), "POND-408", "the key k = 2"),
        (rows((1, None, 6, 20, END)), ends((), 0), "POND-408", "has no primary key"),
        (rows((1, 2, None, 20, END)), ends((), 0), "CQL-205", 'a NULL in column "v"'),
    ],
    ids=["taken", "taken for an instant", "two that come", "no key", "not null"],
)
def test_changes_that_are_refused(added: pa.Table, ended: pa.Table, code: str, said: str) -> None:
    with pytest.raises(MillpondError, match=said) as caught:
        check_keys(Residual(), RELATION, HELD, added, ended)
    assert caught.value.code == code
