"""A pond of the tests of plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.service.plans.plan_ponds import start

from millpond.service.pond import Pond


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with start(tmp_path / "store") as pond:
        yield pond
