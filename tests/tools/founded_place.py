"""A shared place in a directory, in which a store was founded."""

from pathlib import Path

from millpond.state.shared.place import FIRST
from millpond.state.shared.posix_place import PosixPlace


def founded_place(directory: Path) -> PosixPlace:
    """Return the place of a directory, which has its first key."""
    place = PosixPlace(directory)
    place.create(FIRST, b"{}")
    return place
