"""Refusals in the audit log: none goes untold, and a flood is a few lines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from millpond.api.rights.refusals import MINUTE, MOST_KINDS, MOST_WRITTEN, Refusals


class Log:
    """The lines that were written, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.waiting: list[tuple[float, Callable[[], None]]] = []
        self.refusals = Refusals(
            self.lines.append, lambda seconds, call: self.waiting.append((seconds, call))
        )

    def pass_a_minute(self) -> None:
        [(seconds, call)], self.waiting = self.waiting, []
        assert seconds == MINUTE
        call()

    @property
    def told(self) -> int:
        """How many refusals the lines tell of."""
        return sum(line.get("refusals", 1) for line in self.lines)


def line(
    at: str = "0", token: str | None = "5f0c", client: str = "a", **other: Any
) -> dict[str, Any]:
    return {
        "at": at,
        "owner": token and "alice",
        "role": token and "reader",
        "token": token,
        "client": client,
        "method": "GET",
        "path": "/v1/queries",
        "status": 429,
        "code": "SERVE-714",
        "statements": [],
        **other,
    }


def test_a_flood_is_counted_and_told_after_a_minute() -> None:
    log = Log()
    for at in range(5_000):
        log.refusals.note(line(str(at), client=f"10.0.0.{at % 9}"))
    assert log.lines == [line(str(at), client=f"10.0.0.{at % 9}") for at in range(MOST_WRITTEN)]
    log.pass_a_minute()
    [counted] = log.lines[MOST_WRITTEN:]
    assert counted == {
        **line("4999", client=f"10.0.0.{MOST_WRITTEN % 9}"),
        "since": str(MOST_WRITTEN),
        "refusals": 5_000 - MOST_WRITTEN,
    }
    log.refusals.note(line("5000"))  # another minute
    assert log.lines[-1] == line("5000")
    log.pass_a_minute()
    assert log.told == 5_001
    assert not log.waiting


def test_callers_and_reasons_are_told_apart() -> None:
    log = Log()
    kinds = [
        line(),
        line(token="77aa"),
        line(token=None, client="a"),
        line(token=None, client="b"),
        line(method="POST"),
        line(status=404, code="CQL-201"),
        line(code="SERVE-715"),
    ]
    for _ in range(100):
        for kind in kinds:
            log.refusals.note(dict(kind))
    log.pass_a_minute()
    counted = [one for one in log.lines if "refusals" in one]
    assert [one["refusals"] for one in counted] == [100 - MOST_WRITTEN] * len(kinds)
    assert log.told == 100 * len(kinds)


def test_a_count_has_a_path_or_statements_only_where_all_have_them() -> None:
    log = Log()
    for at in range(50):
        log.refusals.note(line(path=f"/v1/queries/{at}", statements=[f"DROP QUERY q{at}"]))
        log.refusals.note(line(token="77aa"))
    log.pass_a_minute()
    mixed, same = log.lines[-2:]
    assert (mixed["path"], mixed["statements"]) == (None, [])
    assert same["path"] == "/v1/queries"


def test_a_minute_has_a_bounded_number_of_lines_from_whatever_many_callers() -> None:
    log = Log()
    callers = 3 * MOST_KINDS
    for caller in range(callers):
        for _ in range(2 * MOST_WRITTEN):
            log.refusals.note(line(token=None, client=str(caller)))
    log.pass_a_minute()
    assert len(log.lines) <= MOST_KINDS * (MOST_WRITTEN + 1) + 1
    assert log.told == callers * 2 * MOST_WRITTEN
    assert log.lines[-1]["client"] is None


def test_threads_lose_none() -> None:
    log = Log()

    def flood() -> None:
        for _ in range(500):
            log.refusals.note(line())

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.pass_a_minute()
    assert log.told == 2_000
