"""`millpond shell`: CQL at a prompt, or through a pipe.

A statement ends at its semicolon and may take many lines; a line that begins with a backslash is a
command of the shell. Errors are printed and the shell goes on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from millpond.api.surface import Surface
from millpond.cli.completion import COMMANDS, CqlCompleter
from millpond.cli.result_writers import TableWriter
from millpond.cli.split_statements import is_blank, split
from millpond.errors import MillpondError

_PROMPT, _CONTINUED = "millpond> ", "      ... "

HELP = """\
A statement ends with a semicolon. For example:
  SHOW STREAMS;
  CREATE QUERY late AS SELECT * FROM flights [RANGE 1 HOUR] WHERE delay > 60;
  INVOKE late;
Commands:"""


class Shell:
    """The shell without its prompt: takes lines, prints results.

    Attributes:
        failed: Whether a statement had an error.
        done: Whether `\\q` was said.
    """

    def __init__(
        self,
        pond: Surface,
        out: TextIO,
        err: TextIO,
        *,
        words: CqlCompleter | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pond = pond
        self._out = out
        self._err = err
        self._writer = TableWriter(out)
        self._words = words
        self._sleep = sleep
        self._rest = ""
        self._last: str | None = None
        self.failed = False
        self.done = False

    @property
    def is_within_statement(self) -> bool:
        """Whether a statement has begun and not ended."""
        return not is_blank(self._rest)

    def feed(self, line: str) -> None:
        """Takes a line."""
        if line.lstrip().startswith("\\") and not self._within_quotes():
            self._command(line.strip())
            return
        # "SELECT … \watch 2" watches the statement before it, semicolon or not.
        body, mark, arguments = line.rpartition("\\watch")
        if mark and not self._within_quotes(body):
            self._rest += body
            self._watch(arguments)
            return
        statements, self._rest = split(f"{self._rest}{line}\n")
        for statement in statements:
            self._run(statement)

    def finish(self) -> None:
        """Takes the end of the input: a last statement needs no semicolon."""
        if self.is_within_statement and not self.done:
            self._run(self._rest.strip())
        self._rest = ""

    def drop(self) -> None:
        """Forgets the statement that has begun."""
        self._rest = ""

    def _within_quotes(self, more: str = "") -> bool:
        # A semicolon put here would be hidden exactly if the text ends inside quotes or a comment.
        return not split(f"{self._rest}{more}\n x;")[0]

    def _run(self, text: str) -> bool:
        self._last = text
        try:
            for result in self._pond.execute(text):
                self._writer.write(result)
        except MillpondError as error:
            self._complain(error)
            return False
        finally:
            if self._words is not None and text.lower().startswith(("create", "drop")):
                self._words.forget()
        return True

    def _command(self, line: str) -> None:
        name, _, arguments = line.partition(" ")
        match name:
            case "\\q" | "\\quit":
                self.done = True
            case "\\h" | "\\help" | "\\?":
                print(HELP, file=self._out)
                for command, meaning in COMMANDS.items():
                    print(f"  {command:<8}{meaning}", file=self._out)
            case "\\d" if arguments.strip():
                self._run(f"DESCRIBE {arguments.strip().rstrip(';')}")
            case "\\d":
                for what in ("STREAMS", "RELATIONS", "QUERIES"):
                    self._run(f"SHOW {what}")
            case "\\watch":
                self._watch(arguments)
            case _:
                hint = "\\h lists the commands."
                self._complain(MillpondError("CQL-101", f'no command "{name}"', hint=hint))

    def _watch(self, arguments: str) -> None:
        pending = self._rest.strip() if self.is_within_statement else self._last
        self._rest = ""
        seconds, _, times = arguments.strip().rstrip(";").partition(" ")
        try:
            pause, left = float(seconds or 2), int(times) if times.strip() else None
            if not 0 <= pause < 86_400:
                raise ValueError
        except ValueError:
            hint = "Write the query first, then \\watch SECONDS [TIMES]."
            self._complain(MillpondError("CQL-103", "malformed \\watch", hint=hint))
            return
        if pending is None:
            hint = "Write the query first, then \\watch."
            self._complain(MillpondError("CQL-103", "there is nothing to watch", hint=hint))
            return
        try:
            # A statement that fails once would fail every time.
            while self._run(pending) and (left is None or left > 1):
                left = None if left is None else left - 1
                self._sleep(pause)
        except KeyboardInterrupt:
            print(file=self._out)

    def _complain(self, error: MillpondError) -> None:
        self.failed = True
        self._out.flush()
        print(error.render(), file=self._err, flush=True)


def talk(pond: Surface, place: str) -> bool:
    """Run statements from stdin until its end; return whether a piped statement failed."""
    if not sys.stdin.isatty():
        shell = Shell(pond, sys.stdout, sys.stderr)
        _feed(shell, sys.stdin)
        shell.finish()
        return shell.failed
    words = CqlCompleter(pond)
    shell = Shell(pond, sys.stdout, sys.stderr, words=words)
    print(f"Millpond at {place}. \\h helps, \\q leaves.")
    _feed(shell, _prompt(shell, words))
    return False


def _feed(shell: Shell, lines: Iterable[str]) -> None:
    for line in lines:
        shell.feed(line.rstrip("\n"))
        if shell.done:
            return


def _prompt(shell: Shell, words: CqlCompleter) -> Iterator[str]:
    session: PromptSession[str] = PromptSession(
        history=history(), completer=words, complete_in_thread=True, complete_while_typing=False
    )
    while True:
        text = _CONTINUED if shell.is_within_statement else _PROMPT
        try:
            yield session.prompt(HTML(f"<ansicyan>{text.replace('>', '&gt;')}</ansicyan>"))
        except KeyboardInterrupt:
            shell.drop()
        except EOFError:
            return


def history() -> History:
    """Open the lines typed in earlier sessions, kept in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(state) / "millpond" / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)
