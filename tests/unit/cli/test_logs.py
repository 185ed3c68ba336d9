"""Lines of the log, as text and as JSON: what they are about, and nothing forged."""

from __future__ import annotations

import json
import logging
import re
import sys

import pytest
from typer.testing import CliRunner

from millpond.cli.logs import FIELDS, JsonLines, TextLines
from millpond.cli.main import app
from millpond.work import current_request


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("millpond.x", logging.WARNING, "f.py", 1, message, args, None)
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def test_a_line_of_text_says_when_how_bad_who_and_about_what() -> None:
    line = TextLines().format(record("%d rows", 3, stream="s", epoch=7))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING millpond\.x: 3 rows \(epoch=7 stream=s\)",
        line,
    )


def test_no_text_of_a_client_looks_like_a_line_of_its_own() -> None:
    forged = "nothing\n2026-01-01T00:00:00.000Z ERROR millpond.x: forged"
    lines = TextLines().format(record("%s", forged, query="q")).split("\n")
    assert lines[0].endswith("nothing (query=q)")
    assert [line[:4] for line in lines[1:]] == ["    "]


@pytest.mark.parametrize("field", FIELDS)
def test_a_json_line_has_each_field(field: str) -> None:
    line = json.loads(JsonLines().format(record("a\nb \ud800", **{field: "x"})))
    assert line.pop("at").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "millpond.x",
        "message": "a\nb ?",
        field: "x",
    }


def test_the_request_is_known_from_the_context_and_a_stack_is_told() -> None:
    token = current_request.set("r1")
    try:
        made = record("failed")
        try:
            raise ValueError("why")
        except ValueError:
            made.exc_info = sys.exc_info()
        line = json.loads(JsonLines().format(made))
        assert "(request=r1)" in TextLines().format(made).splitlines()[0]
    finally:
        current_request.reset(token)
    assert line["request"] == "r1"
    assert "ValueError: why" in line["stack"]


@pytest.mark.parametrize("flags", [["--log-format", "json"], ["--log-format=json"]], ids=" ".join)
def test_the_flags_of_the_log_stand_before_the_command_or_behind_it(flags: list[str]) -> None:
    forms = []
    for args in ([*flags, "config"], ["config", *flags]):
        ran = CliRunner().invoke(app, [*args, "--format", "json"])
        assert ran.exit_code == 0, ran.output
        forms.append(ran.output)
    assert forms[0] == forms[1]
    assert CliRunner().invoke(app, ["config", "--log-format"]).exit_code == 2
    assert CliRunner().invoke(app, ["config", "--log-format", "odd"]).exit_code == 2
