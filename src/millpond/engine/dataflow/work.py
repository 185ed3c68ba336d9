"""What operators did and what waited between them: measured as a dataflow runs."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millpond.operators.protocol.delta import Delta

#: The bytes of a row's instants and weight; of a value whose width varies, where rows are few.
_STAMPS, _TEXT = 24, 32
#: So many rows are worth the time that measuring them exactly takes.
_FEW = 1_000


@dataclass
class OperatorWork:
    """What an operator did since it was made.

    Attributes:
        runs: How often it ran.
        seconds: How long that took.
        taken: Rows of its inputs.
        given: Rows of its output.
        bytes_taken: The bytes of these rows, about.
        bytes_given: The bytes of its output, about.
    """

    runs: int = 0
    seconds: float = 0.0
    taken: int = 0
    given: int = 0
    bytes_taken: float = 0.0
    bytes_given: float = 0.0

    @property
    def cost(self) -> float:
        """Seconds per byte of input."""
        return self.seconds / self.bytes_taken if self.bytes_taken else 0.0

    @property
    def selectivity(self) -> float:
        """Bytes of output per byte of input."""
        return self.bytes_given / self.bytes_taken if self.bytes_taken else 1.0


@dataclass
class QueueFigures:
    """What waited in the queues of a call of `advance` that was cut into slices.

    Attributes:
        slices: How many slices the call had.
        most_slices: The most outputs that waited at a time.
        most_bytes: The most bytes that waited at a time.
        largest: The bytes of the largest output.
        longest: The longest time a slice was in the dataflow, in seconds.
    """

    slices: int = 0
    most_slices: int = 0
    most_bytes: int = 0
    largest: int = 0
    longest: float = 0.0


def find_width(schema: pa.Schema) -> int:
    """Estimate the bytes of a row of an edge with these columns."""
    width = _STAMPS
    for field in schema:
        try:
            width += max(1, field.type.bit_width // 8)
        except ValueError:
            width += _TEXT
    return width


def measure(delta: Delta, width: int) -> int:
    """Estimate the bytes of a delta; `width` is what `find_width` says of its columns."""
    if len(delta) < _FEW:
        return len(delta) * width
    return int(delta.rows.nbytes) + len(delta) * _STAMPS
