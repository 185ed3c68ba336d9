"""A server that waits: it answers, says who leads, and leads when the leader is gone."""

import os
import signal
import threading

import httpx
import pytest

from millpond.api import listening
from millpond.api.waiting import await_lead
from millpond.errors import MillpondError
from millpond.state.store import Store


@pytest.fixture
def listener():
    with listening.bind("127.0.0.1", 0) as taken:
        yield taken


@pytest.fixture
def leader(tmp_path):
    with Store.open(tmp_path / "one", shared=str(tmp_path / "shared")) as store:
        store.shared.announce("http://10.0.0.1:6455")
        yield store


def ask(url):
    """Ask until the waiting server is up; connections that come before wait in the socket."""
    return httpx.get(f"{url}/v1/queries", timeout=60), httpx.get(f"{url}/healthz", timeout=60)


def test_it_names_the_leader_and_leads_when_that_has_left(leader, listener, tmp_path):
    url, seen = listening.url_of(listener), []

    def try_it():
        seen.extend(ask(url))
        leader.close()

    client = threading.Thread(target=try_it)
    client.start()
    shared = await_lead(str(tmp_path / "shared"), tmp_path / "two", listener, listening.Transport())
    client.join()
    refused, health = seen
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "STORE-607"
    assert "http://10.0.0.1:6455" in refused.json()["error"]["message"]
    assert refused.headers["X-Content-Type-Options"] == "nosniff"
    assert (health.status_code, health.json()) == (200, {"status": "waiting"})
    with Store.open(tmp_path / "two", shared=shared) as second:
        assert second.shared.term == 2
        assert listener.fileno() >= 0  # the real server takes it over


def test_a_signal_ends_the_wait(leader, listener, tmp_path):
    url = listening.url_of(listener)

    def end_it():
        ask(url)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    client = threading.Thread(target=end_it)
    client.start()
    waited = await_lead(str(tmp_path / "shared"), tmp_path / "two", listener, listening.Transport())
    client.join()
    assert waited is None
    assert signal.getsignal(signal.SIGTERM) is before
    assert leader.failure is None
    assert not list((tmp_path / "two").glob(".fold-*"))


def test_a_directory_is_one_drivers(leader, listener, tmp_path):
    """Two that wait with one directory would remove each other's database."""
    place = str(tmp_path / "shared")
    with pytest.raises(MillpondError, match="STORE-601"):
        await_lead(place, tmp_path / "one", listener, listening.Transport())
    refused = []

    def start_another():
        ask(listening.url_of(listener))
        with listening.bind("127.0.0.1", 0) as other:
            try:
                await_lead(place, tmp_path / "two", other, listening.Transport())
            except MillpondError as error:
                refused.append(error.code)
        leader.close()

    other = threading.Thread(target=start_another)
    other.start()
    shared = await_lead(place, tmp_path / "two", listener, listening.Transport())
    other.join()
    assert refused == ["STORE-601"]
    with Store.open(tmp_path / "two", shared=shared) as second:
        assert second.shared.term == 2
