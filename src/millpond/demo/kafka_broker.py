"""A real Kafka broker for the demo and the tests: one node on loopback, of Maven Central's jars.

The jars are fetched once by Maven, by the settings its user has, into the user's cache folder.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from millpond.demo.cluster import free_port

VERSION = "4.3.0"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>millpond</groupId><artifactId>broker</artifactId><version>1</version>
<packaging>pom</packaging><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId>
<version>1.7.36</version></dependency>
</dependencies></project>
"""
#: Retention goes by the time of records: without the -1 it would delete replayed history.
_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},LOGIN://127.0.0.1:{login},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},LOGIN://127.0.0.1:{login}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
  required user_{user}="{password}";
inter.broker.listener.name=PLAINTEXT
log.dirs={directory}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
group.initial.rebalance.delay.ms=0
log.segment.bytes=16777216
log.retention.ms=-1
"""


class Missing(Exception):
    """What a broker needs cannot be had on this machine; the text says what."""


class Broker:
    """One broker, which can be killed and started again; its topics stay.

    Attributes:
        bootstrap: Where anybody may connect.
        login_bootstrap: Where clients log in by SASL/PLAIN, as `user` with `password`.
        data: The directory of its logs.
    """

    user = "millpond"

    def __init__(self, directory: Path) -> None:
        self._directory, self.data = directory, directory / "data"
        self._jars = _jars()
        self._process: subprocess.Popen[bytes] | None = None
        self.port, login, controller = free_port(), free_port(), free_port()
        self.bootstrap, self.login_bootstrap = f"127.0.0.1:{self.port}", f"127.0.0.1:{login}"
        self.password = secrets.token_urlsafe(12)
        self._settings = directory / "server.properties"
        ports = {"port": self.port, "login": login, "controller": controller}
        who = {"user": self.user, "password": self.password}
        self._settings.touch(mode=0o600)
        self._settings.write_text(_PROPERTIES.format(directory=directory, **ports, **who))
        tool = [*self._java("kafka.tools.StorageTool")]
        subprocess.run(
            [*tool, "format", "-t", "bWlsbHBvbmQtdGVzdHMtMQ", "-c", str(self._settings)],
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=120,
        )

    def _java(self, name: str) -> list[str]:
        memory = ["-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return ["java", *memory, "-cp", f"{self._jars}/*", name]

    def start(self) -> None:
        """Start the broker and wait until it takes connections."""
        with (self._directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java("kafka.Kafka"), str(self._settings)], stdout=log, stderr=log
            )
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError((self._directory / "broker.log").read_text()[-2000:])

    def kill(self) -> None:
        """End the broker at once, as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the broker in order."""
        self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(by)
            try:
                self._process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def _jars() -> Path:
    """The folder of the broker's jars, which Maven fills the first time.

    Raises:
        Missing: there is no Java, no Maven, or Maven cannot fetch them.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Missing(f"a Kafka broker needs {program}, which is not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jars = cache / "millpond" / f"kafka-{VERSION}"
    if not jars.exists():
        making = jars.with_name(f"{jars.name}.{os.getpid()}")
        making.mkdir(parents=True)
        (making / "pom.xml").write_text(_POM)
        command = ["mvn", "-B", "-q", "-f", str(making / "pom.xml")]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={making}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if done.returncode:
            shutil.rmtree(making)
            raise Missing(f"Maven cannot fetch Kafka {VERSION}: {done.stdout.strip()[-300:]}")
        try:
            making.rename(jars)
        except OSError:  # another process was quicker
            shutil.rmtree(making)
    return jars
