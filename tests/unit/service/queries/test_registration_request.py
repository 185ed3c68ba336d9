"""What a client asks to register, by text or with its parts."""

import pytest

from millpond.errors import MillpondError
from millpond.service.queries.registration_request import RegistrationRequest

CREATED = "CREATE QUERY Tall WITH (weight = 3) AS SELECT * FROM s WHERE h > 2"


def test_a_bare_query_is_taken_as_it_is() -> None:
    request = RegistrationRequest.of("SELECT * FROM s", "q", {"weight": 2})
    assert (request.text, request.name, request.options) == ("SELECT * FROM s", "q", {"weight": 2})
    assert request.statement is None


def test_create_query_brings_its_own_name_and_options() -> None:
    request = RegistrationRequest.of(CREATED, None, {})
    assert request.text == "SELECT * FROM s WHERE h > 2"
    assert request.name is not None
    assert request.name.lower() == "tall"
    assert request.options == {"weight": 3}
    assert request.statement == CREATED
    assert request.name_span is not None


def test_name_and_options_beside_the_text_win() -> None:
    request = RegistrationRequest.of(CREATED, "other", {"weight": 5})
    assert request.name == "other"
    assert request.options == {"weight": 5}


@pytest.mark.parametrize(
    ("cql", "name", "code"),
    [
        (7, None, "CQL-103"),
        ("SELECT * FROM s", 7, "CQL-103"),
        ("SELECT * FROM s", "a\ud800", "CQL-102"),
        ("CREATE STREAM s (n BIGINT)", None, "CQL-216"),
    ],
)
def test_what_is_no_query_is_refused(cql: object, name: object, code: str) -> None:
    with pytest.raises(MillpondError) as refused:
        RegistrationRequest.of(cql, name, {})  # type: ignore[arg-type]
    assert refused.value.code == code
