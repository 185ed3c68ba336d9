"""Users of slots are counted as a Counter counts them."""

from __future__ import annotations

import random
from collections import Counter

from millpond.service.queries.slot_users import SlotUsers


def test_users_are_counted_slot_by_slot() -> None:
    rng = random.Random(3)
    users, expected = SlotUsers(), Counter[int]()
    for _ in range(5_000):
        slot = rng.choice([0, 1, 511, 512, 513, 70_000])
        many = 1 if rng.random() < 0.6 or not expected[slot] else -1
        users.add(slot, many)
        expected[slot] += many
        assert users.count(slot) == expected[slot]
    for slot in range(2_000):
        assert users.count(slot) == expected[slot]


def test_there_are_never_less_than_none() -> None:
    users = SlotUsers()
    users.add(3, -1)
    assert users.count(3) == 0
    users.add(3, 1)
    assert users.count(3) == 1


def test_slots_that_nobody_uses_take_no_memory() -> None:
    users = SlotUsers()
    for slot in range(2_000):
        users.add(slot, 1)
    assert len(users._pages) == 4
    for slot in range(1_536):
        users.add(slot, -1)
    assert list(users._pages) == [3]
