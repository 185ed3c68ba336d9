"""The same ponds as the service's unit tests have."""

from tests.unit.service.conftest import clock, open_pond, pond

__all__ = ["clock", "open_pond", "pond"]
