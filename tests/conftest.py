"""What all tests share: the pond they run against, and how examples are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.tools.golden import MakePond, PondUnderTest
from tests.tools.under_pressure import press
from tests.waiting import wait_until

from millpond.testing.manual_clock import ManualClock

#: The same examples every time, on a machine of any speed: what fails on one fails on all. A test
#: says no more than how many examples it needs. With `--hypothesis-seed` they are others.
settings.register_profile(
    "millpond",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("millpond")


def pytest_configure(config: pytest.Config) -> None:
    """Draw the examples by `--hypothesis-seed`, if it is given."""
    if config.getoption("--hypothesis-seed") is not None:
        settings.register_profile("seeded", settings.get_profile("millpond"), derandomize=False)
        settings.load_profile("seeded")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--under-pressure 7`: every pond has a scheduler by chance, and nearly no memory."""
    parser.addoption("--under-pressure", type=int, default=None, metavar="SEED")


@pytest.fixture(scope="session", autouse=True)
def under_pressure(request: pytest.FixtureRequest) -> Iterator[None]:
    """Settings that change no answer, for all ponds of the session, if somebody asks for it."""
    seed = request.config.getoption("--under-pressure")
    with pytest.MonkeyPatch.context() as patch:
        if seed is not None:
            press(patch, seed)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file that need a JVM in one process: each process starts one JVM.

    They wait more than they work; so two processes take them by turns.
    """
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group(f"spark {item.path.stem}"))


@pytest.fixture(scope="session", autouse=True)
def function_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The key of the tests' functions; the user's own is left alone."""
    path = tmp_path_factory.mktemp("key") / "function_key"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLPOND_FUNCTION_KEY", str(path))
        yield path


@pytest.fixture
def stores(tmp_path: Path) -> Callable[[str], MakePond]:
    """For a store's name, what opens it in the in-process runtime, again after every close."""

    def store(name: str) -> MakePond:
        # Not at the top: tests without a pond start faster without the service.
        from millpond.testing.local_runtime import open_local

        def make(clock: ManualClock) -> PondUnderTest:
            return open_local(tmp_path / name, clock=clock)

        return make

    return store


@pytest.fixture
def make_pond(stores: Callable[[str], MakePond]) -> MakePond:
    """Opens the test's one store."""
    return stores("store")


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Waits until a condition gives something true, and gives it back."""
    return wait_until
