"""What a receiver knows a delivery by: its id, and the sink's name over restores."""

from __future__ import annotations

from millpond.service.sinks.sender import Delivery


def test_a_restored_sink_keeps_the_name_its_receiver_knows() -> None:
    first = Delivery("3f2a9c.7.12", "s", "c", [], [])
    assert (first.identity, first.number) == ("3f2a9c.7", 12)
    restored = Delivery("b20fd4.7.13", "s", "c", [], [], origin="3f2a9c")
    assert (restored.identity, restored.number) == ("3f2a9c.7", 13)
    assert restored.id != first.id  # webhooks are told apart by it: the changes may be others
