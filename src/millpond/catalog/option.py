"""What an option is, and the kinds of things that have options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from millpond.catalog.option_values import OptionValues


class Scope(Enum):
    """The kinds of things that have options."""

    QUERY = "a standing query"
    STREAM = "a derived stream"
    INPUT = "a stream that is not derived"
    CLAUSE = "a stream that is not derived, by ALTER STREAM alone"
    SYSTEM = "the pond, by ALTER SYSTEM"
    ENGINE = "the engine: `millpond.open`, `millpond run` and `serve`, control tables"
    OPEN = "`millpond.open` alone"
    SERVER = "a server: `millpond serve`"
    SINK = "a sink, by CREATE SINK and ALTER SINK"


@dataclass(frozen=True)
class Option:
    """An option.

    Attributes:
        name: Its name, in lower case.
        scopes: The kinds of things that have the option.
        values: The values it can have.
        what: The option's purpose; empty where the values say it.
        default: Its value if it is not given; None: see `unless_given`.
        unless_given: The default in words, where it is not one value.
        type: The type of its values as the command line reads them.
        entities: The control tables that have the option among their settings: the first words of
            their ids.
        is_settled: Whether the option is fixed once a query's changes have been computed.
        allows_sharing: Whether the changes of a query that gives the option can be computed
            together with those of others: the option does not say how changes are computed.
        remark: A further remark for the reference.
    """

    name: str
    scopes: tuple[Scope, ...]
    values: OptionValues
    what: str
    default: Any = None
    unless_given: str = ""
    type: type = str
    entities: tuple[str, ...] = ()
    is_settled: bool = False
    allows_sharing: bool = False
    remark: str = ""

    @property
    def takes(self) -> str:
        """The values in words."""
        return self.values.takes

    @property
    def text(self) -> str:
        """The option's values and its purpose."""
        return f"{self.takes}: {self.what}" if self.what else self.takes
