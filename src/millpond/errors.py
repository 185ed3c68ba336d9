"""Every error a user can see: a code, the place, what is wrong and what to do about it.

One type serves the log, the command line, Python and HTTP. `MillpondError.render` is the text a
person reads, `MillpondError.to_json` the one shape every HTTP error has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Span:
    """A half-open range of character offsets [start, end) in a statement's text."""

    start: int
    end: int

    def shift(self, by: int) -> Span:
        """The same range, `by` characters further on (for a statement inside a script)."""
        return Span(self.start + by, self.end + by)


#: What every code stands for; `docs/reference/errors.md` is generated from it.
CODES: dict[str, str] = {
    "CQL-101": "the text is not a statement",
    "CQL-102": "a token cannot be read",
    "CQL-103": "a clause is malformed",
    "CQL-104": "the text is too long, or a statement too large",
    "CQL-201": "no such stream, relation, query, summary or sink",
    "CQL-202": "no such column",
    "CQL-203": "a column name is ambiguous",
    "CQL-204": "a window is applied to a relation",
    "CQL-205": "an expression has the wrong type",
    "CQL-206": "an aggregate stands where none is allowed",
    "CQL-207": "a window has a size it cannot have",
    "CQL-208": "a name is taken",
    "CQL-209": "a column is declared twice",
    "CQL-210": "a type is unknown",
    "CQL-211": "the timestamp column cannot be one",
    "CQL-212": "no such function",
    "CQL-213": "a function's answer would change from call to call",
    "CQL-214": "an option is unknown or has a value it cannot have",
    "CQL-216": "an object is of the wrong kind for the statement",
    "CQL-217": "the number of values does not fit the columns",
    "CQL-218": "a window's clauses contradict each other",
    "CQL-219": "the query cannot be understood",
    "CQL-220": "a user-defined function does not take these arguments",
    "CQL-221": "a function cannot be defined like this",
    "CQL-222": "a derived stream needs a stream-valued query",
    "CQL-223": "a relation that is fed by changes needs a primary key",
    "CQL-224": "an estimate or a preference cannot be served",
    "CQL-301": "a clause is not available yet",
    "POND-401": "the object is in use",
    "POND-402": "the query is inactive or suspended",
    "POND-403": "the instant is not kept",
    "POND-404": "evaluation failed",
    "POND-405": "a limit was exceeded",
    "POND-406": "the stream has stopped",
    "POND-407": "the stream does not take rows from clients",
    "POND-408": "a key is taken",
    "POND-409": "the heartbeat cannot go back",
    "POND-410": "the pond is closed",
    "POND-411": "a user-defined function failed",
    "POND-412": "the cursor is not kept",
    "POND-413": "what was delivered does not change",
    "POND-414": "the server does not read or deliver this for clients",
    "POND-415": "Spark has ended",
    "POND-416": "the rows are not exact, and nobody said that they may be",
    "POND-417": "there is more to do than can be done",
    "POND-418": "the sink delivers no more",
    "POND-419": "Spark is starting",
    "DATA-501": "the rows cannot be read",
    "DATA-502": "the source cannot be read",
    "DATA-503": "an idempotency key was used for other rows",
    "DATA-504": "parts of a batch, or batches before it, are missing",
    "STORE-601": "the store is in use by another process",
    "STORE-602": "a file of the store is corrupt or missing",
    "STORE-603": "the store cannot be written",
    "STORE-604": "the directory is not a store of this version",
    "STORE-605": "the clock is behind what the store has seen",
    "STORE-606": "another driver has taken over the shared store",
    "STORE-607": "this driver waits while another leads the shared store",
    "SERVE-701": "the port is in use",
    "SERVE-702": "Java is missing or too old",
    "SERVE-703": "the request is malformed",
    "SERVE-704": "no such resource",
    "SERVE-705": "the server cannot be reached",
    "SERVE-706": "the token is missing or wrong",
    "SERVE-707": "the request is too large",
    "SERVE-708": "the media type is not spoken here",
    "SERVE-709": "the answer has no form the request accepts",
    "SERVE-710": "the server does not have the name the request asks for",
    "SERVE-711": "a page of another origin may not call the server",
    "SERVE-712": "the server cannot be started as it was told to",
    "SERVE-713": "the token does not allow it",
    "SERVE-714": "a quota of the token, or of its owner, is used up",
    "SERVE-715": "the server has no room for more from its clients, or the client is too slow",
    "INTERNAL-901": "Millpond itself failed",
}


