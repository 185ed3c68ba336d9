"""DESCRIBE: the facts of each kind of object."""

from __future__ import annotations

import pytest

from millpond.service.pond import Pond

SCRIPT = """
CREATE STREAM s (ts TIMESTAMP, v INTEGER) TIMESTAMP BY ts DELAY 5 SECONDS IDLE AFTER '30 s'
  RETAIN INTERVAL 2 DAYS;
CREATE STREAM arrivals (a INT) RETAIN 7 ROWS;
CREATE STREAM d AS SELECT v FROM s;
CREATE NON RETROACTIVE RELATION r (k STRING PRIMARY KEY);
CREATE RELATION view AS SELECT v FROM d;
CREATE RELATION fed (k INT, PRIMARY KEY (k)) USING push OPTIONS (op_column 'op');
CREATE QUERY q WITH (weight = 2, tags = 'a, b') AS SELECT v FROM s;
"""
FACTS = {
    "s": {
        "kind": "stream",
        "timestamps": "ts",
        "delay": "5 seconds",
        "idle after": "30 seconds",
        "retain": "2 days",
        "source": "statements",
        "overload": "block",
        "read by": "q, d",
    },
    "arrivals": {"timestamps": "arrival", "retain": "7 rows"},
    "d": {"kind": "derived stream", "query": "SELECT v FROM s", "retain": "everything"},
    "r": {"kind": "relation", "primary key": "k", "updates": "non retroactive"},
    "view": {"kind": "derived relation", "query": "SELECT v FROM d"},
    "fed": {"kind": "relation", "source": "changes of fed$changes", "primary key": "k"},
    "s$rejects": {"kind": "stream that comes with another"},
    "system$actions": {"kind": "stream of the pond"},
    "q": {
        "kind": "query",
        "query": "SELECT v FROM s",
        "weight": "2",
        "tags": "a, b",
        "changes": "not asked for yet",
    },
}


@pytest.mark.parametrize("name", FACTS)
def test_the_facts_of(pond: Pond, name: str) -> None:
    pond.execute(SCRIPT)
    (described,) = pond.execute(f'DESCRIBE "{name}"')
    assert described.facts is not None
    assert described.facts.items() >= FACTS[name].items()


def test_a_stream_says_which_windows_need_more_than_its_retain(pond: Pond) -> None:
    pond.execute(SCRIPT)
    pond.execute("""
        CREATE QUERY short AS SELECT v FROM s [RANGE 1 DAY];
        CREATE QUERY exact AS SELECT v FROM s [RANGE 2 DAYS];
        CREATE QUERY long AS SELECT v FROM s [RANGE 3 DAYS];
        CREATE QUERY since AS SELECT v FROM s BEGIN '2026-01-01' END NOW;
        CREATE QUERY last AS SELECT a FROM arrivals [ROWS 3];
        CREATE QUERY timed AS SELECT a FROM arrivals [RANGE 3 DAYS];
    """)
    (s,) = pond.execute("DESCRIBE s")
    (arrivals,) = pond.execute("DESCRIBE arrivals")
    assert s.facts is not None
    assert arrivals.facts is not None
    assert s.facts["kept longer for"] == "q, long, since"
    assert arrivals.facts["kept longer for"] == "last"


def test_a_followed_query_says_so(pond: Pond) -> None:
    pond.execute(SCRIPT)
    pond.query("q").fetch()
    (described,) = pond.execute("DESCRIBE q")
    assert described.facts is not None
    assert described.facts["changes"] == "computed"
