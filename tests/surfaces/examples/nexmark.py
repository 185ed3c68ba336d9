"""NEXMark: queries over an auction site's streams, with DuckDB over the finished input as judge.

(Tucker, Tufte, Papadimos and Maier, 2002.) People register, open auctions, and bid. Each query is
CQL over the streams, and beside it the SQL that gives its answer at an instant over tables of all
that ever arrived: windows written out as conditions on `ts`, the instant as `$at`.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

MINUTE = 60_000_000

STREAMS = """
CREATE STREAM person (ts TIMESTAMP, id INTEGER, name STRING, city STRING, state STRING)
  TIMESTAMP BY ts;
CREATE STREAM auction (ts TIMESTAMP, id INTEGER, seller INTEGER, category INTEGER,
  initial INTEGER, expires TIMESTAMP) TIMESTAMP BY ts;
CREATE STREAM bid (ts TIMESTAMP, auction INTEGER, bidder INTEGER, price INTEGER) TIMESTAMP BY ts;
"""


@dataclass(frozen=True)
class Question:
    """A query: its number's meaning, its CQL, and the SQL of its answer at `$at`."""

    name: str
    about: str
    cql: str
    sql: str


QUESTIONS = (
    Question(
        "q0",
        "pass through",
        "SELECT auction, bidder, price, ts FROM bid",
        "SELECT auction, bidder, price, ts FROM bid WHERE ts <= $at",
    ),
    Question(
        "q1",
        "currency conversion",
        "SELECT auction, bidder, price * 908 // 1000 AS euros, ts FROM bid",
        "SELECT auction, bidder, price * 908 // 1000 AS euros, ts FROM bid WHERE ts <= $at",
    ),
    Question(
        "q2",
        "selection",
        "SELECT auction, price FROM bid WHERE auction % 7 = 0",
        "SELECT auction, price FROM bid WHERE auction % 7 = 0 AND ts <= $at",
    ),
    Question(
        "q3",
        "local item suggestion",
        "SELECT p.name, p.city, p.state, a.id FROM auction a, person p "
        "WHERE a.seller = p.id AND p.state IN ('OR', 'ID', 'CA') AND a.category = 3",
        "SELECT p.name, p.city, p.state, a.id FROM auction a, person p "
        "WHERE a.seller = p.id AND p.state IN ('OR', 'ID', 'CA') AND a.category = 3 "
        "AND a.ts <= $at AND p.ts <= $at",
    ),
    Question(
        "q4",
        "average closing price by category",
        "SELECT category, avg(final) AS price FROM ("
        "SELECT max(b.price) AS final, a.category AS category FROM auction a, bid b "
        "WHERE a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires GROUP BY a.id, a.category) q "
        "GROUP BY category",
        "SELECT category, avg(final) FROM ("
        "SELECT max(b.price) AS final, a.category FROM auction a, bid b WHERE a.id = b.auction "
        "AND b.ts BETWEEN a.ts AND a.expires AND a.ts <= $at AND b.ts <= $at "
        "GROUP BY a.id, a.category) q GROUP BY category",
    ),
    Question(
        "q5",
        "hot items of the last hour, every minute",
        "SELECT auction, n FROM (SELECT auction, count(*) AS n "
        "FROM bid [RANGE 60 MINUTES SLIDE 1 MINUTE] GROUP BY auction) c "
        "WHERE n >= (SELECT max(n) FROM (SELECT count(*) AS n "
        "FROM bid [RANGE 60 MINUTES SLIDE 1 MINUTE] GROUP BY auction) d)",
        "WITH c AS (SELECT auction, count(*) AS n FROM bid "
        "WHERE ts <= time_bucket(INTERVAL 1 MINUTE, $at) "
        "AND ts > time_bucket(INTERVAL 1 MINUTE, $at) - INTERVAL 60 MINUTES GROUP BY auction) "
        "SELECT auction, n FROM c WHERE n >= (SELECT max(n) FROM c)",
    ),
    Question(
        "q6",
        "average of a seller's last ten bids",
        "SELECT seller, avg(price) AS price FROM "
        "(SELECT b.auction, b.price FROM bid [PARTITION BY auction ROWS 10] b) l, auction a "
        "WHERE l.auction = a.id GROUP BY seller",
        "SELECT seller, avg(price) FROM (SELECT * FROM bid WHERE ts <= $at "
        "QUALIFY row_number() OVER (PARTITION BY auction ORDER BY ts DESC, seq DESC) <= 10) l, "
        "auction a WHERE l.auction = a.id AND a.ts <= $at GROUP BY seller",
    ),
    Question(
        "q7",
        "the highest bids of each ten minutes",
        "SELECT auction, price, bidder FROM bid [RANGE 10 MINUTES SLIDE 10 MINUTES] "
        "WHERE price = (SELECT max(price) FROM bid [RANGE 10 MINUTES SLIDE 10 MINUTES])",
        "WITH w AS (SELECT * FROM bid WHERE ts <= time_bucket(INTERVAL 10 MINUTES, $at) "
        "AND ts > time_bucket(INTERVAL 10 MINUTES, $at) - INTERVAL 10 MINUTES) "
        "SELECT auction, price, bidder FROM w WHERE price = (SELECT max(price) FROM w)",
    ),
    Question(
        "q8",
        "who registered and sold within the last half hour",
        "SELECT DISTINCT p.id, p.name "
        "FROM person [RANGE 30 MINUTES] p, auction [RANGE 30 MINUTES] a "
        "WHERE p.id = a.seller",
        "SELECT DISTINCT p.id, p.name FROM person p, auction a WHERE p.id = a.seller "
        "AND p.ts <= $at AND p.ts > $at - INTERVAL 30 MINUTES "
        "AND a.ts <= $at AND a.ts > $at - INTERVAL 30 MINUTES",
    ),
)


def site(events: int, seed: int = 1, start: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Rows of the three streams by name, each in the order of `ts` (µs).

    Of fifty events one is a person, three are auctions and the others bids, some of them at the
    same instant; people sell soon after they register, and bids come late as well as in time.
    """
    chance = Random(seed)
    rows: dict[str, list[dict[str, Any]]] = {"person": [], "auction": [], "bid": []}
    now = start
    for number in range(events):
        now += chance.choice([0, 0, 1, 2, 5]) * 1_000_000
        people, auctions = rows["person"], rows["auction"]
        if number % 50 == 0 or not people:
            people.append(
                {
                    "ts": now,
                    "id": len(people),
                    "name": f"person {chance.randrange(1000)}",
                    "city": chance.choice(["Portland", "Boise", "Fresno", "Reno"]),
                    "state": chance.choice(["OR", "ID", "CA", "NV", "WA"]),
                }
            )
        elif number % 50 in (1, 18, 35) or not auctions:
            recent = people[-min(len(people), 4) :]
            auctions.append(
                {
                    "ts": now,
                    "id": len(auctions),
                    "seller": chance.choice(recent)["id"],
                    "category": chance.randrange(5),
                    "initial": chance.randrange(1, 100),
                    "expires": now + chance.randrange(1, 40) * MINUTE,
                }
            )
        else:
            open_now = auctions[-min(len(auctions), 12) :]
            rows["bid"].append(
                {
                    "ts": now,
                    "auction": chance.choice(open_now)["id"],
                    "bidder": chance.choice(people)["id"],
                    "price": chance.randrange(1, 1_000),
                }
            )
    return rows
