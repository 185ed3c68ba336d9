"""What handles ask of a server; `path` is that of a standing query or of a derived stream."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.api import change_forms, decode, encode
from millpond.api.client.steps import (
    POLL_SECONDS,
    ClosedError,
    Give,
    HttpRequest,
    Items,
    Pause,
    Steps,
    check,
    get,
    given,
    in_json,
    repeat,
    send,
)
from millpond.errors import MillpondError
from millpond.model.loss import merge_losses
from millpond.model.time import Time, to_instant
from millpond.service import json_values
from millpond.service.results import Answer, Change, Changes
from millpond.service.series import Series, Step, instants_between, join_answers

#: How long a follower waits for a server that is away, and between two attempts, in seconds.
PATIENCE = 60.0
_PAUSE_SECONDS = 0.25


def fetch(path: str, after: str | int | None = None, limit: int | None = None) -> Steps[Changes]:
    """The changes after a cursor, or from the first on, as far as they are final.

    Those of a new definition of the query are given by themselves: read on after the cursor.
    """
    pages = [(yield from page(path, after, limit))]
    while pages[-1].position < pages[-1].newest and (limit is None or _length(pages) < limit):
        rest = None if limit is None else limit - _length(pages)
        following = yield from page(path, pages[-1].cursor, rest)
        if following.redefined is not None:
            break
        pages.append(following)
    table = pa.concat_tables([page.table for page in pages], promote_options="permissive")
    loss = merge_losses(loss for page in pages for loss in page.loss)
    return replace(pages[-1], table=table, loss=loss)


def subscribe(
    path: str, after: str | int | None = None, follow: bool = True, patience: float = PATIENCE
) -> Items[Change]:
    """The changes after a cursor, one by one, and with `follow` those to come, for ever.

    When the server goes away, this goes on where it was as soon as it is back; without `follow`,
    when the connection breaks.

    Args:
        after: The cursor; None for the first change, 'oldest' for the oldest kept.
        follow: Whether to wait for what is to come.
        patience: Seconds the server may be gone before that is an error.
    """
    gone_since: float | None = None
    while True:
        try:
            asked = _page_request(path, after, None, POLL_SECONDS if follow else 0.0)
            response = yield from repeat(asked)
            found = change_forms.from_arrow(check(response).content)
        except MillpondError as error:
            now = time.monotonic()
            gone_since = gone_since or now
            if not follow or not is_away(error) or now - gone_since > patience:
                raise
            yield Pause(_PAUSE_SECONDS)
            continue
        gone_since = None
        for change in found:
            yield Give(change)
        after = found.cursor
        if not follow and found.position >= found.newest:
            return


def page(
    path: str, after: str | int | None = None, limit: int | None = None, wait: float = 0.0
) -> Steps[Changes]:
    """As `fetch`, at most one page; an empty one is waited for `wait` seconds."""
    response = check((yield from repeat(_page_request(path, after, limit, wait))))
    return change_forms.from_arrow(response.content)


def invoke(
    path: str,
    at: Time | None = None,
    budget: str | None = None,
    after: str | None = None,
) -> Steps[Answer]:
    """The query's answer as of now or of a kept instant; with a budget, a part of it.

    Args:
        at: Microseconds since 1970 UTC, ISO text, a datetime, a date, or a time of NumPy or
            pandas.
        budget: '20 ms' or '5000 probes'.
        after: The cursor of an earlier part, to go on behind it.

    Raises:
        MillpondError: CQL-103 for anything else.
    """
    params = given(budget=budget, after=after)
    if at is not None:
        params["at"] = json_values.instant_text(to_instant(at)) or ""
    response = yield from send("GET", f"{path}/result", accept=encode.ARROW, params=params)
    return decode.arrow_answer(response.content)


def series(path: str, start: Time, end: Time, step: Step) -> Steps[Series]:
    """The query's answers at instants that are `step` apart, as one table.

    Each instant is answered by itself, as `invoke` does; those not final may show rows that
    came meanwhile.

    Args:
        start: The first instant, as `invoke` takes it.
        end: The last one, if a whole number of steps leads there.
        step: A length of time, also of NumPy and pandas, or `'30 minutes'`, or microseconds.

    Raises:
        MillpondError: CQL-103 for anything else, and for more than 10,000 instants.
    """
    instants = instants_between(start, end, step)
    answers = []
    for at in instants:
        answers.append((yield from invoke(path, at)))
    return join_answers(instants, answers)


def describe(path: str) -> Steps[dict[str, Any]]:
    """What the query is and how it does."""
    return (yield from get(path))


def plan(path: str, level: str = "logical") -> Steps[str]:
    """The plan of the query, or of what computes the stream's elements."""
    return str((yield from get(f"{path}/plan", level=level))["plan"])


def alter(path: str, /, **options: Any) -> Steps[None]:
    """Sets options of the query, or `params`, values of parameters of its text; `active=True` has a
    derived stream that has stopped go on."""
    yield from send("PATCH", path, in_json(options))


def unregister(path: str) -> Steps[None]:
    """Unregisters the query."""
    yield from send("DELETE", path)


def is_away(error: MillpondError) -> bool:
    """Whether an error says that the server is away, and may be back."""
    return error.code in ("SERVE-705", "POND-410") and not isinstance(error, ClosedError)


def _page_request(
    path: str, after: str | int | None, limit: int | None, wait: float
) -> HttpRequest:
    params = given(after=after, limit=limit, wait=wait or None)
    return HttpRequest("GET", f"{path}/changes", params, headers={"Accept": encode.ARROW})


def _length(pages: Sequence[Changes]) -> int:
    return sum(len(page) for page in pages)
