"""A caller: who sends a request, in which role, and what the caller is granted."""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass
from enum import IntEnum

from millpond.catalog.objects import fold_name, is_reserved
from millpond.errors import MillpondError
from millpond.planner.resolve.inner_streams import PREFIX


class Role(IntEnum):
    """What a caller may do; a greater role may do all that a smaller one may."""

    READER = 1
    WRITER = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """The role as people write it."""
        return self.name.lower()


@dataclass(frozen=True)
class Quotas:
    """What one caller may use; None: as much as the server allows to all.

    Attributes:
        queries: How many queries the owner may have.
        followed: Of how many of these the changes may be computed.
        kept_changes: How many changes of each query are kept at most.
        running: How many requests of the owner may be under way, open feeds among them.
        rate: How many requests a second the token may send, on average.
        rows: How many rows an answer may have.
        seconds: How long a request may take.
    """

    queries: int | None = None
    followed: int | None = None
    kept_changes: int | None = None
    running: int | None = None
    rate: float | None = None
    rows: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Caller:
    """Who sends a request.

    Attributes:
        id: The public part of the token; what logs name.
        owner: Whose queries the caller's are; empty: nobody's.
        role: What the caller may do.
        streams: The streams and relations the caller is granted, by name; a `*` at the end of a
            name stands for any rest.
        quotas: What the caller may use.
        ends_at: When the token ends, in seconds since 1970 UTC, if the token itself says it.
    """

    id: str
    owner: str
    role: Role
    streams: tuple[str, ...] = ()
    quotas: Quotas = Quotas()
    ends_at: float | None = None

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    def is_granted(self, name: str) -> bool:
        """Whether the caller may read the stream or relation of a name.

        Pseudo-streams and the streams of the system tell about everybody: they are the admin's.
        """
        if self.is_admin:
            return True
        folded = fold_name(name)
        if is_reserved(folded) or folded.startswith(PREFIX):
            return False
        return any(_fits(folded, pattern) for pattern in self.streams)


#: Whoever calls a server that has no tokens, or bears its one token.
EVERYBODY = Caller("", "", Role.ADMIN)

_current: ContextVar[Caller | None] = ContextVar("caller", default=None)


def current_caller() -> Caller:
    """The caller of the request this thread works for. Raises SERVE-706 if there is none."""
    caller = _current.get()
    if caller is None:
        raise MillpondError("SERVE-706", "nobody is known to have sent the request")
    return caller


def caller_or_everybody() -> Caller:
    """The caller; everybody, where calls need no token."""
    return _current.get() or EVERYBODY


def begin_call(caller: Caller) -> Token[Caller | None]:
    """Let everything this context does from now on be work for a caller."""
    return _current.set(caller)


def finish_call(token: Token[Caller | None]) -> None:
    """Undo `begin_call`."""
    _current.reset(token)


def _fits(name: str, pattern: str) -> bool:
    """Whether a pattern stands for a name.

    >>> _fits("orders_eu", "orders*"), _fits("orders", "order"), _fits("x", "*")
    (True, False, True)
    """
    folded = fold_name(pattern)
    return name == folded or (folded.endswith("*") and name.startswith(folded[:-1]))
