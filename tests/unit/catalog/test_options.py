"""The catalogue of options: the surfaces have what it has, and it has what the engine has."""

from __future__ import annotations

import inspect
from dataclasses import fields
from datetime import timedelta
from typing import Any

import jsonschema_rs
import pytest
from typer.main import get_command

import millpond
from millpond.api.client_limits import ClientLimits
from millpond.catalog import options
from millpond.catalog.option import Scope
from millpond.catalog.options import OPTIONS, list_options
from millpond.cli.main import app
from millpond.engine.eddy.routing import POLICIES
from millpond.errors import MillpondError
from millpond.service.changes.settings import ChangeSettings
from millpond.service.maintenance.join_rounds import JoinSettings
from millpond.service.queries.options import (
    check_altered_options,
    check_input_options,
    check_options,
    check_settings,
    check_sink_options,
)


def test_open_has_a_documented_parameter_for_every_setting() -> None:
    parameters = dict(inspect.signature(millpond.open).parameters)
    del parameters["store"]
    names = {*list_options(Scope.ENGINE), *list_options(Scope.OPEN)}
    assert parameters.keys() == names
    described = inspect.getdoc(millpond.open) or ""
    for name, parameter in parameters.items():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, name
        assert parameter.default == OPTIONS[name].default, name
        assert f"\n    {name}: " in described, name


@pytest.mark.parametrize("command", ["run", "serve"])
def test_the_command_line_has_a_flag_for_every_setting(command: str) -> None:
    flags = {p.name: p for p in get_command(app).commands[command].params}  # type: ignore[attr-defined]
    for name in list_options(Scope.ENGINE):
        assert flags[name].opts == [f"--{name.replace('_', '-')}"]
        assert flags[name].default == OPTIONS[name].default
        assert OPTIONS[name].takes in flags[name].help


def test_a_server_has_a_flag_and_a_limit_for_each_of_its_settings() -> None:
    flags = {p.name: p for p in get_command(app).commands["serve"].params}  # type: ignore[attr-defined]
    names = list_options(Scope.SERVER)
    assert names == tuple(field.name for field in fields(ClientLimits))
    for name in names:
        assert flags[name].opts == [f"--{name.replace('_', '-')}"]
        assert flags[name].default == OPTIONS[name].default
        with pytest.raises(MillpondError, match="CQL-214"):
            ClientLimits.of({name: 0})
    with pytest.raises(MillpondError, match="CQL-214"):
        ClientLimits.of({"patiance": 1})


def test_every_setting_of_the_engine_is_one_of_its_parts() -> None:
    parts = [f.name for part in (JoinSettings, ChangeSettings) for f in fields(part)]
    assert sorted(parts) == sorted(list_options(Scope.ENGINE))


def test_the_routing_policies_are_the_engines() -> None:
    for name in POLICIES:
        assert check_settings({"routing": name.upper()}) == {"routing": name}
        assert f"'{name}'" in OPTIONS["routing"].takes


@pytest.mark.parametrize("name", [n for n, o in OPTIONS.items() if o.default is not None])
def test_a_default_is_a_value_as_it_is_kept(name: str) -> None:
    option = OPTIONS[name]
    assert option.values.check(option.default) == option.default


def test_every_option_is_described_and_has_a_default_or_says_what_it_is() -> None:
    for option in OPTIONS.values():
        assert (option.default is None) == bool(option.unless_given), option.name
        assert option.takes
        assert not option.text.endswith((".", ": "))


