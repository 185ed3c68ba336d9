"""Hosts of sinks: a name allows a URL, and an address what is connected to."""

from __future__ import annotations

import pytest

from millpond.errors import MillpondError
from millpond.service.definitions.allowed_hosts import allows_address, allows_url, check_entry


@pytest.mark.parametrize(
    ("entry", "url", "is_allowed"),
    [
        ("hooks.example.org", "https://hooks.example.org/a", True),
        ("hooks.example.org", "https://Hooks.Example.Org./a", True),
        ("hooks.example.org", "http://hooks.example.org:80/", True),
        ("hooks.example.org", "https://hooks.example.org:8443/", False),
        ("hooks.example.org:8443", "https://hooks.example.org:8443/", True),
        ("hooks.example.org:8443", "https://hooks.example.org/", False),
        ("example.org", "https://hooks.example.org/", False),
        ("example.org", "https://example.org.evil.test/", False),
        ("10.1.0.0/16", "http://10.1.2.3/", True),
        ("10.1.0.0/16", "http://10.2.2.3/", False),
        ("10.1.0.0/16:9000", "http://10.1.2.3:9000/", True),
        ("[::1]:9000", "http://[::1]:9000/", True),
        ("127.0.0.1", "http://localhost/", False),
    ],
)
def test_a_url_is_allowed_by_its_host_and_port(entry: str, url: str, is_allowed: bool) -> None:
    assert allows_url(url, [check_entry(entry)]) == is_allowed
    assert not allows_url(url, [])


@pytest.mark.parametrize(
    ("address", "entries", "is_allowed"),
    [
        ("93.184.215.14", [], True),
        ("127.0.0.1", ["localhost"], False),
        ("169.254.169.254", ["hooks.example.org"], False),
        ("10.1.2.3", ["10.1.0.0/16"], True),
        ("10.1.2.3", ["10.1.0.0/16:81"], False),
        ("::ffff:127.0.0.1", [], False),
        ("::1", ["[::1]"], True),
        ("fe80::1%eth0", [], False),
        ("224.0.0.1", [], False),
        ("0.0.0.0", [], False),
        ("127.0.0.1", None, True),
    ],
)
def test_an_address_that_is_not_public_has_to_be_named(
    address: str, entries: list[str] | None, is_allowed: bool
) -> None:
    assert allows_address(address, 80, entries) == is_allowed


@pytest.mark.parametrize("entry", ["", "http://h", "h:0", "h:70000", "a b", "[h]", "h/8", "*.h"])
def test_what_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(MillpondError, match="CQL-214"):
        check_entry(entry)
