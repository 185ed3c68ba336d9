"""Completes words of CQL and names of the pond in the shell."""

from __future__ import annotations

import re
from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from millpond.api.surface import Surface
from millpond.cql.parse.keywords import KEYWORDS
from millpond.cql.print.printer import print_name
from millpond.errors import MillpondError

COMMANDS = {
    "\\q": "leave",
    "\\h": "this list",
    "\\d": "what there is; \\d NAME describes one",
    "\\watch": "\\watch N [TIMES] repeats the query before it every N seconds",
}

_WORD = re.compile(r"[\w$]+$")
#: Which names are offered after which word; elsewhere a name is offered once its first letter is
#: typed.
_MEANT = {
    **dict.fromkeys(("invoke", "fetch", "query"), ("query",)),
    **dict.fromkeys(("stream", "heartbeat"), ("stream",)),
    **dict.fromkeys(("relation", "update"), ("relation",)),
    **dict.fromkeys(("from", "join", "into"), ("stream", "relation")),
    "describe": ("stream", "relation", "query"),
}
_LAST_WORD = re.compile(r"(\w+)\s+$")


class CqlCompleter(Completer):
    """Completes keywords, in the case of their first letters, and names with their columns."""

    def __init__(self, pond: Surface) -> None:
        self._pond = pond
        self._names: list[tuple[str, str]] = []
        self._stale = True

    def forget(self) -> None:
        """Look the names up again at the next completion."""
        self._stale = True

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.lstrip().startswith("\\"):
            for command, meaning in COMMANDS.items():
                if command.startswith(before.strip()):
                    yield Completion(command, -len(before.strip()), display_meta=meaning)
            return
        match = _WORD.search(before)
        word = match[0] if match else ""
        behind = _LAST_WORD.search(before.removesuffix(word))
        expected_kinds = _MEANT.get(behind[1].lower() if behind else "")
        for name, kind in self.names():
            wanted = kind in expected_kinds if expected_kinds else word != ""
            if wanted and name.lower().startswith(word.lower()):
                yield Completion(print_name(name), -len(word), display_meta=kind)
        if not word:
            return
        for keyword in KEYWORDS:
            if keyword.startswith(word.upper()):
                yield Completion(keyword.lower() if word.islower() else keyword, -len(word))

    def names(self) -> list[tuple[str, str]]:
        """Return the names of the pond, each with the kind of thing it names."""
        if self._stale:
            try:
                self._names = sorted(set(self._look_up()))
            except MillpondError:
                # Without a server no name can be completed, but the user can type on.
                self._names = []
            self._stale = False
        return self._names

    def _look_up(self) -> Iterable[tuple[str, str]]:
        for stream in self._pond.streams():
            yield stream.name, "stream"
            yield from ((field.name, "column") for field in stream.schema.fields)
        for relation in self._pond.relations():
            yield relation.name, "relation"
            yield from ((field.name, "column") for field in relation.schema.fields)
        for query in self._pond.queries():
            yield query.name, "query"
