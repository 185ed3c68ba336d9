"""What readers wait for, and what they are told when it does not come."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.catalog.objects import StreamDef
from millpond.errors import MillpondError
from millpond.model.schema import Schema
from millpond.service.inputs import Inputs

DERIVED: Any = SimpleNamespace()


def stream(id: int, name: str, **more: Any) -> StreamDef:
    return StreamDef(id, name, Schema(()), **more)


def make(
    streams: list[StreamDef],
    calls: list[Any],
    *,
    bounded: bool = False,
    fails: str = "",
    ended: int = -1,
) -> Inputs:
    """Inputs over parts that note what is asked of them; `fails` does not come in time."""

    def note(name: str, answer: Any = True) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            calls.append((name, *given))
            return answer if name != fails else False

        return call

    version: Any = SimpleNamespace(
        streams={s.id: s for s in streams},
        named_streams=lambda: streams,
        find=lambda name: next((s for s in streams if s.name == name), None),
        clock=lambda id: SimpleNamespace(ended=id == ended),
    )
    read = [SimpleNamespace(stream=s.name) for s in streams]
    parts: dict[str, Any] = {
        "log": SimpleNamespace(version=version),
        "runtime": SimpleNamespace(catch_up=note("runtime")),
        "intake": SimpleNamespace(last_number=lambda: 7),
        "pushed": SimpleNamespace(wait_for_stated=note("stated"), wait=note("pushed")),
        "pressure": SimpleNamespace(look=note("pressure")),
        "sources": SimpleNamespace(read_to_end=note("to end")),
        "replicas": SimpleNamespace(catch_up=note("replicas")),
        "registrar": SimpleNamespace(bind=lambda text, text_epoch: SimpleNamespace(streams=read)),
        "derivations": SimpleNamespace(list_streams=lambda version: streams),
        "advancer": SimpleNamespace(catch_up=note("advancer")),
        "background": (SimpleNamespace(wait_until_idle=note("idle")),),
        "bounded": bounded,
    }
    return Inputs(**parts)


def test_a_reader_waits_for_what_statements_pushed() -> None:
    calls: list[Any] = []
    make([stream(1, "s")], calls).wait()
    assert calls == [("stated",)]


def test_bounded_sources_are_read_to_their_end() -> None:
    calls: list[Any] = []
    inputs = make([stream(1, "s")], calls, bounded=True)
    inputs.wait()
    assert calls == [("stated",), ("to end",), ("replicas",)]
    calls.clear()
    inputs.catch_up()
    assert ("to end",) in calls
    assert "runtime" not in [name for name, *_ in calls]


def test_a_reader_waits_for_the_derived_streams_of_its_query_alone() -> None:
    calls: list[Any] = []
    derived = stream(2, "d", derived=DERIVED)
    inputs = make([stream(1, "s"), derived], calls)
    inputs.wait()
    assert "advancer" not in [name for name, *_ in calls]
    inputs.wait("SELECT * FROM s, d")
    assert calls[-1][:2] == ("advancer", [derived])


def test_sources_that_have_not_ended_are_caught_up_with() -> None:
    calls: list[Any] = []
    source: Any = SimpleNamespace()
    some = [stream(1, "pushed"), stream(2, "read", source=source), stream(3, "over", source=source)]
    make(some, calls, ended=3).catch_up(9.0)
    assert calls == [
        ("pushed", 7, 9.0),
        ("replicas", 9.0),
        ("pressure",),
        ("runtime", [some[1]]),
        ("advancer", some, 9.0),
    ]


@pytest.mark.parametrize(
    ("fails", "said"),
    [("pushed", "catching up"), ("advancer", "catching up"), ("idle", "matching what is kept")],
)
def test_what_takes_too_long_is_said(fails: str, said: str) -> None:
    calls: list[Any] = []
    inputs = make([], calls, fails=fails)
    with pytest.raises(MillpondError, match=f"POND-405: {said} took too long"):
        inputs.wait_until_matched(1.0)
    assert calls[-1][0] == fails
    if fails == "idle":
        inputs.catch_up(1.0)
