"""What is decided of relations that follow tables, without a server; with one: `tests/postgres`."""

from __future__ import annotations

import pytest

from millpond.catalog.objects import SourceDef
from millpond.errors import MillpondError
from millpond.runtime.postgres.connect import DatabaseServer
from millpond.service.definitions.access_policy import CLOSED, AccessPolicy
from millpond.service.definitions.replicas import _allowed
from millpond.testing.local_runtime import open_local


def test_a_database_has_one_slot_of_a_store(tmp_path) -> None:
    names = []
    for store in ("a", "b"):
        with open_local(tmp_path / store) as pond:
            for database in ("shop", "shop", "other"):
                server = DatabaseServer("db", 5432, database, "u")
                names.append(pond._components.replicas._name_slot(server))
    assert names[0] == names[1]
    assert len(set(names)) == 4
    assert all(len(name) < 60 for name in names)


def source(**options: str) -> SourceDef:
    return SourceDef("postgres", {"host": "db.example.org", "table": "t", **options})


def test_clients_follow_no_tables_unless_their_hosts_are_allowed() -> None:
    policy = AccessPolicy.of(formats=["postgres"], databases=["db.example.org", "10.0.0.0/8:5433"])
    confined = policy.confine(source(), "")
    assert confined is not None
    assert confined.within == "db.example.org 10.0.0.0/8:5433"
    policy.confine(source(host="10.1.2.3", port="5433"), "")
    for refused in (
        source(port="5433"),
        source(host="evil.example.org"),
        source(host="db.example.org,evil.example.org"),
        source(host="/run/postgresql"),
        source(host=""),
        source(port="x"),
        source(sslrootcert="/etc/passwd"),
    ):
        with pytest.raises(MillpondError, match="POND-414"):
            policy.confine(refused, "")
    for closed in (CLOSED, AccessPolicy.of(formats=["postgres"])):
        with pytest.raises(MillpondError, match="POND-414"):
            closed.confine(source(), "")


def test_the_address_counts_that_a_name_leads_to() -> None:
    policy = AccessPolicy.of(formats=["postgres"], databases=["db.example.org", "10.0.0.0/8"])
    confined = policy.confine(source(), "")
    assert confined is not None
    allows = _allowed(confined)
    assert allows is not None
    assert not allows("127.0.0.1", 5432)
    assert allows("10.1.2.3", 5432)
    assert _allowed(source()) is None
