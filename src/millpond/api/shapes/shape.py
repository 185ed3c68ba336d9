"""What all shapes have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

#: An instant: ISO 8601 in UTC without a zone, or one of the two ends of time.
Instant = str


class Shape(BaseModel):
    """A JSON object with exactly these fields."""

    model_config = ConfigDict(extra="forbid")
