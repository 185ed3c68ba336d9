"""Properties that are kept: computed when asked for, by threads that do not wait for each other."""

from __future__ import annotations

import ast
import threading
from dataclasses import dataclass, field
from pathlib import Path

from millpond.model.kept_property import kept_property

SOURCES = Path(__file__).parents[3] / "src" / "millpond"


@dataclass(frozen=True)
class Counted:
    """Says how often it was computed."""

    calls: list[int] = field(default_factory=list)

    @kept_property
    def number(self) -> int:
        """Words about it."""
        self.calls.append(1)
        return 7


def test_it_is_computed_once_and_for_each_instance() -> None:
    one, other = Counted(), Counted()
    assert [one.number, one.number, other.number] == [7, 7, 7]
    assert (len(one.calls), len(other.calls)) == (1, 1)
    assert Counted.number.__doc__ == "Words about it."


@dataclass(frozen=True)
class Left:
    """Asks its input once both threads are at it."""

    both: threading.Barrier
    input: Right | None = None

    @kept_property
    def key(self) -> str:
        if self.input is None:
            return "left"
        self.both.wait(10)
        return f"left of {self.input.key}"


@dataclass(frozen=True)
class Right:
    """The same as another class."""

    both: threading.Barrier
    input: Left | None = None

    @kept_property
    def key(self) -> str:
        if self.input is None:
            return "right"
        self.both.wait(10)
        return f"right of {self.input.key}"


def test_threads_whose_properties_ask_each_other_of_others_end() -> None:
    both = threading.Barrier(2)
    asked = Left(both, Right(both)), Right(both, Left(both))
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda one=one: found.append(one.key), daemon=True) for one in asked
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(found) == ["left of right", "right of left"]


@dataclass(frozen=True)
class Together:
    """Computed by both threads at once."""

    both: threading.Barrier

    @kept_property
    def found(self) -> list[int]:
        self.both.wait(10)
        return []


def test_threads_that_compute_at_once_get_the_same() -> None:
    one = Together(threading.Barrier(2))
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(one.found)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    first, second = found
    assert first is second is one.found


def test_nobody_keeps_properties_in_another_way() -> None:
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "functools":
                assert "cached_property" not in {name.name for name in node.names}, path