#: Values as they are given and as they are kept.
KEPT: dict[str, list[tuple[Any, Any]]] = {
    "materialize": [("EAGER", "eager")],
    "active": [(False, False)],
    "tolerate": [
        ("NOTHING", "nothing"),
        ("window 600 s, sample 05.0%", "window 10 MINUTES, sample 5 %"),
        ("error 2 %, sample 5 %", "sample 5 %, error 2 % at 95 %"),
    ],
    "weight": [(0.5, 0.5), (2, 2)],
    "max_rows": [(7, 7)],
    "max_seconds": [(0.25, 0.25)],
    "max_memory": [("64 mb", "64 MB"), ("2000 KB", "2 MB")],
    "changes": [("From Beginning", "from beginning")],
    "keep_changes": [(9, 9), (1e6, 1e6)],
    "strategy": [("Direct", "direct")],
    "partitions": [(4, 4)],
    "eager_expiration": [
        ("60 s", "1 MINUTE"),
        ("90 seconds", "90 SECONDS"),
        (timedelta(hours=2), "2 HOURS"),
    ],
    "lazy_expiration": [
        ("AUTO", "auto"),
        ("300 s", "5 MINUTES"),
        (timedelta(minutes=5), "5 MINUTES"),
    ],
    "seed": [(-3, -3), (0, 0)],
    "follow": [(True, True)],
    "owner": [(" ann ", "ann")],
    "tags": [("b, A ,b,", "a, b"), (["x", "Y"], "x, y"), ("", "")],
    "comment": [("Why, and since when", "Why, and since when")],
}
REFUSED: dict[str, list[Any]] = {
    "materialize": ["sometimes", 1, None],
    "active": ["true", 1],
    "tolerate": [5, None, "", "sample 5", "error 2 %", "window 0 s"],
    "weight": [0, -1, True, "1", float("nan"), float("inf"), 1e308],
    "max_rows": [0, 1.5, "7", float("inf")],
    "max_seconds": [0, "1"],
    "max_memory": [0, 64, "64", "12 bytes"],
    "changes": ["from now", "yesterday"],
    "keep_changes": [0, -1, True],
    "strategy": ["best", "auto"],
    "partitions": [0, 2.5],
    "eager_expiration": ["auto", 7, "7", "-1 s", "2 months", None],
    "lazy_expiration": [7, "never", True],
    "seed": [1.5, "1", float("inf"), None],
    "follow": ["true", 1, None],
    "owner": [7, None, "x" * 201],
    "tags": [7, [1], ["a,b"], "x" * 201, None],
    "comment": [True, "x" * 10_001],
}


#: Of the clauses that ALTER STREAM sets, as those of a sink's options below.
OF_CLAUSES: dict[str, tuple[list[tuple[Any, Any]], list[Any]]] = {
    "delay": (
        [("0 s", "0 SECONDS"), (timedelta(minutes=1), "1 MINUTE")],
        ["-1 s", 5, None, "never"],
    ),
    "idle_after": ([("Never", "never"), ("30 s", "30 SECONDS")], ["0 s", 30, "unbounded"]),
    "ahead": ([("UNBOUNDED", "unbounded"), ("1 day", "1 DAY")], ["never", 1]),
    "retain": (
        [
            ("Everything", "everything"),
            ("07 ROWS", "7 rows"),
            ("1 row", "1 rows"),
            ("48 h", "2 DAYS"),
        ],
        ["0 rows", "-1 rows", "0 s", 7, "rows", "1.5 rows", "9" * 19 + " rows", None],
    ),
}


def test_the_clauses_that_alter_stream_sets() -> None:
    assert OF_CLAUSES.keys() == set(list_options(Scope.CLAUSE))
    for name, (kept, refused) in OF_CLAUSES.items():
        for given, expected in kept:
            assert check_altered_options({name.upper(): given}) == {name: expected}
        for given in refused:
            with pytest.raises(MillpondError, match="CQL-214"):
                check_altered_options({name: given})
        with pytest.raises(MillpondError, match=r"(?s)CQL-214.*Write it as a clause"):
            check_input_options({name: kept[0][0]})


