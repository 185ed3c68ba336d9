"""The container file, the manifest and systemd's unit say what the command line understands."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
import typer
import yaml
from typer.main import get_command

from millpond.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "packaging" / "millpond.service"
ENTRYPOINT = ROOT / "packaging" / "entrypoint.sh"
MANIFEST = (ROOT / "packaging" / "kubernetes.yaml").read_text()
CONTAINER = (ROOT / "packaging" / "Containerfile").read_text()


def read_unit() -> dict[str, dict[str, str]]:
    """The sections of the unit."""
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return {name: dict(parser[name]) for name in parser.sections()}


def find_command(words: list[str]) -> tuple[str, set[str], dict[str, str]]:
    """The command that words name, the options they give, and those options' values."""
    group = get_command(app)
    context = typer.Context(group)
    values = dict(zip(words, [*words[1:], ""], strict=True))
    name = next(word for word in words if group.get_command(context, word))  # type: ignore[attr-defined]
    command = group.get_command(context, name)  # type: ignore[attr-defined]
    known = {o for parameter in (*group.params, *command.params) for o in parameter.opts}
    given = {word for word in words if word.startswith("--")}
    assert given <= known
    return name, given, values


def list_instructions() -> list[tuple[str, str]]:
    """The instructions of the container file, each with the rest of its line."""
    plain = re.sub(r"^#.*\n", "", CONTAINER, flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in plain.splitlines() if line.strip()]  # type: ignore[misc]


def test_the_unit_starts_a_server_with_options_there_are() -> None:
    service = read_unit()["Service"]
    program, *words = shlex.split(service["ExecStart"])
    name, given, values = find_command(words)
    assert (Path(program).name, name) == ("millpond", "serve")
    assert {"--store", "--tokens", "--config"} <= given
    # Under ProtectSystem=strict it can write its directories for state and for caches alone.
    assert values["--store"] == f"/var/lib/{service['StateDirectory']}"
    assert service["Environment"] == f"XDG_CACHE_HOME=%C/{service['CacheDirectory']}"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """But for what this machine lacks: the program and the user."""
    unit = tmp_path / UNIT.name
    text = UNIT.read_text().replace("/opt/millpond/.venv/bin/millpond", sys.executable)
    unit.write_text(re.sub(r"^(User|Group)=.*\n", "", text, flags=re.M))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    said = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, said) == (0, [])


def test_the_container_starts_a_server_that_others_reach() -> None:
    instructions = list_instructions()
    found = dict(instructions)
    assert json.loads(found["ENTRYPOINT"]) == [ENTRYPOINT.name]
    name, given, values = find_command(json.loads(found["CMD"]))
    assert (name, values["--host"]) == ("serve", "0.0.0.0")
    assert values["--store"] == found["VOLUME"]
    assert "--insecure" not in given
    assert found["ENV"].startswith("MILLPOND_TOKENS=")
    assert found["USER"] == "millpond"


def test_the_container_runs_millpond_with_what_it_is_given(tmp_path: Path) -> None:
    assert os.access(ENTRYPOINT, os.X_OK)
    stand_in = tmp_path / "millpond"
    stand_in.write_text('#!/bin/sh\necho "$@"\n')
    stand_in.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [ENTRYPOINT, "serve", "--port", "1"],
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "--log-format json serve --port 1\n"


def test_the_manifest_of_kubernetes_starts_drivers_that_are_found() -> None:
    objects = {(d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(MANIFEST)}
    pods = objects["StatefulSet", "millpond"]["spec"]["template"]
    driver = pods["spec"]["containers"][0]
    words = [part for word in driver["args"] for part in word.split("=", 1)]
    name, given, values = find_command(words)
    assert name == "serve"
    assert "--insecure" not in given
    volumes = dict(instruction for instruction in list_instructions() if instruction[0] == "VOLUME")
    assert values["--store"] == volumes["VOLUME"]
    for service in ("millpond", "millpond-drivers"):
        spec = objects["Service", service]["spec"]
        assert spec["selector"] == pods["metadata"]["labels"]
        assert spec["ports"][0]["port"] == driver["ports"][0]["containerPort"] == 6455
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        called = driver[probe]["httpGet"]
        assert f"--allow-host={called['httpHeaders'][0]['value']}" in driver["args"]
    assert "--spark-conf=spark.kubernetes.container.image=" + driver["image"] in driver["args"]
    user = pods["spec"]["securityContext"]["runAsUser"]
    assert f"useradd --uid {user} " in CONTAINER


def test_the_container_has_what_it_copies_and_a_python_that_is_supported() -> None:
    copied = [
        word for kind, rest in list_instructions() if kind == "COPY" for word in rest.split()[:-1]
    ]
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    }
    assert set(copied) == allowed
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.search(r"python:(\d+)\.(\d+)-", CONTAINER)
    least = re.search(r"(\d+)\.(\d+)", project["requires-python"])
    assert version is not None
    assert least is not None
    assert tuple(map(int, version.groups())) >= tuple(map(int, least.groups()))
