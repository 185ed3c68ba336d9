"""How the changes of queries are computed: what a query says, and what the engine does otherwise.

Of all of this no change depends, and no instant of one (SEMANTICS, section 7, law 4). The two
intervals are the update-pattern paper's (2.1, 2.3.2, 5.4.2 and 6.1): eager expiration is what gives
results as rows leave, and how often it is done for its own sake is how late they may be; lazy
expiration drops what has left from state that nobody needs to read at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from millpond.cql.parse.durations import duration_text, parse_duration
from millpond.service.queries.options import DEFAULTS, parse_option

#: The settings, which are options of a query too.
NAMES = ("strategy", "eager_expiration", "lazy_expiration")


@dataclass(frozen=True)
class ChangeSettings:
    """How changes are computed where a query does not say.

    Attributes:
        strategy: How operators learn that rows have left. A query `direct` is not one for is
            computed by `aware`, unless it asked for `direct` itself.
        eager_expiration: How long changes that time alone brings may wait to be computed, in
            microseconds of the query's time.
        lazy_expiration: How often state drops what has expired, in microseconds of the query's
            time; None: when as much has expired as is alive.
    """

    strategy: str = DEFAULTS["strategy"]
    eager_expiration: int = parse_duration(DEFAULTS["eager_expiration"])
    lazy_expiration: int | None = None

    def with_options(self, options: Mapping[str, Any]) -> ChangeSettings:
        """These settings where options, which have been checked, say nothing else.

        >>> ChangeSettings(lazy_expiration=5).with_options({"eager_expiration": "2 SECONDS"})
        ChangeSettings(strategy='aware', eager_expiration=2000000, lazy_expiration=5)
        """
        found = {name: options[name] for name in NAMES if name in options}
        if "eager_expiration" in found:
            found["eager_expiration"] = parse_duration(found["eager_expiration"])
        if "lazy_expiration" in found:
            said = found["lazy_expiration"]
            found["lazy_expiration"] = None if said == "auto" else parse_duration(said)
        return replace(self, **found)

    def format(self) -> dict[str, str]:
        """The settings as they are written."""
        lazy = self.lazy_expiration
        return {
            "strategy": self.strategy,
            "eager_expiration": duration_text(self.eager_expiration),
            "lazy_expiration": "auto" if lazy is None else duration_text(lazy),
        }


def with_settings(settings: ChangeSettings, given: Mapping[str, Any]) -> ChangeSettings:
    """The settings with others.

    Raises:
        MillpondError: CQL-214, a value one of them cannot have.

    >>> with_settings(ChangeSettings(), {"lazy_expiration": "1 hour"}).format()["lazy_expiration"]
    '1 HOUR'
    """
    checked = {name: parse_option("setting", name, value) for name, value in given.items()}
    return settings.with_options(checked)
