"""The shell, its statements, its commands, its completion."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, InMemoryHistory

from millpond.cli import shell as shell_module
from millpond.cli.completion import CqlCompleter
from millpond.cli.shell import Shell
from millpond.cli.split_statements import is_blank, split
from millpond.errors import MillpondError

ASK = "SELECT carrier FROM flights LIMIT 1"


class Session:
    """A shell and what it has executed, printed and slept."""

    def __init__(self, pond, **options) -> None:
        self.executed: list[str] = []
        execute = pond.execute
        pond.execute = lambda text: self.executed.append(text) or execute(text)
        self.out, self.err = io.StringIO(), io.StringIO()
        self.slept: list[float] = []
        self.shell = Shell(pond, self.out, self.err, sleep=self.slept.append, **options)

    def say(self, *lines: str) -> str:
        """Feeds lines; what they print."""
        before = len(self.out.getvalue())
        for line in lines:
            self.shell.feed(line)
        return self.out.getvalue()[before:]


@pytest.fixture
def session(pond) -> Session:
    return Session(pond)


def test_a_statement_on_many_lines(session):
    assert session.say("SELECT carrier") == ""
    assert session.shell.is_within_statement
    assert "AA" in session.say("FROM flights -- not yet;", "LIMIT 1;")
    assert not session.shell.is_within_statement


def test_statements_on_one_line(session):
    session.say("SHOW QUERIES; SHOW QUERIES;")
    assert session.executed == ["SHOW QUERIES"] * 2


def test_errors_go_to_stderr_and_the_shell_goes_on(session):
    assert session.say("SELECT x FROM nope;") == ""
    assert session.err.getvalue().startswith("CQL-201")
    assert session.shell.failed
    assert "AA" in session.say(f"{ASK};")


def test_the_end_needs_no_semicolon(session):
    session.say(ASK)
    session.shell.finish()
    assert session.executed == [ASK]
    session.say("-- nothing")
    session.shell.finish()
    assert session.executed == [ASK]


def test_drop(session):
    session.say("SELECT 1")
    session.shell.drop()
    session.say(f"{ASK};")
    assert session.executed == [ASK]


def test_leaving_and_help(session):
    assert "\\watch N" in session.say("\\h")
    assert not session.shell.done
    session.say("\\q")
    assert session.shell.done


def test_describing(session):
    session.say("\\d", "\\d flights;")
    assert session.executed == [
        "SHOW STREAMS",
        "SHOW RELATIONS",
        "SHOW QUERIES",
        "DESCRIBE flights",
    ]


def test_an_unknown_command(session):
    session.say("\\x")
    assert 'no command "\\x"' in session.err.getvalue()


@pytest.mark.parametrize(
    "lines", [(f"{ASK} \\watch 0.5 3",), (ASK, "\\watch 0.5 3"), (f"{ASK};", "\\watch 0.5 2")]
)
def test_watch(session, lines):
    session.say(*lines)
    assert session.executed == [ASK] * 3
    assert set(session.slept) == {0.5}


def test_watch_ends_at_an_error_and_at_an_interrupt(session):
    session.say("SELECT x FROM nope \\watch 1")
    assert len(session.executed) == 1

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    session.shell._sleep = interrupt
    session.say(f"{ASK} \\watch")
    assert len(session.executed) == 2


@pytest.mark.parametrize(
    "line", ["\\watch", "\\watch x", f"{ASK} \\watch -1", f"{ASK} \\watch 1 x"]
)
def test_watch_of_nothing_or_malformed(session, line):
    session.say(line)
    assert session.err.getvalue().startswith("CQL-103")
    assert session.executed == []


def test_a_backslash_within_quotes_is_text(session):
    session.say("SELECT '", "\\q", "\\watch 1' FROM flights LIMIT 0;")
    assert not session.shell.done
    assert session.executed == ["SELECT '\n\\q\n\\watch 1' FROM flights LIMIT 0"]


def test_what_a_terminal_must_not_see(session):
    assert "\x1b" not in session.say("SELECT chr(27) || '[2J' AS x FROM flights LIMIT 1;")


@given(st.lists(st.sampled_from(["'", '"', "--", "/*", "*/", ";", "\n", "a", " "])))
def test_splitting_loses_nothing(parts):
    text = "".join(parts)
    statements, rest = split(text)
    assert all(text.find(s) >= 0 for s in statements)
    assert text.endswith(rest)
    assert not any(is_blank(s) for s in statements)
    # What comes later cannot change what was complete.
    assert split(text + "b")[0] == statements


def complete(words, text):
    return [c.text for c in words.get_completions(Document(text), CompleteEvent())]


def test_completion(pond):
    pond.register(ASK, "watch_delays")
    words = CqlCompleter(pond)
    assert complete(words, "SELECT * FROM fl") == ["flights"]
    assert complete(words, "INVOKE wat") == ["watch_delays"]
    pond.register(ASK, 'my "odd" name')
    words.forget()
    assert complete(words, "fetch ") == ['"my ""odd"" name"', "watch_delays"]
    assert complete(words, "SELECT * FROM ") == sorted(
        d.name for d in (*pond.streams(), *pond.relations())
    )
    assert complete(words, "SELECT ") == []
    assert complete(words, "select del") == ["delay", "delay", "delete"]
    assert complete(words, "SEL") == ["SELECT"]
    assert complete(words, "\\w") == ["\\watch"]
    assert complete(words, "") == []


def test_completion_forgets_after_a_declaration(pond):
    words = CqlCompleter(pond)
    session = Session(pond, words=words)
    assert complete(words, "INVOKE new") == []
    session.say(f"CREATE QUERY newer AS {ASK};")
    assert complete(words, "INVOKE new") == ["newer"]


def test_completion_without_a_server(pond, monkeypatch):
    def unreachable():
        raise MillpondError("SERVE-705", "gone")

    monkeypatch.setattr(pond, "streams", unreachable)
    assert complete(CqlCompleter(pond), "SEL") == ["SELECT"]


def test_history(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert isinstance(shell_module.history(), FileHistory)
    assert (tmp_path / "millpond" / "history").stat().st_mode & 0o777 == 0o600
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert isinstance(shell_module.history(), InMemoryHistory)
