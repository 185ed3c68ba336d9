"""A stand-in of Kubernetes' API server, as far as Spark asks it; its pods are processes here.

A pod runs `packaging/entrypoint.sh` with the pod's arguments and environment, as the image does.
Where the system allows it, each has directories of its own where its volumes are mounted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

ENTRYPOINT = Path(__file__).parents[2] / "packaging" / "entrypoint.sh"
_HOST = "127.0.0.1"
Body = dict[str, Any]


class KubernetesServer:
    """The server, and the pods that it was asked for.

    Attributes:
        url: Where it listens.
        asked: The pods of executors that were asked for, by their names, ended ones too.
        running: Their processes, without those that were deleted.
    """

    def __init__(self, logs: Path, secrets: Mapping[str, Mapping[str, str]]) -> None:
        """Listen at a free port.

        Args:
            logs: Where the pods' output goes.
            secrets: The values of the namespace's secrets.
        """
        self._logs, self._secrets = logs, secrets
        self._objects: dict[str, Body] = {}
        self._lock = threading.Lock()
        self.asked: dict[str, Body] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._mounts = _mounts_alone()
        handler = type("Handler", (_Handler,), {"cluster": self})
        self._server = ThreadingHTTPServer((_HOST, 0), handler)
        self.url = f"http://{_HOST}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def add(self, path: str, body: Body) -> Body:
        """Take an object in at a path of the API, and start it if it is a pod of an executor."""
        about = body.setdefault("metadata", {})
        about |= {"uid": str(uuid.uuid4()), "resourceVersion": "1"}
        about |= {"creationTimestamp": "2026-01-01T00:00:00Z", "namespace": path.split("/")[4]}
        with self._lock:
            if about.get("labels", {}).get("spark-role") == "executor" and "/pods/" in path:
                self._start(about["name"], body)
            self._objects[path] = body
        return body

    def get(self, path: str, selector: str) -> Body | None:
        """An object, or the list of those of a kind that have the labels."""
        with self._lock:
            self._look()
            if path in self._objects:
                return self._objects[path]
            kind = path.rsplit("/", 1)[-1]
            if kind not in ("pods", "configmaps", "persistentvolumeclaims"):
                return None
            items = [self._objects[name] for name in self._below(path, selector)]
            heads = {"apiVersion": "v1", "metadata": {"resourceVersion": "1"}}
            return {"kind": "PodList" if kind == "pods" else "List", **heads, "items": items}

    def delete(self, path: str, selector: str) -> None:
        """Delete an object, or those of a kind that have the labels; ends their processes."""
        with self._lock:
            gone = [path] if path in self._objects else self._below(path, selector)
            for name in gone:
                body = self._objects.pop(name)
                process = self.running.pop(body["metadata"]["name"], None)
                if process is not None:
                    process.terminate()

    def close(self) -> None:
        """End the pods and the server."""
        with self._lock:
            for process in self._processes:
                process.kill()
                process.wait()
        self._server.shutdown()
        self._server.server_close()

    def _below(self, path: str, selector: str) -> list[str]:
        found = []
        for name, body in self._objects.items():
            labels = body["metadata"].get("labels", {})
            if name.startswith(f"{path}/") and _selects(selector, labels):
                found.append(name)
        return found

    def _look(self) -> None:
        """Note which pods have ended."""
        for name, process in self.running.items():
            code = process.poll()
            if code is not None:
                state = {"terminated": {"exitCode": code if code >= 0 else 128 - code}}
                self.asked[name]["status"] = _status("Succeeded" if not code else "Failed", state)

    def _start(self, name: str, body: Body) -> None:
        container = body["spec"]["containers"][0]
        environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        fields = {"status.podIP": _HOST, "metadata.name": name}
        for entry in container["env"]:
            source = entry.get("valueFrom", {})
            if "fieldRef" in source:
                environment[entry["name"]] = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                key = source["secretKeyRef"]
                environment[entry["name"]] = self._secrets[key["name"]][key["key"]]
            else:
                environment[entry["name"]] = entry.get("value") or ""
        command = [str(ENTRYPOINT), *container["args"]]
        volumes = {volume["name"] for volume in body["spec"]["volumes"] if "emptyDir" in volume}
        for mount in container["volumeMounts"]:
            if mount["name"] in volumes:
                command = [*self._mounts(mount["mountPath"]), *command]
        with (self._logs / f"{name}.log").open("wb") as out:
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        body["status"] = _status("Running", state)
        self._processes.append(process)
        self.running[name], self.asked[name] = process, body


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: KubernetesServer

    def do_GET(self) -> None:
        path, selector = self._parse()
        found = self.cluster.get(path, selector)
        if found is None:
            head = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
            self._answer(404, {**head, "reason": "NotFound", "code": 404})
        else:
            self._answer(200, found)

    def do_POST(self) -> None:
        body = json.loads(self._read())
        path = f"{self._parse()[0]}/{body['metadata']['name']}"
        self._answer(201, self.cluster.add(path, body))

    def do_PATCH(self) -> None:
        self._read()
        self._answer(200, self.cluster.get(*self._parse()) or {})

    def do_DELETE(self) -> None:
        self._read()
        self.cluster.delete(*self._parse())
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def log_message(self, *_: Any) -> None:
        """Say nothing of each request."""

    def _parse(self) -> tuple[str, str]:
        url = urlparse(self.path)
        return url.path, parse_qs(url.query).get("labelSelector", [""])[0]

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, code: int, body: Body) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _status(phase: str, state: Body) -> Body:
    container = {"name": "spark-kubernetes-executor", "ready": phase == "Running", "state": state}
    return {"phase": phase, "podIP": _HOST, "containerStatuses": [container]}


def _selects(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether labels are what a selector wants; of its forms those that Spark uses."""
    for wanted in filter(None, selector.replace(", ", " ").split(",")):
        if " in " in wanted:
            name, _, values = wanted.partition(" in ")
            if labels.get(name) not in values.strip("()").split():
                return False
        elif "!=" in wanted:
            name, value = wanted.split("!=")
            if labels.get(name) == value:
                return False
        else:
            name, value = wanted.split("=")
            if labels.get(name) != value:
                return False
    return True


def _mounts_alone() -> Any:
    """What stands before a command so that it has an empty directory of its own at a path."""
    script = 'mkdir -p "$0" && mount -t tmpfs none "$0" && exec "$@"'
    alone = ("unshare", "-m", "sh", "-c", script)
    tried = [*alone, "/tmp", "true"]
    if shutil.which("unshare") and not subprocess.run(tried, check=False).returncode:
        return lambda path: (*alone, path)
    return lambda _: ()
