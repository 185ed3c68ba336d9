"""The same catalog as the planner's unit tests have."""

from tests.unit.planner.conftest import binding, names

__all__ = ["binding", "names"]