#: Characters of a line from which on a snippet shows only what is around the place.
_LONG = 400
_BESIDE = 80


def _cut_around(line: str, first: int, last: int) -> tuple[str, int, int]:
    """A piece of a long line around [first, last), and where that is in the piece."""
    last = min(last, first + _LONG - 2 * _BESIDE)
    low, high = max(0, first - _BESIDE), min(len(line), last + _BESIDE)
    before, behind = "… " if low else "", " …" if high < len(line) else ""
    shift = low - len(before)
    return f"{before}{line[low:high]}{behind}", first - shift, last - shift


class MillpondError(Exception):
    """An error with a code, a primary message, and, where known, a place in the text.

    Attributes:
        code: A key of `CODES`.
        primary: Short, lower case, names the kind of object, quotes identifiers.
        detail: One or two sentences on why.
        hint: What to do.
        text: The statement's text, when `span` is set.
        span: The place in `text`.
    """

    def __init__(
        self,
        code: str,
        primary: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        text: str | None = None,
        span: Span | None = None,
    ) -> None:
        assert code in CODES, code
        super().__init__(primary)
        self.code = code
        self.primary = primary
        self.detail = detail
        self.hint = hint
        self.text = text
        self.span = span

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.code, self.primary, self.detail, self.hint, self.text, self.span))

    def at(self, text: str, span: Span | None) -> MillpondError:
        """This error with a place, unless it has one already."""
        if self.span is None and span is not None:
            self.text, self.span = text, span
        return self

    @property
    def line(self) -> int | None:
        """The 1-based line of the place."""
        if self.span is None or self.text is None:
            return None
        return self.text.count("\n", 0, self.span.start) + 1

    @property
    def column(self) -> int | None:
        """The 1-based column of the place."""
        if self.span is None or self.text is None:
            return None
        return self.span.start - (self.text.rfind("\n", 0, self.span.start) + 1) + 1

    def snippet(self) -> str | None:
        """The line of the place with a marker under it."""
        if self.span is None or self.text is None:
            return None
        start = self.text.rfind("\n", 0, self.span.start) + 1
        end = self.text.find("\n", start)
        line = self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")
        first = self.span.start - start
        last = max(first + 1, min(self.span.end - start, len(line)))
        if len(line) > _LONG:
            line, first, last = _cut_around(line, first, last)
        pad = "".join("\t" if c == "\t" else " " for c in line[:first])
        return f"  {line}\n  {pad}{'^' * (last - first)}"

    def render(self) -> str:
        """The text a person reads."""
        parts = [f"{self.code}: {self.primary}"]
        if snippet := self.snippet():
            parts.append(snippet)
        if self.detail:
            parts.append(f"Detail: {self.detail}")
        if self.hint:
            parts.append(f"Hint: {self.hint}")
        return "\n".join(parts)

    def __str__(self) -> str:
        return self.render()

    def to_json(self) -> dict[str, Any]:
        """The one shape of an error over HTTP."""
        place = None
        if self.span is not None and self.text is not None:
            place = {
                "line": self.line,
                "column": self.column,
                "start": self.span.start,
                "end": self.span.end,
                "snippet": self.snippet(),
            }
        return {
            "error": {
                "code": self.code,
                "message": self.primary,
                "detail": self.detail,
                "hint": self.hint,
                "place": place,
            }
        }


def _rebuild(
    code: str,
    primary: str,
    detail: str | None,
    hint: str | None,
    text: str | None,
    span: Span | None,
) -> MillpondError:
    return MillpondError(code, primary, detail=detail, hint=hint, text=text, span=span)
