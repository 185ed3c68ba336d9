"""TLS, reverse proxies and the audit log: how requests reach a server, and what is written of them.

The server is a real one on a port.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from logging.handlers import WatchedFileHandler
from pathlib import Path

import httpx
import pytest
from people import GRANTED, WORLD, make_token

from millpond.api import server
from millpond.api.access import Access
from millpond.api.listening import Transport
from millpond.api.rights import refusals
from millpond.api.rights.audit import log, write_audit_to
from millpond.errors import MillpondError
from millpond.service.pond import Pond

CONTAINER = (Path(__file__).parents[3] / "packaging" / "Containerfile").read_text()


def serve(pond: Pond, call: Callable[[str], None], **arguments) -> None:
    """Serve a pond while `call` calls it; what `call` raises is raised."""
    raised: list[BaseException] = []

    def run(url: str) -> None:
        try:
            call(url)
        except BaseException as error:
            raised.append(error)
        finally:
            signal.raise_signal(signal.SIGTERM)

    server.serve(
        pond,
        port=0,
        on_ready=lambda url: threading.Thread(target=run, args=(url,)).start(),
        **arguments,
    )
    if raised:
        raise raised[0]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    make_certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    return tmp_path / "cert.pem", tmp_path / "key.pem"


def make_certificate(cert: Path, key: Path) -> None:
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)


def test_tls_by_certificate_files(pond: Pond, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate

    def call(url: str) -> None:
        assert url.startswith("https://")
        context = ssl.create_default_context(cafile=cert)
        # Patient: a worker that has run thousands of tests may stand still for seconds.
        assert httpx.get(f"{url}/v1/streams", verify=context, timeout=60).is_success
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/v1/streams")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http{url.removeprefix('https')}/v1/streams")

    serve(pond, call, transport=Transport.of(cert, key))


def test_a_new_certificate_needs_no_restart(
    pond: Pond, certificate: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = certificate
    old = cert.read_text()
    make_certificate(tmp_path / "new.pem", tmp_path / "new.key")
    new = (tmp_path / "new.pem").read_text()

    def shown(address: tuple[str, int]) -> str:
        return ssl.get_server_certificate(address, timeout=60)

    def wait_for(done: Callable[[], bool]) -> None:
        ends = time.monotonic() + 60
        while not done() and time.monotonic() < ends:
            time.sleep(0.05)
        assert done()

    def call(url: str) -> None:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        context = ssl.create_default_context(cafile=cert)
        with httpx.Client(base_url=url, verify=context, timeout=60) as kept:
            assert kept.get("/healthz").is_success
            assert shown(address).split() == old.split()
            (tmp_path / "new.pem").replace(cert)
            wait_for(lambda: "is not taken" in caplog.text)  # the key is that of before
            assert shown(address).split() == old.split()
            (tmp_path / "new.key").replace(key)
            wait_for(lambda: shown(address).split() == new.split())
            assert kept.get("/healthz").is_success  # a connection of before goes on

    with caplog.at_level("INFO", "millpond.server"):
        serve(pond, call, transport=Transport.of(cert, key))


@pytest.mark.parametrize("tls", [False, True])
def test_the_container_asks_its_server_how_it_is(
    pond: Pond, certificate: tuple[Path, Path], tls: bool
) -> None:
    (line,) = (
        x for x in CONTAINER.replace("\\\n", " ").splitlines() if x.startswith("HEALTHCHECK")
    )
    command = [sys.executable, *json.loads(line.partition("CMD ")[2])[1:]]
    cert = str(certificate[0]) if tls else ""

    def call(url: str) -> None:
        own = {"MILLPOND_SERVE_PORT": url.rpartition(":")[2], "MILLPOND_SERVE_TLS_CERT": cert}
        subprocess.run(command, check=True, env=os.environ | own, timeout=60)
        wrong = own | {"MILLPOND_SERVE_TLS_CERT": "" if tls else str(certificate[0])}
        done = subprocess.run(
            command, check=False, env=os.environ | wrong, capture_output=True, timeout=60
        )
        assert done.returncode

    serve(pond, call, transport=Transport.of(*certificate) if tls else Transport())


def test_what_is_no_transport(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    (tmp_path / "other").write_text("nothing")
    for arguments in (
        (cert, None),
        (None, key),
        (cert, tmp_path / "other"),
        (tmp_path / "missing", key),
        (None, None, "pond"),
        (None, None, "/"),
        (None, None, "/a/../b?"),
        (None, None, "", ["proxy.example.org"]),
        (None, None, "", ["*"]),
    ):
        with pytest.raises(MillpondError, match="SERVE-712"):
            Transport.of(*arguments)


@pytest.mark.parametrize("takes_off", [False, True])
def test_a_proxy_has_the_server_under_a_path(pond: Pond, takes_off: bool) -> None:
    def call(url: str) -> None:
        base = url if takes_off else f"{url}/pond"
        made = httpx.post(f"{base}/v1/queries", json={"cql": "SELECT ts FROM flights"})
        assert made.headers["location"].startswith("/pond/v1/queries/")
        ticket = httpx.post(f"{base}/v1/tickets", json={"containing": "SELECT"}).json()
        assert ticket["path"].startswith("/pond/v1/changes?ticket=")
        assert httpx.get(f"{base}/openapi.json").json()["servers"] == [{"url": "/pond"}]
        assert httpx.get(f"{base}/healthz").is_success
        for page in (httpx.get(f"{base}/"), httpx.get(f"{base}/docs")):
            assert page.is_success
            assert '"/' not in page.text
        assert httpx.get(f"{base}/console/main.js").is_success
        assert httpx.get(f"{base}/v1/nothing").status_code == 404
        if not takes_off:
            assert httpx.get(base).headers["location"] == "/pond/"
            assert httpx.get(f"{url}/pondering/v1/streams").status_code == 404

    serve(pond, call, transport=Transport.of(None, None, "/pond"))


def test_a_proxy_on_a_port_of_its_own_sends_the_host_that_the_browser_sent(pond: Pond) -> None:
    """A browser names the page's origin when it asks for the console's modules."""
    access = Access.of(None, ["example.org"])
    page = {"Origin": "http://example.org:8188", "Sec-Fetch-Site": "same-origin"}

    def call(url: str) -> None:
        module = f"{url}/pond/console/main.js"
        assert httpx.get(module, headers={**page, "Host": "example.org:8188"}).is_success
        refused = httpx.get(module, headers={**page, "Host": "example.org"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "SERVE-711")
        detail = refused.json()["error"]["detail"]
        assert '"http://example.org:8188", and is sent to "example.org"' in detail

    serve(pond, call, access=access, transport=Transport.of(None, None, "/pond"))


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[Callable[[], list[dict]]]:
    path = tmp_path / "audit.jsonl"
    write_audit_to(path)
    assert path.stat().st_mode & 0o777 == 0o600
    yield lambda: [json.loads(line) for line in path.read_text().splitlines()]
    for handler in log.handlers:
        handler.close()
    log.handlers, log.propagate = [], True
    log.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("proxies", "seen"), [([], "127.0.0.1"), (["127.0.0.1"], "192.0.2.9"), (["10.0.0.1"], None)]
)
def test_forwarded_headers_are_believed_of_trusted_proxies_only(
    pond: Pond, audit: Callable[[], list[dict]], proxies: list[str], seen: str | None
) -> None:
    forwarded = {"X-Forwarded-For": "192.0.2.9", "X-Forwarded-Proto": "https"}

    def call(url: str) -> None:
        httpx.get(f"{url}/v1/queries/nothing", headers=forwarded)

    serve(pond, call, transport=Transport.of(None, None, "", proxies))
    [line] = audit()
    assert line["client"] == (seen or "127.0.0.1")


def test_a_flood_of_refusals_is_a_few_lines_of_the_audit_log(
    pond: Pond, audit: Callable[[], list[dict]], tmp_path: Path
) -> None:
    pond.execute(WORLD)
    tokens = tmp_path / "tokens.json"
    token = make_token(tokens, "alice", "writer", GRANTED, rate=1)

    def call(url: str) -> None:
        with httpx.Client(base_url=url) as client:
            for _ in range(300):
                assert client.get("/v1/queries").status_code == 401
            client.headers["Authorization"] = f"Bearer {token}"
            answers = [client.get("/v1/queries").status_code for _ in range(300)]
            refused.append(answers.count(429))

    refused: list[int] = []
    serve(pond, call, access=Access(tokens=tokens))
    assert refused[0] > 200
    assert len(audit()) == 20  # ten of each kind
    (file,) = (handler for handler in log.handlers if isinstance(handler, WatchedFileHandler))
    file.close()  # as at the end of the process: what was counted is told
    told = dict.fromkeys(("SERVE-706", "SERVE-714"), 0)
    for line in audit():
        told[line["code"]] += line.get("refusals", 1)
    assert told == {"SERVE-706": 300, "SERVE-714": refused[0]}
    assert len(audit()) == 22


def test_the_audit_log_goes_on_in_a_new_file_once_it_was_renamed(
    pond: Pond, audit: Callable[[], list[dict]], tmp_path: Path
) -> None:
    def call(url: str) -> None:
        httpx.get(f"{url}/v1/queries/before")
        while not audit():  # the line is written behind the answer
            time.sleep(0.01)
        (tmp_path / "audit.jsonl").rename(tmp_path / "audit.jsonl.1")
        httpx.get(f"{url}/v1/queries/behind")

    serve(pond, call)
    [line] = audit()
    assert line["path"] == "/v1/queries/behind"
    assert "/v1/queries/before" in (tmp_path / "audit.jsonl.1").read_text()
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_the_audit_log(
    pond: Pond, audit: Callable[[], list[dict]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pond.execute(WORLD)
    tokens = tmp_path / "tokens.json"
    token = make_token(tokens, "alice", "writer", GRANTED)
    given: list[str] = [token, token.split("_", 2)[2]]
    caplog.set_level(logging.DEBUG)

    def call(url: str) -> None:
        # Patient: a worker that has run thousands of tests may stand still for seconds.
        get = partial(httpx.get, timeout=60)
        bearer = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=bearer, timeout=60) as client:
            text = "SELECT 1 AS x; DROP QUERY of_bob"
            client.post("/v1/statements", json={"text": text})
            client.post("/v1/queries", json={"cql": "SELECT ts FROM flights", "name": "made"})
            client.get("/v1/queries/made")
            client.get("/v1/queries/of_bob")
            client.get("/metrics")
            given.append(client.post("/v1/tickets", json={"tag": "x"}).json()["ticket"])
        get(f"{url}/v1/changes", params={"ticket": given[-1], "follow": "false"})
        get(f"{url}/v1/changes", params={"ticket": f"{given[-1]}x"})
        get(f"{url}/v1/streams", headers={"Authorization": f"Bearer {token}x"})
        get(f"{url}/v1/streams", headers={"Host": "evil.example"})

    serve(pond, call, access=Access(tokens=tokens))
    lines = audit()
    assert [(x["path"], x["status"], x["code"], x["owner"]) for x in lines] == [
        ("/v1/statements", 400, "CQL-201", "alice"),
        ("/v1/queries", 201, None, "alice"),
        ("/v1/queries/of_bob", 404, "CQL-201", "alice"),
        ("/metrics", 403, "SERVE-713", "alice"),
        ("/v1/tickets", 201, None, "alice"),
        ("/v1/changes", 401, "SERVE-706", None),
        ("/v1/streams", 401, "SERVE-706", None),
        ("/v1/streams", 421, "SERVE-710", None),
    ]
    assert lines[0]["statements"] == ["SELECT 1 AS x", "DROP QUERY of_bob"]
    assert lines[1]["statements"] == ["SELECT ts FROM flights"]
    assert {line["token"] for line in lines} == {token.split("_")[1], None}
    # httpx, the client of this test, logs the URLs it asks for; the server has no such line.
    logged = "".join(r.getMessage() for r in caplog.records if not r.name.startswith("http"))
    for secret in given:
        assert secret not in json.dumps(lines) + logged


def test_a_secret_that_is_written_out_is_refused_and_shown_nowhere(
    pond: Pond,
    audit: Callable[[], list[dict]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(refusals, "MOST_WRITTEN", 1_000)
    answers = []
    options = (
        "password 'hunter2'",
        "PassWord 'hunter2'",
        "\"kafka.sasl.jaas.config\" 'user=x hunter2'",
        "sasl.password 'hunter2'",
        "url 'jdbc:db://host/x?user=a&password=hunter2'",
        "url 'jdbc:db://me:hunter2@host/x'",
        "path '/x', \"fs.s3a.secret.key\" 'hunter2'",
        "secret_key 'hunter2'",
        "apiKey 'hunter2'",
        'config \'{"sasl.password": "hunter2"}\'',
        "bootstrap 'me:hunter2@host:9092'",
        "bootstrap 'a:9092,me:hunter2@host:9092'",
    )
    sinks = ("url 'http://127.0.0.1:9/?token=hunter2'", "url 'http://me:hunter2@127.0.0.1:9/'")

    def call(url: str) -> None:
        for kind in ("STREAM", "RELATION"):
            for given in options:
                text = f"CREATE {kind} made (a INTEGER) USING jdbc OPTIONS ({given})"
                answers.append(httpx.post(f"{url}/v1/statements", json={"text": text}))
                answers.append(httpx.post(f"{url}/v1/queries", json={"cql": text}))
        then = f"USING parquet OPTIONS (path '/x') THEN kafka OPTIONS ({options[0]})"
        text = f"CREATE STREAM made (a INTEGER) {then}"
        answers.append(httpx.post(f"{url}/v1/statements", json={"text": text}))
        for given in sinks:
            for text in (
                f"CREATE SINK made USING http ({given}) FROM QUERIES TAGGED t",
                f"ALTER SINK made SET ({given.replace(' ', ' = ', 1)})",
            ):
                answers.append(httpx.post(f"{url}/v1/statements", json={"text": text}))
        named = "CREATE STREAM made (a INTEGER) USING jdbc OPTIONS (password secret('db'))"
        answers.append(httpx.post(f"{url}/v1/statements", json={"text": named}))

    serve(pond, call)
    for answer in answers:
        assert answer.status_code == 403, answer.text
        assert answer.json()["error"]["code"] == "POND-414"
        assert "hunter2" not in answer.text
    # What names a secret is held to what clients may read, as any other source.
    assert all("secret written out" in answer.text for answer in answers[:-1])
    assert "secret written out" not in answers[-1].text
    assert "secret('db')" in audit()[-1]["statements"][0]
    logged = "".join(r.getMessage() for r in caplog.records if not r.name.startswith("http"))
    assert "hunter2" not in json.dumps(audit()) + logged
    store = pond._components._store.directory
    kept = b"".join(p.read_bytes() for p in store.rglob("*") if p.is_file())
    assert b"hunter2" not in kept
