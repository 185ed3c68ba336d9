"""Gives a command that starts Spark the flags of spark-submit for settings and packages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_type_hints

import typer

from millpond.errors import MillpondError

#: Flags whose values are settings of Spark's.
_SETTINGS = {"jars": "spark.jars", "packages": "spark.jars.packages"}

_SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf", metavar="NAME=VALUE", help="A setting of Spark's, spark.…; repeatable."
    ),
]
_Jars = Annotated[
    str | None,
    typer.Option("--jars", metavar="FILE,…", help="Java archives that Spark loads, with commas."),
]
_Packages = Annotated[
    str | None,
    typer.Option(
        "--packages",
        metavar="GROUP:NAME:VERSION,…",
        help="Packages of Maven's that Spark fetches and loads, with commas.",
    ),
]


def with_spark_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags; what they say becomes its `spark_conf`, None without any."""

    def run(**given: Any) -> None:
        conf = read_spark_conf(
            given.pop("spark_conf") or (), **{name: given.pop(name) for name in _SETTINGS}
        )
        command(**given, spark_conf=conf or None)

    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.name != "spark_conf"]
    parameters = [p.replace(annotation=hints[p.name]) for p in own]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in (
            ("spark_conf", _SparkConf),
            ("jars", _Jars),
            ("packages", _Packages),
        )
    ]
    parameters += added
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, __name__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def read_spark_conf(
    given: Sequence[str], jars: str | None = None, packages: str | None = None
) -> dict[str, str]:
    """Read settings written as `spark.name=value`; a later one of a name replaces an earlier one.

    >>> read_spark_conf(["spark.a=b=c"], packages="g:n:1")
    {'spark.a': 'b=c', 'spark.jars.packages': 'g:n:1'}

    Raises:
        MillpondError: CQL-214, one is no setting, or is given in two ways.
    """
    conf: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise MillpondError(
                "CQL-214",
                f"a setting of Spark cannot be {text!r}",
                hint="Write --spark-conf spark.name=value.",
            )
        conf[name.strip()] = value.strip()
    for flag, setting in _SETTINGS.items():
        listed = {"jars": jars, "packages": packages}[flag]
        if listed is None:
            continue
        if setting in conf:
            raise MillpondError(
                "CQL-214",
                f"--{flag} and --spark-conf {setting} exclude each other",
                hint="Give all of them with one of the two.",
            )
        conf[setting] = listed
    return conf
