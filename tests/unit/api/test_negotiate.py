"""Which form of an answer an `Accept` header gets."""

from __future__ import annotations

import pytest

from millpond.api.encode import ARROW, JSON, NDJSON
from millpond.api.negotiate import choose_form
from millpond.errors import MillpondError

OFFERED = [JSON, NDJSON, ARROW]


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, JSON),
        ("", JSON),
        ("*/*", JSON),
        (NDJSON, NDJSON),
        (NDJSON.upper(), NDJSON),
        ("application/*", JSON),
        (f"{ARROW};q=0.4, {NDJSON};q=0.6", NDJSON),
        (f"text/html, {ARROW};q=0.1", ARROW),
        # What names a form exactly decides about it, whatever a wider range says.
        (f"*/*, {JSON};q=0.2", NDJSON),
        (f"{JSON};q=0, */*", NDJSON),
        # A weight that is no number counts as none.
        (f"{JSON};q=much, {ARROW}", ARROW),
    ],
)
def test_the_form_that_is_preferred(accept: str | None, form: str) -> None:
    assert choose_form(accept, OFFERED) == form


@pytest.mark.parametrize("accept", ["text/html", f"{JSON};q=0", ","])
def test_an_accept_that_nothing_fits_is_refused(accept: str) -> None:
    with pytest.raises(MillpondError) as caught:
        choose_form(accept, [JSON])
    assert caught.value.code == "SERVE-709"
    assert caught.value.hint == f"Accept {JSON}."