#: Of a sink's options: values as they are given and as they are kept, and values refused.
OF_SINKS: dict[str, tuple[list[tuple[Any, Any]], list[Any]]] = {
    "active": ([(False, False)], ["true"]),
    "url": (
        [("https://h.example.org:8443/a?b=c", "https://h.example.org:8443/a?b=c")],
        [
            *(7, "", "ftp://h", "http://", "http://u:p@h/", "http://h/#f", "http://h/ a"),
            *("http://h:0", "http://h:99999/", "http://[::1", "http://h\r\nX: y", "http://\u00e4"),
        ],
    ),
    "key_env": ([("HOOK_KEY", "HOOK_KEY")], ["", "A=B", "1A", 7, "A B"]),
    "key_file": ([("/run/key", "/run/key")], ["", "a\0b", 7]),
    "bootstrap": ([("a:9092, b:9092", "a:9092, b:9092")], ["", 7]),
    "topic": ([("a.B_c-1", "a.B_c-1")], ["", "a b", "a/b", 7, "t" * 250]),
    "cursor_topic": ([("c", "c")], ["", "a\n"]),
    "config": ([("/run/kafka", "/run/kafka")], ["", "a\0b"]),
    "host": ([("db.example.org", "db.example.org")], ["", 7]),
    "port": ([(5433, 5433), ("5432", 5432)], [0, 65_536, "65536"]),
    "database": ([("shop", "shop")], ["", 7]),
    "user": ([("ann", "ann")], ["", 7]),
    "password": ([("secret('shop')", "secret('shop')")], ["hunter2", "", 7]),
    "sslmode": ([("VERIFY-FULL", "verify-full")], ["yes", True]),
    "sslrootcert": ([("/run/ca.pem", "/run/ca.pem")], ["", "a\0b"]),
    "table": ([("public.late", "public.late")], ["", 7]),
    "cursor_table": ([("c", "c")], ["", 7]),
    "path": ([("/data/t", "/data/t")], ["", 7]),
    "after": ([("3f2a9c.feed.3~40-a", "3f2a9c.feed.3~40-a")], ["", 7]),
    "timeout": ([("60 s", "1 MINUTE")], ["0 s", "61 s", 5]),
    "attempts": ([(1, 1)], [0, 1.5, True, "1"]),
    "batch": ([(10_000, 10_000)], [0, 10_001, "1"]),
}


@pytest.mark.parametrize("name", list_options(Scope.SINK))
def test_the_values_of_a_sink_option(name: str) -> None:
    values, refused = OF_SINKS[name]
    for given, kept in values:
        assert check_sink_options({name.upper(): given}) == {name: kept}
    for value in refused:
        with pytest.raises(MillpondError, match=f'CQL-214: the sink option "{name}" cannot be'):
            check_sink_options({name: value})


@pytest.mark.parametrize("name", list_options(Scope.QUERY))
def test_clients_over_http_are_told_the_values_of_a_query_option(name: str) -> None:
    schema = dict(OPTIONS[name].values.schema)
    for _, kept in KEPT[name]:
        jsonschema_rs.validate(schema, kept)
    refused = {type(value) for value in REFUSED[name]} - {type(kept) for _, kept in KEPT[name]}
    wrong = [value for value in REFUSED[name] if type(value) in refused - {list, float}]
    for value in wrong:
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(schema, value)


@pytest.mark.parametrize("name", list_options(Scope.QUERY))
def test_the_values_of_a_query_option(name: str) -> None:
    for given, kept in KEPT[name]:
        assert check_options({name.upper(): given}) == {name: kept}
    for value in REFUSED[name]:
        with pytest.raises(MillpondError) as caught:
            check_options({name: value})
        assert caught.value.code == "CQL-214"
        assert caught.value.primary == f'the query option "{name}" cannot be {value!r}'
        assert OPTIONS[name].text in (caught.value.detail or "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("routing", "best"),
        ("shards", 0),
        ("shards", 2.0),
        ("shards", 1_001),
        ("max_pairs", True),
        ("max_cores", "9"),
    ],
)
def test_values_a_setting_cannot_have(name: str, value: object) -> None:
    with pytest.raises(MillpondError, match=f'CQL-214: the setting "{name}" cannot be') as caught:
        check_settings({name: value})
    assert caught.value.detail == f"It takes {OPTIONS[name].text}."


def test_what_is_no_setting() -> None:
    with pytest.raises(MillpondError, match='CQL-214: no setting "routng"') as caught:
        check_settings({"routng": "ticket"})
    assert "routing" in (caught.value.hint or "")
    with pytest.raises(MillpondError, match='no query option "routing"'):
        check_options({"routing": "ticket"})


def test_an_option_has_one_entry() -> None:
    names = [option.name for option in options._EVERY]
    assert len(names) == len(set(names)) == len(OPTIONS)


def test_a_number_that_is_too_large_is_told_the_limit() -> None:
    with pytest.raises(MillpondError, match=r"below 2\^63"):
        check_options({"weight": 1e308})
