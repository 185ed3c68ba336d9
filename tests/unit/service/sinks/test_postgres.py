"""What a sink to PostgreSQL decides without a server; with one: `tests/postgres`."""

from __future__ import annotations

import pytest

from millpond.catalog.sink_def import SinkDef
from millpond.service.sinks.postgres import PostgresSender, _pages
from millpond.service.sinks.sender import Delivery, DeliveryError

OPTIONS = {"host": "127.0.0.1", "port": 1, "database": "d", "user": "u", "table": "t"}


def sender(hosts: tuple[str, ...] | None = None) -> PostgresSender:
    sink = SinkDef(7, "s", "postgres", OPTIONS, hosts=hosts, key=("k",))
    return PostgresSender(sink, {**OPTIONS, "cursor_table": "c"})


def delivery() -> Delivery:
    return Delivery("3f2a9c.7.1", "s", "c", [], [])


def test_a_client_has_no_sinks_to_postgres() -> None:
    with pytest.raises(DeliveryError, match="clients may not") as stopped:
        sender(("h",)).send(delivery())
    assert stopped.value.is_final


def test_a_server_that_does_not_answer_is_tried_again() -> None:
    pytest.importorskip("psycopg2")
    with pytest.raises(DeliveryError, match="refused") as failed:
        sender().send(delivery())
    assert not failed.value.is_final


def test_who_closes_the_pond_does_not_wait() -> None:
    pytest.importorskip("psycopg2")
    closing = sender()
    closing.interrupt()
    with pytest.raises(DeliveryError, match="being closed"):
        closing.send(delivery())


def test_only_what_cannot_go_otherwise_is_final() -> None:
    psycopg2 = pytest.importorskip("psycopg2")

    class Said(psycopg2.Error):  # type: ignore[misc, name-defined]
        pgcode: str | None = None

    for code, final in (
        ("22003", True),
        ("23505", True),
        ("42703", True),
        ("42P01", False),
        ("42501", False),
        ("40001", False),
        ("57P01", False),
        (None, False),
    ):
        error = Said("no")
        error.pgcode = code
        explained = sender()._explain(error)
        assert explained is not None, code
        assert explained.is_final == final, code


def test_keys_are_asked_for_in_pages() -> None:
    pages = list(_pages([(n,) for n in range(2_500)]))
    assert [len(page[0]) for page in pages] == [1_000, 1_000, 500]
    assert list(_pages([(1, "a")])) == [(((1, "a"),),)]
