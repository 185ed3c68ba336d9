"""Losses: how they are said, and what several leaves of a query lack together."""

from __future__ import annotations

from millpond.model.loss import Bounds, Cause, Loss, merge_losses

EXPIRED = Loss("s", Cause.EXPIRED, None, 5)


def test_what_a_loss_says() -> None:
    end = "1970-01-01 00:00:01"
    assert str(Loss("s", Cause.DAMAGED, None, 1_000_000)) == (
        f'elements of stream "s" up to {end} were lost with their file'
    )
    assert str(Loss("s", Cause.SHED, 0, 1_000_000, 1200, 1200)) == (
        f'1,200 elements of stream "s" from 1970-01-01 00:00:00 to {end} were shed; '
        "at most 1,200 rows are missing"
    )
    assert str(Loss("s", Cause.EXPIRED, None, 1_000_000, 1)) == (
        f'1 element of stream "s" up to {end} is not kept any more'
    )


def test_losses_are_merged_by_stream_and_cause() -> None:
    other, later = Loss("t", Cause.EXPIRED, None, 5), Loss("S", Cause.EXPIRED, None, 9)
    assert merge_losses([other, EXPIRED, EXPIRED]) == (EXPIRED, other)
    assert merge_losses([EXPIRED, later]) == (Loss("s", Cause.EXPIRED, None, 9),)
    few, many = Loss("s", Cause.SHED, 3, 4, 1, 1), Loss("s", Cause.SHED, 2, 9, 5, 5)
    # Nobody has counted how many of the five are the one, and a bound is of one leaf.
    assert merge_losses([few, many]) == (Loss("s", Cause.SHED, 2, 9),)


def test_bounds_come_back_from_json() -> None:
    bounds = Bounds(0.95, {"n": [(1.0, 2.0), None]})
    assert Bounds.from_json(bounds.to_json()) == bounds
    assert Bounds.from_json(None) is None
