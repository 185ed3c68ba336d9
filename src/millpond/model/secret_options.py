"""Secrets in the options of sources: which options hold one, and `secret('name')` instead of one.

A definition is kept as it was written, shown in lists and printed in errors. So what a source needs
to log in is named in it, and stands in a file of the operator's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Names of options whose values are secrets.
_NAMES = re.compile(
    r"(?i)passw|passphrase|pwd|secret|token|credential|jaas|private|(api|access|account).?key"
    r"|\bkey$|signature|authorization"
)
#: Values that hold a secret beside other things: a host with a user's password, and a parameter of
#: a URL, a member of JSON or a line of properties whose name ends like a secret's.
_VALUES = re.compile(
    r"(?i)(^|[/,;\s\"'])[^/@,;\s\"']+:[^/@\s]+@"
    r"|(passw\w*|passphrase|pwd|secret\w*|token|credential\w*|jaas[\w.]*|api_?key|sig(nature)?"
    r"|authorization)[\"']?\s*[=:]\s*\S"
)
_NAMED = re.compile(r"secret\('((?:[^']|'')+)'\)")


def name_of_secret(value: str) -> str | None:
    """The name that a value gives instead of a secret; None of any other value.

    >>> name_of_secret("secret('kafka')"), name_of_secret("kafka")
    ('kafka', None)
    """
    match = _NAMED.fullmatch(value)
    return match[1].replace("''", "'") if match else None


def find_literal_secret(options: Mapping[str, str]) -> str | None:
    """The first option whose value seems to be a secret, written out; None if there is none.

    >>> find_literal_secret({"path": "/data", "sasl.password": "x"})
    'sasl.password'
    >>> find_literal_secret({"url": "jdbc:x://host/db?user=a&password=b"})
    'url'
    >>> find_literal_secret({"config": '{"sasl.password": "x"}'})
    'config'
    >>> find_literal_secret({"bootstrap": "user:pass@host:9092"})
    'bootstrap'
    >>> find_literal_secret({"password": "secret('db')", "sep": ";"}) is None
    True
    """
    for name, value in options.items():
        if name_of_secret(value) is None and (_NAMES.search(name) or _VALUES.search(value)):
            return name
    return None
