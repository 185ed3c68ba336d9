"""Options of sources that are numbers or words: what none may be is refused at once."""

from __future__ import annotations

import pytest

from millpond.errors import MillpondError
from millpond.service.definitions.access_policy import _OPTIONS
from millpond.service.definitions.source_options import (
    BYTES,
    CHOICES,
    SHARES,
    TIMES,
    WHOLE,
    find_fault,
)
from millpond.service.pond import Pond

#: Options that are no numbers: texts, and yes or no.
TEXTS = {
    "path", "recursivefilelookup", "pathglobfilter", "latestfirst", "header", "sep", "delimiter",
    "encoding", "charset", "quote", "escape", "comment", "multiline", "linesep", "nullvalue",
    "emptyvalue", "ignoreleadingwhitespace", "ignoretrailingwhitespace", "op_column", "mergeschema",
    "host", "database", "user", "password", "sslmode", "table", "start",
}  # fmt: skip
NEVER = ["-7", "NaN", "nan", "inf", "many", "1e30", "1" * 40, "", " ", "0x10", "1,5", "1 2"]
NEVER.append("\u0663")  # a digit of another alphabet


def test_every_option_a_client_may_give_is_checked_or_no_number() -> None:
    known = {*WHOLE, *BYTES, *SHARES, *TIMES}
    assert {option for options in _OPTIONS.values() for option in options} <= known | TEXTS
    assert not known & TEXTS


@pytest.mark.parametrize("option", sorted({*WHOLE, *BYTES, *SHARES, *TIMES, *CHOICES}))
def test_what_no_option_may_be(pond: Pond, option: str) -> None:
    wrong = [*NEVER, "0"] if WHOLE.get(option, (1, 1))[0] > 0 and option not in TIMES else NEVER
    for value in wrong:
        for kind in ("STREAM x", "RELATION x"):
            text = f"CREATE {kind} (n BIGINT) USING csv OPTIONS (path '/x', \"{option}\" '{value}')"
            with pytest.raises(MillpondError, match="CQL-214") as raised:
                pond.execute(text)
            assert option in raised.value.primary
            assert raised.value.detail
            assert raised.value.span is not None
    assert pond.streams() == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((option, str(bound)) for option, bounds in WHOLE.items() for bound in bounds),
        ("maxbytespertrigger", "1"),
        ("maxbytespertrigger", "64m"),
        ("maxfileage", "7d"),
        ("rampuptime", "0s"),
        ("samplingratio", "0.5"),
        ("samplingratio", "1"),
        ("header", "0"),
        *(
            (option, word)
            for option, words in CHOICES.items()
            for word in (*words, words[0].upper())
        ),
    ],
)
def test_what_they_may_be(option: str, value: str) -> None:
    assert find_fault(option, value) is None


@pytest.mark.parametrize("directory", ["", ", sourceArchiveDir ''"])
def test_an_archive_has_a_directory(pond: Pond, directory: str) -> None:
    options = f"path '/x', cleanSource 'ARCHIVE'{directory}"
    text = f"CREATE STREAM x (n BIGINT) USING csv OPTIONS ({options})"
    with pytest.raises(MillpondError, match="CQL-214") as raised:
        pond.execute(text)
    assert "sourceArchiveDir" in (raised.value.hint or "")
    assert pond.streams() == []
