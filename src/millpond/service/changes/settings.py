"""Settings of how changes are computed, for queries whose options do not say.

No setting alters a change or its instant (SEMANTICS, section 7, law 4). The two intervals are the
update-pattern paper's (2.1, 2.3.2, 5.4.2 and 6.1). Eager expiration produces changes as rows leave;
its interval is how late these changes may be. Lazy expiration drops expired rows from state that
nobody needs to read at once; its interval is how often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from millpond.catalog.option import Scope
from millpond.catalog.options import OPTIONS, list_options
from millpond.model.durations import duration_text, parse_duration

#: The settings, which are options of a query too.
NAMES = list_options(Scope.ENGINE, "changes")


@dataclass(frozen=True)
class ChangeSettings:
    """How changes are computed for a query whose options do not say.

    Attributes:
        strategy: How operators learn that rows have left. A query that `direct` cannot compute is
            computed by `aware`, unless its own options ask for `direct`.
        eager_expiration: How long changes that time alone brings may wait to be computed, in
            microseconds of the query's time.
        lazy_expiration: How often state drops what has expired, in microseconds of the query's
            time; None: when as much has expired as is alive.
    """

    strategy: str = OPTIONS["strategy"].default
    eager_expiration: int = parse_duration(OPTIONS["eager_expiration"].default)
    lazy_expiration: int | None = None

    def with_options(self, options: Mapping[str, Any]) -> ChangeSettings:
        """These settings, with those that checked options give replaced.

        >>> ChangeSettings(lazy_expiration=5).with_options({"eager_expiration": "2 SECONDS"})
        ChangeSettings(strategy='aware', eager_expiration=2000000, lazy_expiration=5)
        """
        found = {name: options[name] for name in NAMES if name in options}
        if "eager_expiration" in found:
            found["eager_expiration"] = parse_duration(found["eager_expiration"])
        if "lazy_expiration" in found:
            interval = found["lazy_expiration"]
            found["lazy_expiration"] = None if interval == "auto" else parse_duration(interval)
        return replace(self, **found)

    def format(self) -> dict[str, str]:
        """The settings as they are written."""
        lazy = self.lazy_expiration
        return {
            "strategy": self.strategy,
            "eager_expiration": duration_text(self.eager_expiration),
            "lazy_expiration": "auto" if lazy is None else duration_text(lazy),
        }
