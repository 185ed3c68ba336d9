"""Chooses the form of an answer: JSON by default, NDJSON, Arrow or Parquet by `Accept`."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from millpond.api import encode
from millpond.confined.room import Room
from millpond.errors import MillpondError
from millpond.service.results import Answer

#: What the headers of an answer, and of a page of changes, say of its exactness.
PROMISE_HEADERS = {
    "Millpond-Exact": "Whether these are the rows the query means.",
    "Millpond-Loss": "If not, what was lost: JSON, as in an answer's `loss`.",
    "Millpond-Bounds": "Intervals of cells, where any can be given: JSON, as in `bounds`.",
}

#: What the headers of an answer say.
ANSWER_HEADERS = {
    "Millpond-As-Of": "The answer's instant.",
    "Millpond-Final": "Whether no element of that instant or before can come any more.",
    "Millpond-Epoch": "The epoch whose effects the answer shows.",
    "Millpond-Part": "Of an answer with a budget, which part it is: JSON, as in `part`.",
    "Millpond-Estimated": "The summaries whose estimates are among the values: JSON.",
    **PROMISE_HEADERS,
}


#: Large answers are encoded one at a time: one thread alone can make values of Python at a time, so
#: that in parallel they would need more memory and not come sooner.
ENCODING = Room(
    0,
    "too many large answers wait to be encoded",
    "Ask again in a second, or for fewer rows.",
    with_rows=True,
)

_ENCODERS = {
    encode.ARROW: encode.answer_arrow,
    encode.PARQUET: encode.answer_parquet,
    encode.NDJSON: encode.answer_ndjson,
}


def choose_form(accept: str | None, offered: Sequence[str]) -> str:
    """Choose the form of `offered` that an `Accept` header prefers; of equals the first.

    Raises:
        MillpondError: SERVE-709, the header accepts none of them.

    >>> choose_form("application/x-ndjson;q=0.5, */*;q=0.1", [encode.JSON, encode.NDJSON])
    'application/x-ndjson'
    """
    if not accept or accept == "*/*":
        return offered[0]
    best, best_weight = None, 0.0
    ranges = [_range(part) for part in accept.split(",")]
    for form in offered:
        fits = [(_exactness(kind, form), weight) for kind, weight in ranges]
        exactness, weight = max(fits)
        if exactness and weight > best_weight:
            best, best_weight = form, weight
    if best is None:
        raise MillpondError(
            "SERVE-709",
            f'nothing here is of the media type "{accept}"',
            hint=f"Accept {' or '.join(offered)}.",
        )
    return best


def answer_response(answer: Answer, form: str) -> Response:
    """An answer in one of its forms."""
    encode_answer = _ENCODERS.get(form, encode.answer_json)
    with ENCODING.hold(answer.table.nbytes):
        body = encode_answer(answer)
    return Response(body, headers=encode.answer_headers(answer), media_type=form)


def _range(part: str) -> tuple[str, float]:
    kind, *parameters = (piece.strip() for piece in part.split(";"))
    weight = 1.0
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                weight = float(parameter[2:])
            except ValueError:
                weight = 0.0
    return kind.lower(), weight


def _exactness(kind: str, form: str) -> int:
    """How exactly a media range names a form; 0 when it does not."""
    if kind == form:
        return 3
    if kind == f"{form.partition('/')[0]}/*":
        return 2
    return int(kind == "*/*")
