"""Settings from flags, the environment and a file, and what `millpond config` says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millpond.cli.main import app


def settings(*args: str, **environment: str) -> dict[str, tuple[str | None, str]]:
    ran = CliRunner().invoke(app, [*args, "--format", "json"], env=environment)
    assert ran.exit_code == ("(cannot be used)" in ran.stdout), ran.output
    return {row["setting"]: (row["value"], row["from"]) for row in json.loads(ran.stdout)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "millpond.toml"
    path.write_text('[serve]\nport = 7000\nallow-host = ["a", "b"]\nkeep_alive = 9\n')
    return path


def test_the_environment_counts_before_the_file_and_the_file_before_the_default(
    file: Path,
) -> None:
    held = settings("--config", str(file), "config", MILLPOND_SERVE_PORT="7001")
    assert held["port"] == ("7001", "environment")
    assert held["allow_host"] == ("a, b", "file")
    assert held["keep_alive"] == ("9.0", "file")
    assert held["host"] == ("127.0.0.1", "default")
    held = settings("config", "run", MILLPOND_CONFIG=str(file), MILLPOND_RUN_SHARDS="5")
    assert held["shards"] == ("5", "environment")


def test_a_token_is_not_printed_and_a_wrong_value_is_said() -> None:
    held = settings("config", MILLPOND_TOKEN="magpie", MILLPOND_SERVE_PATIENCE="long")
    assert held["token"] == ("(not shown)", "environment")
    assert held["patience"] == ("(cannot be used)", "environment")
    held = settings("config", MILLPOND_SERVE_KEEP_ALIVE="-1")
    assert held["keep_alive"] == ("(cannot be used)", "environment")


#: Values that `serve` refuses, whichever way they come.
REFUSED = {
    "max_memory": "lots",
    "port": "70000",
    "allow_host": "http://pond",
    "allow_origin": "pond",
    "host": "a/b",
    "keep_alive": "-1",
    "max_body_mb": "0",
    "max_seconds": "soon",
    "path_prefix": "pond",
    "trusted_proxy": "nobody",
    "tls_cert": "/nowhere",
    "source_root": "/nowhere",
    "source_format": "carrier_pigeon",
    "sink_host": "http://pond",
    "source_host": "http://pond",
    "backup_root": "/nowhere",
    "tokens": "/nowhere",
    "jwt": "/nowhere",
    "secrets": "/nowhere",
    "shared": "s3:/one-slash",
    "spark_conf": "no",
    "body_memory": "much",
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_says_of_a_setting_what_the_command_would_say(name: str, tmp_path: Path) -> None:
    held_by = {"tokens": "MILLPOND_TOKENS", "secrets": "MILLPOND_SECRETS"}
    given = {"MILLPOND_SERVE_PORT": "0"}
    given |= {held_by.get(name, f"MILLPOND_SERVE_{name.upper()}"): REFUSED[name]}
    serve = CliRunner().invoke(app, ["serve", "--store", str(tmp_path / "pond")], env=given)
    assert serve.exit_code != 0
    asked = CliRunner().invoke(app, ["config", "--format", "json"], env=given)
    assert asked.exit_code == 1
    rows = {row["setting"]: row for row in json.loads(asked.stdout)}
    assert rows[name]["value"] == "(cannot be used)"
    assert [row["value"] for row in rows.values()].count("(cannot be used)") == 1
    said = asked.stderr.strip()
    assert said
    assert said.splitlines()[0].strip() in " ".join(serve.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[serve]\nprt = 1", '"prt" is no setting of serve'),
        ("[sieve]\nport = 1", '"sieve" is no command'),
        ("port = 1", '"port" is no command'),
        ("[serve", "Expected ']'"),
        ('[serve]\nport = "abc"', '"port" under [serve] is wrong: '),
        ("[serve]\nport = true", "neither true nor false"),
        ("[serve]\nport = [1]", "write port = …"),
        ('[serve]\nallow-host = "a"', 'write allow_host = ["…"]'),
        ("[serve]\nmax_body_mb = 0", "max_body_mb"),
        ("[serve]\nkeep_alive = -3", "it takes a number > 0"),
        ('[serve]\ninsecure = "maybe"', "insecure"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "millpond.toml"
    path.write_text(text)
    ran = CliRunner().invoke(app, ["--config", str(path), "config"])
    assert ran.exit_code == 1
    assert "SERVE-712" in ran.stderr
    assert said in ran.stderr


def test_a_file_that_is_not_there_and_a_command_that_is_not() -> None:
    ran = CliRunner().invoke(app, ["--config", "/nowhere/at/all", "config"])
    assert (ran.exit_code, "No such file" in ran.stderr) == (1, True)
    ran = CliRunner().invoke(app, ["config", "sieve"])
    assert (ran.exit_code, 'no command "sieve"' in ran.stderr) == (1, True)


@pytest.mark.parametrize("command", ["run", "serve", "shell", "demo", "check", "repair", "trust"])
def test_each_flag_is_a_variable_of_the_environment_too(command: str) -> None:
    named = {"token", "tokens", "secrets", "url", "key"}  # these have a shorter name
    for name in settings("config", command):
        variable = f"MILLPOND_{command}_{name}".upper()
        if name in named:
            variable = f"MILLPOND_{'FUNCTION_KEY' if name == 'key' else name.upper()}"
        _, source = settings("config", command, **{variable: "1"})[name]
        assert source == "environment", name


def test_a_wrong_value_of_a_variable_names_the_variable() -> None:
    said = "(from the variable MILLPOND_SERVE_PORT)"
    ran = CliRunner().invoke(app, ["serve"], env={"MILLPOND_SERVE_PORT": "abc"})
    assert (ran.exit_code, said in ran.stderr) == (2, True)
    ran = CliRunner().invoke(app, ["serve", "--port", "abc"])
    assert (ran.exit_code, said in ran.stderr) == (2, False)


@pytest.mark.parametrize("arguments", [["serve"], ["config"], ["config", "serve"]])
def test_a_variable_that_no_flag_has_is_refused(arguments: list[str]) -> None:
    """A server whose certificate is misspelt would speak without TLS."""
    environment = {"MILLPOND_SERVE_TLS_CRT": "cert.pem", "MILLPOND_RUN_NOTHING": "1"}
    ran = CliRunner().invoke(app, arguments, env=environment)
    assert ran.exit_code == 1
    assert "variable MILLPOND_SERVE_TLS_CRT of the environment is no setting" in ran.stderr
    assert "Did you mean MILLPOND_SERVE_TLS_CERT?" in ran.stderr
    assert "NOTHING" not in ran.stderr
