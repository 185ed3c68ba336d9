"""A query to register, as programs give it."""

from millpond.service.queries.given_registration import parts


def test_a_text_alone_has_neither_name_nor_options() -> None:
    assert parts("SELECT * FROM s") == ("SELECT * FROM s", None, {})
    assert parts(("SELECT * FROM s", "q", {"weight": 2})) == ("SELECT * FROM s", "q", {"weight": 2})
